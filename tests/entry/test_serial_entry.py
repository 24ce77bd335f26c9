"""The serial pipeline: every form of one config gives one run; what a run leaves behind; limits; own classes."""

import json
import math

import pytest
import torch

from ding_like.config import load_config
from ding_like.config.yaml_io import dump_yaml
from ding_like.entry import serial_pipeline
from ding_like.entry.run_folder import RunFolderError
from ding_like.model.template.q_learning import DQN
from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import LearnerHook
from tests.envs.toys import Count, CountDict
from tests.helpers import ding, fingerprint, metrics, python, result, single, tiny_config

ITERS = 30

pytestmark = pytest.mark.usefixtures("in_tmp")


def run(config, seed=0, **kwargs):
    kwargs.setdefault("max_train_iter", ITERS)
    return serial_pipeline(config, seed=seed, **kwargs)


def write_py(folder, pair, name="cartpole_tiny.py"):
    main, create = pair
    (folder / name).write_text(
        f"main_config = {dict_text(main)}\ncreate_config = {dict_text(create)}\n"
        'if __name__ == "__main__":\n'
        "    from ding_like.entry import serial_pipeline\n"
        f"    serial_pipeline((main_config, create_config), seed=0, max_train_iter={ITERS})\n"
    )
    return folder / name


def dict_text(value):
    return repr(json.loads(json.dumps(value)))


@pytest.fixture
def forms(in_tmp):
    """One config in each of its forms."""
    pair = tiny_config()
    (in_tmp / "c.yaml").write_text(dump_yaml(json.loads(json.dumps(single(pair)))))
    return {
        "file": str(write_py(in_tmp, pair)),
        "tuple": pair,
        "single": single(pair),
        "yaml": str(in_tmp / "c.yaml"),
    }


@pytest.fixture
def wanted(in_tmp):
    run(tiny_config(), exp_name="wanted")
    return metrics("wanted")


@pytest.mark.parametrize("form", ["file", "tuple", "single", "yaml"])
def test_every_form_gives_the_same_numbers_for_one_seed_and_again(form, forms, wanted):
    """Cases B48 and B56."""
    for _ in range(2):
        run(forms[form], exp_name="again")
    assert metrics("again") == metrics("again_1") == wanted
    assert wanted[-1]["train_iter"] == ITERS


@pytest.mark.system
@pytest.mark.parametrize("form", ["python FILE", "ding -c file", "ding -c yaml"])
def test_python_file_and_command_line_give_the_same_numbers_too(form, forms, in_tmp, wanted):
    if form == "python FILE":
        done = python(forms["file"], cwd=in_tmp)
    else:
        argv = f"-m serial -c {forms[form.split()[-1]]} -s 0 --train-iter {ITERS}"
        done = ding(*argv.split(), cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    assert metrics("run") == wanted


def test_another_seed_gives_another_run(wanted):
    run(tiny_config(), seed=1, exp_name="other")
    first, other = ([line for line in lines if line["section"] == "learner"] for lines in (wanted, metrics("other")))
    assert first[0]["total_loss"] != other[0]["total_loss"]


def test_the_saved_config_gives_an_equal_run(wanted):
    """Case B56."""
    run("wanted/total_config.yaml", exp_name="reloaded")
    assert metrics("reloaded") == wanted
    assert load_config("wanted/total_config.yaml").policy.learn.target_update_freq == 100


def test_the_result_tells_the_whole_run(wanted):
    got = result("wanted")
    keys = {
        "env_step",
        "train_iter",
        "stop",
        "eval_value",
        "eval_value_raw",
        "seed",
        "wall_time_s",
        "version",
        "reason",
    }
    assert set(got) == keys and got["train_iter"] == ITERS and got["seed"] == 0 and got["stop"] is False
    assert got["reason"] == "limit reached"
    last = [line for line in wanted if line["section"] == "eval"][-1]
    assert (got["env_step"], got["eval_value"]) == (last["envstep"], last["eval_value"]) and got["wall_time_s"] > 0


def test_the_log_counts_env_steps_and_never_goes_back(wanted):
    """Case B57: x is env steps; strictly increasing within a section; every number the policy returned is there."""
    for section in ("learner", "collect", "eval"):
        steps = [line["envstep"] for line in wanted if line["section"] == section]
        assert steps and steps == sorted(set(steps)), section
    learner = [line for line in wanted if line["section"] == "learner"]
    assert [line["train_iter"] for line in learner] == list(range(5, ITERS + 1, 5))
    assert learner[0].keys() >= {"total_loss", "q_value", "td_error", "grad_norm", "cur_lr"}
    collect = [line for line in wanted if line["section"] == "collect"]
    assert collect[0].keys() >= {"return", "return_raw", "length", "episodes", "eps"}
    evals = [line for line in wanted if line["section"] == "eval"]
    assert [line["train_iter"] for line in evals] == [0, 20, 30] and all("eval_value_raw" in line for line in evals)


def test_checkpoints_are_best_periodic_and_last(in_tmp):
    policy = run(tiny_config(learn=dict(learner=dict(hook=dict(save_ckpt_after_iter=12)))))
    names = sorted(p.name for p in (in_tmp / "run/ckpt").glob("*.tar"))
    assert names == ["ckpt_best.pth.tar", "iteration_12.pth.tar", "iteration_24.pth.tar", "iteration_30.pth.tar"]
    content = torch.load("run/ckpt/iteration_30.pth.tar", weights_only=True)
    assert content["counters"]["train_iter"] == 30 and content["counters"]["envstep"] == result("run")["env_step"]
    assert fingerprint(content["state"]) == fingerprint(policy.learn_mode.state_dict())


def test_load_path_keeps_the_optimiser_settings_of_the_config(in_tmp, caplog):
    run(tiny_config(learn=dict(learning_rate=0.5, grad_clip_norm=3.0)), exp_name="a", max_train_iter=3)
    path = "a/ckpt/iteration_3.pth.tar"
    moments = load_checkpoint(path)["state"]["optimizer"]["state"][0]["exp_avg"]
    with caplog.at_level("INFO", logger="ding_like"):
        policy = run(tiny_config(learn=dict(learning_rate=1e-5)), exp_name="b", load_path=path, max_train_iter=0)
    assert policy._optimizer.param_groups[0]["lr"] == 1e-5
    assert policy._optimizer.grad_clip_norm is None
    assert torch.equal(policy._optimizer.state_dict()["state"][0]["exp_avg"], moments)
    assert f"from {path}: weights restored; optimizer too, with the settings of this config" in caplog.text


@pytest.mark.parametrize("kind", ["adamw", "rmsprop", "sgd"])
def test_load_path_takes_weights_alone_where_the_optimiser_is_of_another_type(kind, in_tmp, caplog):
    first = run(tiny_config(), exp_name="a", max_train_iter=3)
    path = "a/ckpt/iteration_3.pth.tar"
    with caplog.at_level("INFO", logger="ding_like"):
        policy = run(tiny_config(learn=dict(optimizer=kind)), exp_name="b", load_path=path, max_train_iter=0)
    assert fingerprint(policy.get_model().state_dict()) == fingerprint(first.get_model().state_dict())
    saved = policy._optimizer.state_dict()
    assert (saved["type"], saved["state"]) == (kind, {})
    assert "weights restored; optimizer starts anew, as the checkpoint's is of type adam" in caplog.text
    run(tiny_config(learn=dict(optimizer=kind)), exp_name="c", load_path=path, max_train_iter=2)
    assert result("c")["train_iter"] == 2


def test_load_path_starts_from_weights_and_optimiser(in_tmp):
    run(tiny_config(), exp_name="a")
    path = "a/ckpt/iteration_30.pth.tar"
    policy = run(tiny_config(), exp_name="b", load_path=path, max_train_iter=0)
    state = torch.load(path, weights_only=True)["state"]
    assert fingerprint(policy.learn_mode.state_dict()) == fingerprint(state)
    assert result("b")["train_iter"] == 0
    assert metrics("b")[0]["eval_value"] == metrics("a")[-1]["eval_value"]


@pytest.mark.parametrize("limit", [dict(max_train_iter=7), dict(max_env_step=101, max_train_iter=10**9)])
def test_a_run_ends_at_its_first_limit(limit):
    run(tiny_config(), **limit)
    got = result("run")
    if "max_env_step" in limit:
        assert 101 <= got["env_step"] < 101 + 8 + 2 * 2
    else:
        assert got["train_iter"] == 7
    assert metrics("run")[-1]["section"] == "eval" and metrics("run")[-1]["train_iter"] == got["train_iter"]


def test_a_run_stops_at_its_stop_value():
    main, create = tiny_config()
    main["env"]["stop_value"] = 1.0
    run((main, create))
    assert result("run")["stop"] is True and result("run")["train_iter"] == 20


def test_random_steps_come_before_the_first_update():
    run(tiny_config(random_collect_size=50), max_train_iter=1)
    assert result("run")["env_step"] >= 50 + 8


def test_a_model_and_envs_may_be_handed_over():
    net = DQN(1, 2, [8])
    policy = run(tiny_config(), env_setting=lambda: Count(4), model=net)
    assert policy.get_model() is net and result("run")["eval_value"] == 4.0


def test_an_existing_folder_is_left_alone(in_tmp):
    run(tiny_config(), max_train_iter=1)
    before = (in_tmp / "run/metrics.jsonl").read_text()
    run(tiny_config(), max_train_iter=2)
    assert (in_tmp / "run/metrics.jsonl").read_text() == before and result("run_1")["train_iter"] == 2
    assert load_config("run_1/total_config.yaml").exp_name == "run_1"
    with pytest.raises(RunFolderError, match="run folder run exists"):
        run(tiny_config(), on_exists="error")


def test_the_number_of_torch_threads_is_put_back():
    before = torch.get_num_threads()
    run(tiny_config(), sets=("torch_threads=2",), max_train_iter=1)
    assert torch.get_num_threads() == before


def test_a_hook_named_in_the_config_sees_every_step():
    seen = []

    class Sees(LearnerHook):
        def __call__(self, learner):
            seen.append((learner.train_iter, learner.envstep, float(learner.last["total_loss"])))

    HOOK_REGISTRY.register("sees", Sees)
    run(tiny_config(learn=dict(learner=dict(hooks=[dict(type="sees")]))), max_train_iter=6)
    assert [i for i, _, _ in seen] == [1, 2, 3, 4, 5, 6] and all(math.isfinite(x) for _, _, x in seen)


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("norm", [False, True])
def test_a_dict_observation_trains(nstep, norm):
    over = dict(nstep=nstep, norm_obs=dict(use_norm=norm))
    run(tiny_config(**over), env_setting=lambda: CountDict(5, trunc=True), max_train_iter=4)
    assert result("run")["eval_value"] == 5.0


FILES = {
    "my_env_file": """
import gymnasium
import numpy as np
from ding_like.utils import ENV_REGISTRY

@ENV_REGISTRY.register("my_env")
class MyEnv(gymnasium.Env):
    def __init__(self, size=3):
        self.size = size
        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,))
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, False, self.t == 6, {}
""",
    "my_model_file": """
from torch import nn
from ding_like.utils import MODEL_REGISTRY

@MODEL_REGISTRY.register("my_model")
class MyModel(nn.Module):
    def __init__(self, obs_shape, action_shape, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_shape, width), nn.Dropout(0.1), nn.Linear(width, action_shape))

    def forward(self, x):
        return {"logit": self.net(x)}
""",
    "my_policy_file": """
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils import POLICY_REGISTRY

@POLICY_REGISTRY.register("my_policy")
class MyPolicy(DQNPolicy):
    config = dict(bonus=0.0)

    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        row["reward"] = row["reward"] + self._cfg.bonus
        return row

    def _forward_learn(self, data):
        out = super()._forward_learn(data)
        return {**out, "mean_reward": data["reward"]}
""",
    "my_hook_file": """
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import LearnerHook

@HOOK_REGISTRY.register("my_hook")
class MyHook(LearnerHook):
    position = "after_run"

    def __init__(self, path):
        self.path = path

    def __call__(self, learner):
        open(self.path, "w").write(f"{learner.train_iter}")
""",
}


@pytest.mark.system
def test_policy_model_env_and_hook_of_the_users_own_train_from_files_outside_the_package(in_tmp):
    for name, text in FILES.items():
        (in_tmp / f"{name}.py").write_text(text)
    hook = dict(type="my_hook", import_names=["my_hook_file"], path="hook_was_here")
    main, create = tiny_config(
        nstep=1,
        bonus=2.0,
        model=dict(type="my_model", import_names=["my_model_file"], width=8),
        learn=dict(learner=dict(hooks=[hook])),
    )
    del main["policy"]["model"]["encoder_hidden_size_list"]
    main["env"]["env_kwargs"] = dict(size=5)
    create["env"] = dict(type="my_env", import_names=["my_env_file"])
    create["policy"] = dict(type="my_policy", import_names=["my_policy_file"])
    file = write_py(in_tmp, (main, create))
    done = ding("-m", "serial", "-c", file, "--train-iter", ITERS, cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    assert (in_tmp / "hook_was_here").read_text() == str(ITERS)
    assert result("run")["eval_value"] == 6.0
    learner = [line for line in metrics("run") if line["section"] == "learner"]
    assert learner[0]["mean_reward"] == 3.0


@pytest.mark.system
def test_normaliser_statistics_survive_a_new_process(in_tmp):
    """Case B54: evaluation in a new process with the loaded statistics gives the equal deterministic return."""
    policy = run(tiny_config(norm_obs=dict(use_norm=True)), max_train_iter=60)
    assert policy.get_model().statistics[0].count > 0
    last = metrics("run")[-1]
    ckpt = "run/ckpt/iteration_60.pth.tar"
    done = ding("-m", "eval", "-c", "run/total_config.yaml", "-s", 0, "--load-path", ckpt, cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["eval_value"] == last["eval_value"]


@pytest.fixture
def checkpoint(in_tmp):
    run(tiny_config(), exp_name="a", max_train_iter=3)
    return torch.load("a/ckpt/iteration_3.pth.tar", weights_only=True)


def test_a_checkpoint_without_target_network_starts_it_from_the_online_one(checkpoint, caplog):
    del checkpoint["state"]["target_model"]
    torch.save(checkpoint, "b.tar")
    with caplog.at_level("INFO", logger="ding_like"):
        policy = run(tiny_config(), exp_name="b", load_path="b.tar", max_train_iter=0)
    state = policy.learn_mode.state_dict()
    assert fingerprint(state["target_model"]["model"]) == fingerprint(dict(checkpoint["state"]["model"]))
    assert "it holds no target network, which starts as a copy of the online one" in caplog.text


@pytest.mark.parametrize("part", ["target_model", "optimizer"])
@pytest.mark.parametrize("value", [{}, {"model": {}}, 3, {"param_groups": 3, "type": "adam"}])
def test_an_odd_part_of_a_checkpoint_is_an_error_with_its_path(part, value, checkpoint, in_tmp):
    checkpoint["state"][part] = value
    torch.save(checkpoint, "b.tar")
    with pytest.raises(CheckpointError, match=r"checkpoint b\.tar does not fit this config: "):
        run(tiny_config(), exp_name="b", load_path="b.tar")
    assert not (in_tmp / "b").exists()


def test_sys_exit_in_a_hook_is_an_error_and_the_results_are_kept(in_tmp):
    class Exits(LearnerHook):
        def __call__(self, learner):
            if learner.train_iter == 4:
                raise SystemExit(0)

    HOOK_REGISTRY.register("exits", Exits)
    with pytest.raises(RuntimeError, match=r"called sys\.exit\(0\)"):
        run(tiny_config(learn=dict(learner=dict(hooks=[dict(type="exits")]))))
    assert result("run")["train_iter"] == 4
    assert (in_tmp / "run/ckpt/iteration_4.pth.tar").is_file()


def test_a_run_that_never_trains_says_so(in_tmp, caplog):
    with caplog.at_level("WARNING", logger="ding_like"):
        serial_pipeline(tiny_config(), sets=["policy.learn.batch_size=150"], max_env_step=20)
    # three collects of 8 items; one row of 2 columns waits for its future
    assert "no gradient step was taken: 24 items were collected in 26 env steps, a batch is 150" in caplog.text
