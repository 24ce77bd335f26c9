"""Runs in processes of their own, with workers: signals, kills of the master, what scripts register themselves."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ding_like.config.yaml_io import dump_yaml
from ding_like.entry.resume import POINT
from tests.distributed.parts import is_gone, wait_until
from tests.entry.resuming import assert_equal_runs
from tests.helpers import ROOT, ding, python, result, single, tiny_config

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("in_tmp")]
MODES = {
    "local": ("parallel", "local"),
    "server": ("parallel", "server"),
    "alternating": ("parallel", "alternating"),
    "async": ("async", "local"),
}
KILLS = int(os.environ.get("DING_KILLS", "2"))


def write_config(sampler, every=0.1, **policy):
    made = single(tiny_config("run", nstep=3, **policy))
    made["resume"] = {"every": every, "share": 1.0}
    made["policy"]["collect"]["collector"] = {"sampler": sampler, "num_workers": 2}
    Path("c.yaml").write_text(dump_yaml(json.loads(json.dumps(made))))


def start(*argv, **kwargs):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ding_like.entry.cli", *argv]
    pipes = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=env, start_new_session=True, **pipes, **kwargs)


def session_of(run):
    """Every process of a run's session that is alive, the run itself too."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == run.pid and fields[0] != "Z":
            found.append(int(pid))
    return found


def wait_for_newer_point(run, name="killed"):
    point = Path(name) / POINT
    before = point.stat().st_mtime_ns if point.exists() else 0
    while not point.exists() or point.stat().st_mtime_ns == before:
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
def test_children_of_a_killed_run_end_and_it_is_resumed_exactly(mode):
    mode, sampler = MODES[mode]
    write_config(sampler)
    argv = ["-m", mode, "-c", "c.yaml", "-s", "3", "--train-iter", "300"]
    rng, resume = random.Random(mode + sampler), []
    for _ in range(KILLS):
        run = start(*argv, "--exp-name", "killed", *resume)
        wait_for_newer_point(run)
        time.sleep(rng.uniform(0, 0.3))
        family = session_of(run)
        assert len(family) >= 4  # itself, the fork server, two workers
        held = [pid for pid in family if pid != run.pid and holds(pid, "killed")]
        assert not held, "a worker holds the run's folder"
        run.kill()
        run.communicate()
        wait_until(lambda run=run: not session_of(run), 5)
        resume = ["--resume"]
    done = ding(*argv, "--exp-name", "killed", "--resume", cwd=".", timeout=120)
    assert done.returncode == 0, done.stderr
    assert ding(*argv, "--exp-name", "straight", cwd=".", timeout=120).returncode == 0
    assert_equal_runs(Path("straight"), Path("killed"))


def holds(pid, name):
    """Whether a process has something open in a folder."""
    folder, found = Path(f"/proc/{pid}/fd"), []
    for fd in os.listdir(folder):
        try:
            found.append(os.readlink(folder / fd))
        except FileNotFoundError:
            continue
    return any(Path(name).absolute() in [Path(path), *Path(path).parents] for path in found)


TERM, INT = (signal.SIGTERM, 143), (signal.SIGINT, 130)


@pytest.mark.parametrize(
    ("mode", "sent", "whom"),
    [
        ("local", TERM, "all its processes"),
        ("local", INT, "the run"),
        ("server", TERM, "all its processes"),
        ("alternating", INT, "all its processes"),
        ("async", TERM, "the run"),
        ("async", INT, "all its processes"),
    ],
)
def test_a_run_that_is_asked_to_stop_finishes_its_round_ends_its_workers_and_goes_on_exactly(mode, sent, whom):
    (mode, sampler), (signum, code) = MODES[mode], sent
    write_config(sampler, every=1000.0)
    argv = ["-m", mode, "-c", "c.yaml", "-s", "3", "--train-iter", "250"]
    run = start(*argv, "--exp-name", "killed")
    wait_for_newer_point(run)
    time.sleep(0.2)
    if whom == "the run":
        run.send_signal(signum)
    else:
        os.killpg(run.pid, signum)
    told = run.communicate(timeout=20)[1]
    assert run.returncode == code, told
    assert "Traceback" not in told, told
    wait_until(lambda: not session_of(run), 5)
    assert 0 < result("killed")["train_iter"] < 250 and f"ding -m {mode} -c" in told
    done = ding("-m", mode, "-c", "killed/total_config.yaml", "--resume", "--train-iter", "250", cwd=".")
    assert done.returncode == 0, done.stderr
    assert ding(*argv, "--exp-name", "straight", cwd=".").returncode == 0
    assert_equal_runs(Path("straight"), Path("killed"))


@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_an_env_ends_the_run_with_its_traceback_and_no_process(mode):
    mode, sampler = MODES[mode]
    Path("boom.py").write_text(
        "from ding_like.entry import serial_pipeline\n"
        "from tests.envs.toys import Boom, Count\n"
        "def make(cfg):\n"
        "    return Boom() if cfg['boom'] else Count()\n"
        "from tests.helpers import single, tiny_config\n"
        "made = single(tiny_config('run'))\n"
        f"made['policy']['collect']['collector'] = dict(sampler='{sampler}', num_workers=2)\n"
        "setting = make, [dict(boom=False), dict(boom=True)], [dict(boom=False)] * 2\n"
        f"serial_pipeline(made, env_setting=setting, max_train_iter=400, mode='{mode}')\n"
    )
    run = subprocess.Popen(
        [sys.executable, "boom.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    told = run.communicate(timeout=60)[1]
    assert run.returncode == 1 and "boom-7" in told and "column 1" in told, told
    assert 'raise RuntimeError("boom-7")' in told and "worker" in told
    wait_until(lambda: not session_of(run), 5)


SCRIPT = """
import gymnasium, numpy as np, torch
from gymnasium import spaces
from ding_like.entry import serial_pipeline
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils import ENV_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY
from ding_like.model.template.q_learning import DQN

class Walk(gymnasium.Env):
    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.float32([self.t, action]), 1.0, self.t == 5, False, {}

@MODEL_REGISTRY.register("mine")
class Mine(DQN):
    def forward(self, x):
        return super().forward(x * SCALE)

SCALE = 0.5

@POLICY_REGISTRY.register("own")
class Own(DQNPolicy):
    def default_model(self):
        return "mine", []
    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        row["reward"] = row["reward"] * SCALE
        return row

%s
main_config = dict(
    exp_name="run",
    env=dict(collector_env_num=4, evaluator_env_num=1, n_evaluator_episode=1),
    policy=dict(learn=dict(batch_size=8), collect=dict(n_sample=8, collector=dict(sampler="%s", num_workers=2))),
)
create_config = dict(env=dict(type="%s"), env_manager=dict(type="base"), policy=dict(type="own"))
"""


@pytest.mark.parametrize(
    ("place", "mode", "how"),
    [
        ("script", "local", "registered"),
        ("script", "server", "gymnasium"),
        ("script", "async", "gymnasium"),
        ("config file", "local", "gymnasium"),
        ("config file", "alternating", "registered"),
        ("config file", "async", "registered"),
    ],
)
def test_what_a_script_or_config_file_registers_itself_works_in_workers(place, mode, how):
    """No `if __name__ == '__main__'` either."""
    mode, sampler = MODES[mode]
    line = 'ENV_REGISTRY.register("walk", Walk)' if how == "registered" else 'gymnasium.register("Walk-v0", Walk)'
    text = SCRIPT % (line, sampler, "walk" if how == "registered" else "Walk-v0")
    if place == "script":
        text += f"serial_pipeline((main_config, create_config), seed=0, max_train_iter=6, mode='{mode}')\n"
        Path("main.py").write_text(text)
        done = python("main.py", cwd=".")
    else:
        Path("conf.py").write_text(text)
        done = ding("-m", mode, "-c", "conf.py", "--train-iter", "6", cwd=".")
    assert done.returncode == 0, done.stderr
    assert result("run")["train_iter"] == 6


def test_a_worker_that_the_run_lost_is_gone_when_it_goes_on():
    """SIGKILL of one worker under `restart`, from outside."""
    write_config("local", every=1.0)
    argv = ["-m", "parallel", "-c", "c.yaml", "--train-iter", "900", "--exp-name", "killed"]
    run = start(*argv, "--set", "policy.collect.collector.on_worker_death=restart")
    wait_for_newer_point(run)
    workers = [pid for pid in session_of(run) if parent(pid) not in (run.pid, os.getpid())]
    os.kill(workers[0], signal.SIGKILL)
    told = run.communicate(timeout=60)[1]
    assert run.returncode == 0 and "it is restarted (1 of at most 20)" in told, told
    assert is_gone(workers[0])
    wait_until(lambda: not session_of(run), 5)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
