"""The built-in hooks: when they act, by closed forms; what they refuse; how they go on after `load_state_dict`."""

import math
from itertools import pairwise

import pytest
import torch

from ding_like.config import CfgDict, ConfigError, deep_merge_defaults
from ding_like.entry.checks import check_hooks
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import Learner, LearnerHook


class Mode:
    """A `learn_mode` with an optimiser of two groups."""

    def __init__(self, lr=(0.1, 0.02), lr_fn=None):
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in lr]
        groups = [{"params": [p], "lr": rate} for p, rate in zip(parameters, lr)]
        self.attributes = dict(device=torch.device("cpu"), optimizer=torch.optim.SGD(groups), lr_fn=lr_fn)

    def forward(self, data):
        return {"total_loss": 0.0}

    def get_attribute(self, name):
        if name not in self.attributes:
            raise AttributeError(f"no attribute {name}")
        return self.attributes[name]

    def set_attribute(self, name, value):
        self.attributes[name] = value

    @property
    def rates(self):
        return [group["lr"] for group in self.attributes["optimizer"].param_groups]


class Run:
    """What hooks steer the run by; it writes down what they asked for."""

    def __init__(self, learner, folder=None):
        self.learner, self.folder, self.result = learner, folder, {}
        self.evaluated, self.saved, self.reasons = [], [], []

    def evaluate(self, wait=True):
        self.evaluated.append((self.learner.train_iter, self.learner.envstep))

    def save(self, name):
        self.saved.append(name)
        if self.folder is not None:
            (self.folder / "ckpt" / f"{name}.pth.tar").write_text(f"{len(self.saved)}")

    def stop(self, reason):
        self.reasons.append(reason)


def learner(*hooks, mode=None, folder=None, save_freq=None):
    cfg = deep_merge_defaults(Learner.config, {"hooks": list(hooks)})
    made = Learner(CfgDict(cfg), mode or Mode())
    made.run = Run(made, folder)
    if save_freq is not None:
        cfg["hook"]["save_ckpt_after_iter"] = save_freq
        made = Learner(CfgDict(cfg), mode or Mode(), save=lambda name: made.run.save(name))
        made.run = Run(made, folder)
    return made


def rounds(made, count, per_round=3, columns=8):
    """Rounds of a loop: hooks, then some gradient steps after `columns` more env steps."""
    for _ in range(count):
        made.call_hook("before_collect")
        envstep = made.envstep + columns
        for _ in range(per_round):
            made.train({}, envstep)


# ------------------------------------------------------------------ evaluation
def test_an_evaluation_comes_at_the_start_and_after_each_freq_gradient_steps():
    made = learner(dict(type="evaluation", freq=7))
    rounds(made, 12)
    assert [i for i, _ in made.run.evaluated] == [0, 9, 18, 27]  # the first round's end at or past 0 + 7, 9 + 7, ...
    assert made.hooks[-1].evaluated_at == 27


def test_an_evaluation_may_count_env_steps():
    made = learner(dict(type="evaluation", freq=20, unit="env_step"))
    rounds(made, 8)
    assert [e for _, e in made.run.evaluated] == [0, 24, 48]


def test_no_evaluation_comes_twice_without_a_gradient_step():
    made = learner(dict(type="evaluation", freq=1))
    for _ in range(3):
        made.call_hook("before_collect")
    assert made.run.evaluated == [(0, 0)]


def test_what_the_loop_evaluates_of_itself_is_not_evaluated_again():
    made = learner(dict(type="evaluation", freq=3))
    rounds(made, 2)
    made.hooks[-1].evaluated_at = 6
    rounds(made, 2)
    assert [i for i, _ in made.run.evaluated] == [0, 3, 9]


@pytest.mark.parametrize("unit", ["train_iter", "env_step"])
def test_evaluations_go_on_as_if_not_interrupted(unit):
    entry = dict(type="evaluation", freq=13, unit=unit)
    straight, first, second = learner(entry), learner(entry), learner(entry)
    rounds(straight, 20)
    rounds(first, 7)
    second.load_state_dict(first.state_dict())
    rounds(second, 13)
    assert first.run.evaluated + second.run.evaluated == straight.run.evaluated
    assert second.state_dict() == straight.state_dict()


# ------------------------------------------------------------------ checkpoint
@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "ckpt_best.pth.tar").write_text("best")
    (tmp_path / "ckpt" / "iteration_1.pth.tar").write_text("of the user's")
    return tmp_path


def files(folder):
    return sorted(path.name.split(".")[0] for path in (folder / "ckpt").iterdir())


def test_the_newest_checkpoints_stay_and_the_files_of_others_too(folder):
    made = learner(dict(type="checkpoint", freq=4, keep=2), folder=folder)
    rounds(made, 7)
    assert made.run.saved == [f"iteration_{n}" for n in (4, 8, 12, 16, 20)]
    assert files(folder) == ["ckpt_best", "iteration_1", "iteration_16", "iteration_20"]


def test_checkpoints_by_env_steps_are_all_kept_by_default(folder):
    made = learner(dict(type="checkpoint", freq=16, unit="env_step"), folder=folder)
    rounds(made, 6)
    assert files(folder) == ["ckpt_best", "iteration_1", "iteration_10", "iteration_16", "iteration_4"]


def test_a_file_that_the_default_checkpoints_or_another_hook_keep_is_written_once_and_stays(folder):
    hooks = [dict(type="checkpoint", freq=2, keep=1), dict(type="checkpoint", freq=4)]
    made = learner(*hooks, folder=folder, save_freq=6)
    for _ in range(13):
        made.train({}, 0)
    assert made.run.saved == [f"iteration_{n}" for n in (2, 4, 6, 8, 10, 12)]
    assert files(folder) == ["ckpt_best", *(f"iteration_{n}" for n in (1, 12, 4, 6, 8))]


def test_a_resumed_run_deletes_what_it_wrote_before(folder):
    entry = dict(type="checkpoint", freq=2, keep=2)
    first, second = learner(entry, folder=folder), learner(entry, folder=folder)
    for _ in range(5):
        first.train({}, 0)
    state = first.state_dict()
    for _ in range(2):  # after the resume point, then killed
        first.train({}, 0)
    second.load_state_dict(state)
    for _ in range(4):
        second.train({}, 0)
    assert files(folder) == ["ckpt_best", "iteration_1", "iteration_6", "iteration_8"]


def test_a_run_without_a_folder_has_nothing_to_delete():
    made = learner(dict(type="checkpoint", freq=1, keep=1))
    rounds(made, 2)
    assert len(made.run.saved) == 6


def test_a_file_that_cannot_be_deleted_is_said_and_stays(folder, caplog):
    made = learner(dict(type="checkpoint", freq=1, keep=1), folder=folder)
    made.train({}, 0)
    (folder / "ckpt" / "iteration_1.pth.tar").unlink()
    (folder / "ckpt" / "iteration_1.pth.tar").mkdir()
    made.train({}, 0)
    assert "iteration_1.pth.tar cannot be deleted" in caplog.text


# ------------------------------------------------------------------ early stop
def stops(hook, values):
    """The index of the evaluation after which the run is asked to stop, and why."""
    made = learner(dict(type="early_stop", **hook))
    for index, value in enumerate(values):
        made.run.result = {"eval_value": value}
        made.call_hook("after_eval")
        if made.run.reasons:
            return index, made.run.reasons[0]
    return None


@pytest.mark.parametrize(
    ("hook", "values", "index"),
    [
        (dict(patience=2), [1, 2, 3, 4, 5], None),
        (dict(patience=2), [1, 2, 2, 2], 3),
        (dict(patience=2), [1, 0, 2, 1, 0, 3], 4),
        (dict(patience=2, min_delta=1.0), [1, 2, 2, 2.5], 2),
        (dict(patience=2, min_delta=1.0), [1, 1.5, 2.25, 3.0, 3.25], 4),  # better than the best by 1.25, then by 1
        (dict(patience=1), [-5, -4, math.nan], 2),
        (dict(patience=3), [math.nan, math.nan, 7, math.nan, math.nan, 8], None),
    ],
)
def test_the_run_ends_after_so_many_evaluations_without_an_improvement(hook, values, index):
    found = stops(hook, values)
    assert (None if found is None else found[0]) == index


def test_the_reason_tells_the_best_value():
    assert stops(dict(patience=2, min_delta=0.5), [30.0, 30.25, 1.0])[1] == (
        "early stop: the last 2 evaluations not above 30 by more than 0.5"
    )


def test_hours_count_over_a_resume(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    entry = dict(type="early_stop", max_hours=2)
    first = learner(entry)
    clock[0] = 5000.0
    state = first.state_dict()
    clock[0] = 90000.0  # the pause does not count
    second = learner(entry)
    second.load_state_dict(state)
    second.run.result = {"eval_value": 1.0}
    for clock[0], reasons in ((92199.0, []), (92200.0, ["early stop: 2 hours are over"])):
        second.call_hook("after_eval")
        assert second.run.reasons == reasons


def test_patience_goes_on_over_a_resume():
    entry = dict(type="early_stop", patience=3)
    first, second = learner(entry), learner(entry)
    for made, values in ((first, [5, 1, 1]), (second, [4])):
        if made is second:
            second.load_state_dict(first.state_dict())
        for value in values:
            made.run.result = {"eval_value": value}
            made.call_hook("after_eval")
    assert (first.run.reasons, len(second.run.reasons)) == ([], 1)


# ------------------------------------------------------------------ learning rates
def rates(count, columns=8, **arguments):
    """The rates of both groups at each gradient step; env steps are 8, 16, ..."""
    mode = Mode()
    made, found = learner(dict(type="lr_schedule", **arguments), mode=mode), []
    for step in range(1, count + 1):
        made.train({}, columns * step)
        found.append(mode.rates)
    return found


def test_linear_falls_by_equal_parts_to_its_end():
    wanted = [0.1, 0.0775, 0.055, 0.0325, 0.01, 0.01]
    found = rates(6, kind="linear", decay=4, end=0.01, unit="train_iter")
    assert [a for a, _ in found] == pytest.approx(wanted, abs=1e-15)
    assert [b for _, b in found] == pytest.approx([0.02, 0.0175, 0.015, 0.0125, 0.01, 0.01], abs=1e-15)


def test_cosine_is_half_way_in_the_middle_and_flat_in_the_end():
    found = [a for a, _ in rates(10, kind="cosine", decay=6, unit="train_iter")]
    shape = [1, 0.5 + math.sqrt(3) / 4, 0.75, 0.5, 0.25, 0.5 - math.sqrt(3) / 4, 0, 0, 0, 0]  # at 0, 30, ... degrees
    assert found == pytest.approx([0.1 * height for height in shape], abs=1e-15)


def test_exp_loses_the_same_share_of_its_distance_every_step():
    found = [a - 0.04 for a, _ in rates(5, kind="exp", decay=16, end=0.04)]  # over env steps 8, 16, ...
    assert [b / a for a, b in pairwise(found)] == pytest.approx([math.exp(-0.5)] * 4)
    assert found[1] == pytest.approx(0.06 / math.e)


def test_step_drops_every_so_often_and_not_below_its_end():
    found = [a for a, _ in rates(8, kind="step", decay=2, factor=0.5, end=0.02, unit="train_iter")]
    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.02, 0.02])


def test_warmup_rises_to_the_full_rate_before_the_schedule_begins():
    found = [a for a, _ in rates(8, kind="linear", decay=4, warmup=4, unit="train_iter")]
    assert found == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.075, 0.05, 0.025])


@pytest.mark.parametrize("kind", ["linear", "cosine", "exp", "step"])
def test_a_schedule_goes_on_exactly_after_a_resume(kind):
    entry = dict(type="lr_schedule", kind=kind, decay=57, end=0.003, warmup=10)
    modes = [Mode() for _ in range(3)]
    straight, first, second = (learner(entry, mode=mode) for mode in modes)
    wanted, found = [], []
    rounds(first, 4)
    modes[2].attributes["optimizer"].load_state_dict(modes[1].attributes["optimizer"].state_dict())  # a lowered rate
    second.load_state_dict(first.state_dict())
    for _ in range(10):
        rounds(straight, 1)
        wanted.append(modes[0].rates)
    for _ in range(6):
        rounds(second, 1)
        found.append(modes[2].rates)
    assert found == wanted[4:]


def test_another_optimiser_is_named_by_its_attribute():
    mode = Mode()
    mode.attributes["critic_optimizer"] = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    entry = dict(type="lr_schedule", kind="linear", decay=2, unit="train_iter", optimizer="critic_optimizer")
    made = learner(entry, mode=mode)
    made.train({}, 0)
    made.train({}, 0)
    assert mode.attributes["critic_optimizer"].param_groups[0]["lr"] == 0.5
    assert mode.rates == [0.1, 0.02]


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (dict(type="evaluation", freq=0), "hook 'evaluation': freq: got 0, wanted an integer of at least 1"),
        (dict(type="evaluation", freq=5, unit="env_steps"), "hook 'evaluation': unit: .*; did you mean 'env_step'"),
        (dict(type="checkpoint", freq=2.5), "hook 'checkpoint': freq: got 2.5"),
        (dict(type="checkpoint", freq=2, keep=0), "hook 'checkpoint': keep: got 0, wanted .* or None"),
        (dict(type="early_stop"), "hook 'early_stop': got neither patience nor max_hours"),
        (dict(type="early_stop", patience=0), "hook 'early_stop': patience: got 0"),
        (dict(type="early_stop", patience=1, min_delta=-1), "hook 'early_stop': min_delta: got -1"),
        (dict(type="early_stop", max_hours=0), "hook 'early_stop': max_hours: got 0"),
        (dict(type="lr_schedule", kind="cosin", decay=1), "hook 'lr_schedule': kind: .*did you mean 'cosine'"),
        (dict(type="lr_schedule", kind="exp", decay=0), "hook 'lr_schedule': decay: got 0"),
        (dict(type="lr_schedule", kind="exp", decay=1, end=-1), "hook 'lr_schedule': end: got -1"),
        (dict(type="lr_schedule", kind="step", decay=1, factor=0), "hook 'lr_schedule': factor: got 0"),
        (dict(type="lr_schedule", kind="exp", decay=1, warmup=-1), "hook 'lr_schedule': warmup: got -1"),
        (dict(type="lr_schedule", kind="exp", decay=1, unit="s"), "hook 'lr_schedule': unit: got 's'"),
        (dict(type="lr_schedule", kind="exp", decay=1, optimizer=3), "hook 'lr_schedule': optimizer: got 3"),
        (dict(type="wandb", mode="of"), "hook 'wandb': mode: got 'of'"),
        (dict(type="wandb", project=""), "hook 'wandb': project: got ''"),
        (dict(type="wandb", tags="a"), "hook 'wandb': tags: got 'a', wanted a list of texts"),
        (dict(type="wandb", name=3), "hook 'wandb': name: got 3"),
    ],
)
def test_a_wrong_argument_is_named_by_the_learner_and_by_the_check_of_a_config(entry, message):
    cfg = CfgDict(policy=dict(learn=dict(learner=dict(hooks=[dict(entry)]))))
    for build in (lambda: learner(entry), lambda: check_hooks(cfg)):
        with pytest.raises(ConfigError, match=message):
            build()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            dict(type="evaluation", frq=5),
            r"policy\.learn\.learner\.hooks\[1\]: hook 'evaluation': it has no argument 'frq'\. Did you mean 'freq'\? "
            "It takes freq, unit",
        ),
        (dict(type="evaluation"), r"hooks\[1\]: hook 'evaluation': missing a required argument: 'freq'; it takes freq"),
        (
            dict(type="without_arguments", x=1),
            r"hooks\[1\]: hook 'without_arguments': got the arguments \['x'\], wanted no",
        ),
    ],
)
def test_an_argument_that_a_hook_does_not_take_is_named_with_the_nearest(entry, message):
    HOOK_REGISTRY.register("without_arguments", LearnerHook)
    cfg = CfgDict(policy=dict(learn=dict(learner=dict(hooks=[dict(type="evaluation", freq=1), entry]))))
    with pytest.raises(ConfigError, match=message):
        check_hooks(cfg)


def test_a_module_of_a_hook_that_cannot_be_imported_is_named_with_its_place(tmp_path, monkeypatch):
    (tmp_path / "hook_that_needs_more.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module, says in (
        ("no_such_hooks", "import_names entry 'no_such_hooks' is not"),
        ("hook_that_needs_more", "No mod"),
    ):
        entry = dict(type="evaluation", freq=1, import_names=[module])
        cfg = CfgDict(policy=dict(learn=dict(learner=dict(hooks=[entry]))))
        with pytest.raises(ImportError, match=rf"policy\.learn\.learner\.hooks\[0\]: {says}"):
            check_hooks(cfg)


def test_a_second_schedule_of_the_rate_is_a_conflict():
    with pytest.raises(ConfigError, match=r"policy\.learn\.lr_schedule\.type sets a learning rate too"):
        learner(dict(type="lr_schedule", kind="linear", decay=5), mode=Mode(lr_fn=lambda step: 0.1))


def test_two_schedules_are_for_two_optimisers():
    mode, entry = Mode(), dict(type="lr_schedule", kind="linear", decay=5)
    mode.attributes["critic_optimizer"] = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    mode.attributes["same"] = mode.attributes["optimizer"]
    learner(entry, dict(entry, optimizer="critic_optimizer"), mode=mode)
    for name in ("optimizer", "same"):
        with pytest.raises(ConfigError, match=f"hook 'lr_schedule' is listed twice for '{name}'"):
            learner(entry, dict(entry, optimizer=name), mode=mode)


@pytest.mark.parametrize("names", [3, [3], "a.b"])
def test_modules_of_a_hook_that_are_no_list_of_names_are_named(names):
    entry = dict(type="evaluation", freq=1, import_names=names)
    cfg = CfgDict(policy=dict(learn=dict(learner=dict(hooks=[entry]))))
    for build in (lambda: learner(entry), lambda: check_hooks(cfg)):
        with pytest.raises(TypeError, match=r"import_names.* wanted a list of module names"):
            build()


@pytest.mark.parametrize("name", ["optimiser", "device"])
def test_an_optimiser_that_the_policy_lacks_is_named(name):
    with pytest.raises(ConfigError, match=f"the policy has no optimiser called '{name}'"):
        learner(dict(type="lr_schedule", kind="linear", decay=5, optimizer=name))


def test_all_of_them_are_known_by_name():
    assert set(HOOK_REGISTRY.query()) >= {"evaluation", "checkpoint", "early_stop", "lr_schedule", "wandb"}


def test_any_callable_with_a_position_and_a_priority_is_a_hook():
    made, seen = learner(), []
    hook = type("Plain", (), dict(position="after_eval", priority=1, __call__=lambda self, got: seen.append(got)))()
    made.add_hook(hook)
    made.call_hook("after_eval")
    made.load_state_dict(made.state_dict())
    assert seen == [made]
