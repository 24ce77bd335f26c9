"""Whatever goes wrong in a run: said by name, nothing lost that was there, no success pretended."""

import json
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import ConfigError
from ding_like.entry import serial_pipeline
from ding_like.envs import EnvError
from ding_like.policy.dqn import DQNPolicy
from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint
from ding_like.utils import HOOK_REGISTRY, POLICY_REGISTRY, UnknownNameError
from ding_like.worker import LearnerHook
from tests.envs.toys import AnySpace, Boom, Count
from tests.helpers import ROOT, ding, metrics, result, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")


def run(config=None, **kwargs):
    kwargs.setdefault("max_train_iter", 60)
    return serial_pipeline(config or tiny_config(), **kwargs)


def checkpoints(folder):
    return sorted(p.name for p in (folder / "run/ckpt").glob("*.tar"))


def assert_good(folder, name):
    state = load_checkpoint(folder / "run/ckpt" / name, "dqn")["state"]["model"]
    assert all(torch.isfinite(v).all() for v in state.values())


# ---------------------------------------------------------------- before anything is made
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (dict(policy=dict(learn=dict(batch_sise=3))), ConfigError, "policy.learn.batch_sise"),
        (dict(policy=dict(learn=dict(batch_size="64"))), ConfigError, "policy.learn.batch_size: got '64'"),
        (dict(policy=dict(type="dqm")), UnknownNameError, "no policy is called 'dqm'"),
        (dict(policy=dict(model=dict(type="dqm"))), UnknownNameError, "no model is called 'dqm'.*'dqn'"),
        (dict(policy=dict(model=dict(duelling=True))), ConfigError, "policy.model.duelling.*'dueling'"),
        (dict(policy=dict(learn=dict(optimizer="adan"))), ConfigError, "policy.learn.optimizer.*'adan'.*'adam'"),
        (dict(policy=dict(collect=dict(n_sample=0))), ConfigError, "policy.collect.n_sample: got 0"),
        (
            dict(policy=dict(learn=dict(batch_size=201))),
            ConfigError,
            "replay_buffer_size: got 200, .* at least 201",
        ),
        (
            dict(policy=dict(learn=dict(learner=dict(hooks=[dict(type="nope")])))),
            UnknownNameError,
            "no learner_hook is called 'nope'",
        ),
        (
            dict(policy=dict(learn=dict(learner=dict(hooks=[dict(type="refuses")])))),
            ValueError,
            "this hook refuses",
        ),
        (dict(env=dict(type="CartPol-v1")), UnknownNameError, "no env is called 'CartPol-v1'.*'CartPole-v1'"),
        (dict(env=dict(type="Pendulum-v1")), ConfigError, "policy 'dqn' serves Discrete actions"),
        (dict(env=dict(import_names=["no_such"])), ImportError, "import_names entry 'no_such'"),
        (dict(env=dict(env_kwargs=dict(surprise=1))), EnvError, "CartPole-v1.*surprise"),
    ],
)
def test_wrong_configs_stop_before_a_folder_is_made(change, error, says, in_tmp):
    main, create = tiny_config()
    for section, values in change.items():
        for key, value in values.items():
            target = create if key == "type" else main
            if isinstance(value, dict) and isinstance(target[section].get(key), dict):
                target[section][key].update(value)
            else:
                create.get(section, {}).pop(key, None)
                target[section][key] = value
    with pytest.raises(error, match=says):
        run((main, create))
    assert list(in_tmp.iterdir()) == []


def test_an_env_that_fails_in_its_constructor_is_named(in_tmp):
    with pytest.raises(EnvError, match="making it raised RuntimeError: boom-7"):
        run(env_setting=lambda: Boom("init"))
    assert list(in_tmp.iterdir()) == []


# ---------------------------------------------------------------- envs
@pytest.mark.parametrize(
    ("where", "says"),
    [("reset", r"reset\(\) raised RuntimeError.*boom-7"), ("step", r"step\(\d\) raised RuntimeError.*boom-7")],
)
def test_an_env_that_fails_while_running_is_named_and_the_result_is_written(where, says, in_tmp):
    main, create = tiny_config(collect=dict(n_sample=4))
    with pytest.raises(EnvError, match=rf"env 'Boom', column 0 \((collect|eval)\).*{says}"):
        run((main, create), env_setting=lambda: Boom(where))
    assert result("run")["stop"] is False and result("run")["eval_value"] is None
    assert_good(in_tmp, checkpoints(in_tmp)[-1])


class BadLater(gymnasium.Wrapper):
    """CartPole whose obs or reward is NaN from the 60th step of the collecting column 1 on."""

    made = 0

    def __init__(self, where):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.where, self.number, self.steps = where, BadLater.made, 0
        BadLater.made += 1

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        self.steps += 1
        if self.number == 1 and self.steps >= 60:
            obs, reward = (obs * np.nan, reward) if self.where == "obs" else (obs, np.nan)
        return obs, reward, *rest


@pytest.mark.parametrize("where", ["obs", "reward"])
def test_nan_from_an_env_is_named_with_column_and_step_and_the_checkpoints_stay_good(where, in_tmp):
    BadLater.made = 0
    with pytest.raises(FloatingPointError, match=rf"{where} of env column 1 is not finite at env step 1(18|20) "):
        run(tiny_config(), env_setting=lambda: BadLater(where))
    assert result("run")["train_iter"] > 0
    for name in checkpoints(in_tmp):
        assert_good(in_tmp, name)


class NaNLoss(DQNPolicy):
    """Its 11th batch holds a reward that is not finite, as a bug of the user's would make it."""

    def _forward_learn(self, data):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 11:
            data["reward"] = data["reward"] * float("nan")
        return super()._forward_learn(data)


def test_nan_loss_is_named_and_no_checkpoint_is_written_after_it(in_tmp):
    POLICY_REGISTRY.register("nan_loss", NaNLoss)
    main, create = tiny_config(learn=dict(learner=dict(hook=dict(save_ckpt_after_iter=5))))
    create["policy"]["type"] = "nan_loss"
    with pytest.raises(FloatingPointError, match=r"the loss is nan at train_iter 10, env step \d+"):
        run((main, create))
    assert checkpoints(in_tmp) == ["ckpt_best.pth.tar", "iteration_10.pth.tar", "iteration_5.pth.tar"]
    for name in checkpoints(in_tmp):
        state = torch.load(in_tmp / "run/ckpt" / name, weights_only=True)["state"]["model"]
        assert all(torch.isfinite(v).all() for v in state.values())
    assert result("run")["train_iter"] == 10
    assert all(line["train_iter"] <= 10 for line in metrics("run"))


def test_observations_and_actions_that_do_not_fit_their_space_are_named():
    class Liar(Count):
        def _see(self):
            return np.zeros(2, np.float32)

    with pytest.raises(EnvError, match=r"env 'Liar', column 0 \((eval|collect)\): reset\(\).*shape"):
        run(env_setting=Liar)


# ---------------------------------------------------------------- checkpoints
def spoil(kind, path):
    data = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "text":
        path.write_text("not a checkpoint")
    elif kind == "foreign":
        torch.save({"model_state": {}}, path)
    elif kind == "missing":
        path.unlink()
    elif kind == "bytes":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes(255 - b for b in data[middle : middle + 200]) + data[middle + 200 :])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("truncated", "damaged or no checkpoint"),
        ("text", "damaged or no checkpoint"),
        ("bytes", "damaged or no checkpoint"),
        ("foreign", "was not written by ding_like"),
        ("missing", "does not exist"),
    ],
)
def test_a_spoilt_checkpoint_is_named_and_no_folder_is_made(kind, says, in_tmp):
    run(max_train_iter=3, exp_name="first")
    path = in_tmp / "first/ckpt/iteration_3.pth.tar"
    spoil(kind, path)
    with pytest.raises(CheckpointError, match=says):
        run(load_path=str(path))
    assert not (in_tmp / "run").exists()


def test_a_checkpoint_of_another_shape_is_named(in_tmp):
    run(max_train_iter=3, exp_name="first")
    path = "first/ckpt/iteration_3.pth.tar"
    with pytest.raises(
        CheckpointError, match=r"of another network: .* has shape \[16, 4\], this model wants \[16, 1\]"
    ):
        run(load_path=path, env_setting=lambda: Count(4))
    with pytest.raises(CheckpointError, match="of another network"):
        run(tiny_config(norm_obs=dict(use_norm=True)), load_path=path)


@HOOK_REGISTRY.register("refuses")
class Refuses(LearnerHook):
    def __init__(self):
        raise ValueError("this hook refuses")


def test_a_full_disk_stops_the_run_by_name_and_keeps_the_checkpoints_of_before(in_tmp, monkeypatch):
    save, calls = torch.save, []

    def fails_later(content, path):
        calls.append(1)
        if len(calls) > 3:  # best, the first resume point, iteration 5
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(content, path)

    monkeypatch.setattr(torch, "save", fails_later)
    main, create = tiny_config(learn=dict(learner=dict(hook=dict(save_ckpt_after_iter=5))))
    with pytest.raises(CheckpointError, match=r"iteration_10\.pth\.tar cannot be written: .*No space left"):
        run((main, create))
    assert checkpoints(in_tmp) == ["ckpt_best.pth.tar", "iteration_5.pth.tar"]
    for name in checkpoints(in_tmp):
        assert_good(in_tmp, name)
    assert result("run")["train_iter"] == 10


# ---------------------------------------------------------------- Ctrl-C
def test_an_interrupt_inside_the_program_leaves_checkpoint_and_result(in_tmp):
    class Interrupts(Count):
        def step(self, action):
            if self.resets > 20:
                raise KeyboardInterrupt
            return super().step(action)

    with pytest.raises(KeyboardInterrupt):
        run(env_setting=lambda: Interrupts(4), max_train_iter=10**6)
    got = result("run")
    assert got["train_iter"] > 0 and got["stop"] is False
    counters = load_checkpoint(f"run/ckpt/iteration_{got['train_iter']}.pth.tar")["counters"]
    assert counters["train_iter"] == got["train_iter"]


@pytest.mark.system
@pytest.mark.parametrize("how", ["ding", "python"])
def test_ctrl_c_leaves_checkpoint_and_result_and_a_code_that_says_so(how, in_tmp):
    main, create = tiny_config()
    (in_tmp / "c.py").write_text(
        f"main_config = {json.loads(json.dumps(main))!r}\ncreate_config = {json.loads(json.dumps(create))!r}\n"
        "if __name__ == '__main__':\n"
        "    from ding_like.entry import serial_pipeline\n"
        "    serial_pipeline((main_config, create_config), seed=0)\n"
    )
    argv = ["-m", "ding_like.entry.cli", "-m", "serial", "-c", "c.py"] if how == "ding" else ["c.py"]
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""}
    process = subprocess.Popen(
        [sys.executable, *argv], cwd=in_tmp, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log, deadline = in_tmp / "run/metrics.jsonl", time.monotonic() + 40
    while not (log.exists() and log.read_text().count('"learner"') > 2):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in ((130,) if how == "ding" else (130, -signal.SIGINT)), err
    got = result(in_tmp / "run")
    assert got["train_iter"] > 0 and got["stop"] is False
    assert_good(in_tmp, f"iteration_{got['train_iter']}.pth.tar")


@pytest.mark.system
def test_an_env_that_fails_ends_the_command_with_an_error_and_keeps_the_checkpoint(in_tmp):
    (in_tmp / "boom_env.py").write_text(
        "import gymnasium\n"
        "from ding_like.utils import ENV_REGISTRY\n"
        "@ENV_REGISTRY.register('boom')\n"
        "class BoomEnv(gymnasium.Wrapper):\n"
        "    steps = 0\n"
        "    def __init__(self):\n"
        "        super().__init__(gymnasium.make('CartPole-v1'))\n"
        "    def step(self, action):\n"
        "        BoomEnv.steps += 1\n"
        "        if BoomEnv.steps == 400:\n"
        "            raise RuntimeError('boom-7')\n"
        "        return self.env.step(action)\n"
    )
    main, create = tiny_config()
    create["env"] = dict(type="boom", import_names=["boom_env"])
    (in_tmp / "c.py").write_text(f"main_config = {json.loads(json.dumps(main))!r}\ncreate_config = {create!r}\n")
    done = ding("-m", "serial", "-c", "c.py", cwd=in_tmp)
    assert done.returncode == 1 and "Error: env 'CartPole-v1', column" in done.stderr and "boom-7" in done.stderr
    assert_good(in_tmp, f"iteration_{result('run')['train_iter']}.pth.tar")


def test_spaces_the_policy_cannot_serve_are_named():
    env = AnySpace(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
    with pytest.raises(ConfigError, match="serves Discrete actions"):
        run(env_setting=env)
