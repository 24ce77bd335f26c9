"""The learner: counts, hooks in order, what is logged, and a loss that is not finite."""

import numpy as np
import pytest
import torch

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.data import ArrayDict
from ding_like.utils import HOOK_REGISTRY, UnknownNameError
from ding_like.worker import Learner
from ding_like.worker.learner.hooks import LearnerHook


class Mode:
    """A `learn_mode` that returns what it is told to."""

    def __init__(self, **info):
        self.info, self.batches = info, []

    def forward(self, data):
        self.batches.append(data)
        return dict(self.info)

    def get_attribute(self, name):
        return {"device": torch.device("cpu"), "time_major": False}[name]

    def set_attribute(self, name, value):
        setattr(self, name, value)


class Log:
    def __init__(self):
        self.lines = []

    def log(self, values, envstep, train_iter, section):
        self.lines.append((section, envstep, train_iter, values))


def learner(mode=None, logger=None, save=None, **cfg):
    return Learner(CfgDict(deep_merge_defaults(Learner.config, cfg)), mode or Mode(total_loss=1.0), logger, save)


def batch():
    return ArrayDict(obs=np.ones((3, 2), np.float32), none=None, nested={"a": np.zeros(3, np.int64)})


class Note(LearnerHook):
    def __init__(self, position, priority, notes, name):
        self.position, self.priority, self.notes, self.name = position, priority, notes, name

    def __call__(self, learner):
        self.notes.append((self.name, learner.train_iter))


def test_hooks_run_by_position_and_priority():
    notes, made = [], learner()
    for position in ("after_run", "after_eval", "after_iter", "before_iter", "before_collect", "before_run"):
        for priority in (70, 10, 40, 10):
            made.add_hook(Note(position, priority, notes, f"{position}{priority}"))
    made.call_hook("before_run")
    made.call_hook("before_collect")
    made.train(batch(), 5)
    made.call_hook("after_eval")
    made.call_hook("after_run")
    positions = ("before_run", "before_collect", "before_iter", "after_iter", "after_eval", "after_run")
    assert [name for name, _ in notes] == [f"{p}{n}" for p in positions for n in (10, 10, 40, 70)]
    assert [i for _, i in notes] == [0] * 12 + [1] * 12
    with pytest.raises(ValueError, match="hook Note has position 'in_between'; wanted one of"):
        made.add_hook(Note("in_between", 1, notes, "x"))


def test_a_batch_becomes_tensors_that_share_its_memory():
    mode, rows = Mode(total_loss=0.0), batch()
    made = learner(mode)
    assert made.train(rows, 5) == {"total_loss": 0.0} == made.last and (made.train_iter, made.envstep) == (1, 5)
    data = mode.batches[0]
    rows["obs"][0, 0] = 7
    assert data["obs"][0, 0] == 7 and data["nested"]["a"].dtype == torch.int64 and data["none"] is None


def test_every_number_is_logged_at_the_frequency_with_its_step():
    log = Log()
    info = dict(
        total_loss=torch.tensor(2.0),
        td=torch.tensor([1.0, 3.0]),
        flag=torch.tensor([True, False]),
        lr=0.1,
        count=3,
        single=np.float32(0.5),
        array=np.array([1.0, 2.0]),
        text="no number",
        priority=np.ones(3),
    )
    made = learner(Mode(**info), log, hook={"log_show_after_iter": 3})
    for i in range(7):
        made.train(batch(), 10 * i)
    assert [(s, e, t) for s, e, t, _ in log.lines] == [("learner", 20, 3), ("learner", 50, 6)]
    wanted = dict(total_loss=2.0, td=2.0, flag=0.5, lr=0.1, count=3.0, single=0.5, array=1.5)
    assert log.lines[0][3] == wanted


def test_checkpoints_are_saved_at_the_frequency():
    saved = []
    made = learner(save=saved.append, hook={"save_ckpt_after_iter": 2})
    for _ in range(5):
        made.train(batch(), 0)
    assert saved == ["iteration_2", "iteration_4"]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_loss_that_is_not_finite_is_named_before_any_hook_can_save(loss):
    mode, saved, log = Mode(total_loss=1.0), [], Log()
    made = learner(mode, log, saved.append, hook={"save_ckpt_after_iter": 1, "log_show_after_iter": 1})
    made.train(batch(), 8)
    mode.info["total_loss"] = loss
    with pytest.raises(FloatingPointError, match=r"the loss is (nan|inf) at train_iter 1, env step 24\."):
        made.train(batch(), 24)
    assert saved == ["iteration_1"] and made.train_iter == 1 and len(log.lines) == 1


def test_a_users_hook_is_named_by_config_with_its_module_and_arguments(in_tmp):
    (in_tmp / "my_hook_module.py").write_text(
        "from ding_like.utils import HOOK_REGISTRY\n"
        "from ding_like.worker import LearnerHook\n"
        "@HOOK_REGISTRY.register('my_hook')\n"
        "class MyHook(LearnerHook):\n"
        "    priority = 5\n"
        "    def __init__(self, every):\n"
        "        self.every, self.seen = every, []\n"
        "    def __call__(self, learner):\n"
        "        self.seen.append((learner.train_iter, learner.last['total_loss'], learner.envstep))\n"
    )
    made = learner(hooks=[{"type": "my_hook", "import_names": ["my_hook_module"], "every": 2}])
    made.train(batch(), 4)
    hook = made._hooks["after_iter"][0]
    assert hook.every == 2 and hook.seen == [(1, 1.0, 4)]


def test_wrong_hooks_are_named():
    HOOK_REGISTRY.register("known_hook", LearnerHook)
    with pytest.raises(UnknownNameError, match=r"no learner_hook is called 'know_hook'.*'known_hook'"):
        learner(hooks=[{"type": "know_hook"}])
    with pytest.raises(ValueError, match="has no 'type', the hook's registered name"):
        learner(hooks=[{"every": 2}])
    with pytest.raises(ValueError, match="log_show_after_iter is 0; wanted at least 1"):
        learner(hook={"log_show_after_iter": 0})
    with pytest.raises(ValueError, match="save_ckpt_after_iter is 0"):
        learner(save=print, hook={"save_ckpt_after_iter": 0})


def test_a_loss_that_still_has_its_graph_is_checked_and_logged_without_a_warning(recwarn):
    log = Log()
    mode = Mode(total_loss=torch.ones((), requires_grad=True) * 2)
    learner(mode, log, hook={"log_show_after_iter": 1}).train(batch(), 0)
    assert log.lines[0][3]["total_loss"] == 2.0 and not recwarn.list


class Remembers(LearnerHook):
    def __init__(self):
        self.count = 0

    def __call__(self, learner):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_counters_and_hooks_with_memory_are_restored():
    made, again = learner(), learner()
    for one in (made, again):
        one.add_hook(Remembers())
    for _ in range(3):
        made.train(batch(), 12)
    again.load_state_dict(made.state_dict())
    assert (again.train_iter, again.envstep, again.hooks[-1].count) == (3, 12, 3)
    assert again.state_dict() == made.state_dict()
    again.train(batch(), 16)
    assert (again.train_iter, again.hooks[-1].count) == (4, 4)


def test_a_state_of_other_hooks_is_named():
    made, again = learner(), learner()
    made.add_hook(Remembers())
    with pytest.raises(ValueError, match=r"saved with the hooks LogHook, Remembers; this learner has LogHook\. Go on"):
        again.load_state_dict(made.state_dict())


def test_a_hook_may_refuse_a_learner_as_it_is_added():
    class Picky(LearnerHook):
        def attach(self, learner):
            raise ValueError(f"not with {type(learner.policy).__name__}")

    made = learner()
    with pytest.raises(ValueError, match="not with Mode"):
        made.add_hook(Picky())
    assert len(made.hooks) == 1
