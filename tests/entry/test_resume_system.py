"""Resume after SIGKILL, in processes of their own, from the command line."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ding_like.config import deep_merge_defaults
from ding_like.config.yaml_io import dump_yaml
from ding_like.entry.resume import POINT
from tests.entry.resuming import assert_equal_runs
from tests.helpers import ROOT, ding, python, result, single, tiny_config

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("in_tmp")]


def write_config(**policy):
    """The file of a run that takes some seconds, with a resume point every 100 ms."""
    made = single(tiny_config("run", **policy))
    made["resume"] = {"every": 0.1, "share": 1.0}
    Path("c.yaml").write_text(dump_yaml(json.loads(json.dumps(made))))


def start(*argv):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ding_like.entry.cli", *argv]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def killed_and_resumed(argv, kills, rng, longest=0.3):
    """Run `argv` and kill it `kills` times, up to `longest` seconds after its first new resume point."""
    resume = []
    for _ in range(kills):
        run = start(*argv, *resume)
        wait_for_newer_point(run)
        time.sleep(rng.uniform(0, longest))
        run.send_signal(signal.SIGKILL)
        run.communicate()
        resume = ["--resume"]
    done = start(*argv, *resume)
    told = done.communicate(timeout=600)[1]
    assert done.returncode == 0, told


def wait_for_newer_point(run):
    point = Path("killed") / POINT
    before = point.stat().st_mtime_ns if point.exists() else 0
    while not point.exists() or point.stat().st_mtime_ns == before:
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.01)


DQN = dict(
    nstep=3,
    priority=True,
    norm_obs={"use_norm": True},
    learn={"lr_schedule": {"type": "linear", "decay": 3000}, "update_per_collect": 4},
    other={"replay_buffer": {"replay_buffer_size": 2000}},
)


def test_a_run_killed_at_random_times_ends_as_one_never_stopped():
    write_config(**DQN)
    argv = ["-m", "serial", "-c", "c.yaml", "-s", "3", "--train-iter", "600"]
    assert ding(*argv, "--exp-name", "straight", cwd=".").returncode == 0
    killed_and_resumed([*argv, "--exp-name", "killed"], kills=2, rng=random.Random(0))
    assert_equal_runs(Path("straight"), Path("killed"))


def test_a_kill_while_a_point_is_written_leaves_the_former_one():
    write_config()
    Path("die.py").write_text(
        "import os, signal, torch\n"
        "real, count = torch.save, 0\n"
        "def save(content, path):\n"
        "    global count\n"
        "    if path.name.startswith('point'):\n"
        "        count += 1\n"
        "        if count == 5:\n"
        "            real(content, path)\n"
        "            os.truncate(path, os.path.getsize(path) // 2)\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(content, path)\n"
        "torch.save = save\n"
        "from ding_like.entry.cli import main\n"
        "main('-m serial -c c.yaml --train-iter 300 --exp-name killed --set resume.every=0'.split())\n"
    )
    assert python("die.py", cwd=".").returncode == -signal.SIGKILL
    assert Path("killed", "ckpt", "resume", "point.pth.tar.part").exists()
    argv = ["-m", "serial", "-c", "c.yaml", "--train-iter", "300"]
    done = ding(*argv, "--exp-name", "killed", "--resume", cwd=".")
    assert done.returncode == 0, done.stderr
    assert ding(*argv, "--exp-name", "straight", cwd=".").returncode == 0
    assert_equal_runs(Path("straight"), Path("killed"))
    assert not list(Path("killed").rglob("*.part"))


PPO = dict(
    type="ppo", norm_obs={"use_norm": True}, learn={"batch_size": 32, "value_norm": True}, collect={"n_sample": 64}
)


@pytest.mark.long
@pytest.mark.parametrize("policy", [DQN, PPO], ids=["dqn", "ppo"])
def test_twenty_kills(policy):
    """By hand; `pytest -m long tests/entry/test_resume_system.py`."""
    made = single(tiny_config("run"))
    if policy is PPO:
        made["policy"] = dict(PPO, eval=made["policy"]["eval"])
    else:
        made["policy"] = deep_merge_defaults(made["policy"], policy)
    made["resume"] = {"every": 0.1, "share": 1.0}
    Path("c.yaml").write_text(dump_yaml(json.loads(json.dumps(made))))
    argv = ["-m", "serial", "-c", "c.yaml", "-s", "3", "--env-step", "40000"]
    assert ding(*argv, "--exp-name", "straight", cwd=".", timeout=600).returncode == 0
    seconds = result("straight")["wall_time_s"]
    killed_and_resumed([*argv, "--exp-name", "killed"], kills=20, rng=random.Random(1), longest=seconds / 12)
    assert_equal_runs(Path("straight"), Path("killed"))


def test_of_several_seeds_those_without_a_run_start_and_the_others_go_on():
    write_config()
    argv = ["-m", "serial", "-c", "c.yaml", "--exp-name", "many"]
    assert ding(*argv[:-1], "many/seed_1", "-s", "1", "--train-iter", "8", cwd=".").returncode == 0
    done = ding(*argv, "-s", "1", "-s", "2", "--train-iter", "12", "--resume", cwd=".")
    assert done.returncode == 0, done.stderr
    assert "many/seed_2: there is no run to resume, so it starts" in done.stderr
    assert [result(f"many/seed_{n}")["train_iter"] for n in (1, 2)] == [12, 12]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_asked_to_stop_finishes_its_round_and_goes_on_exactly(signum, code):
    write_config()
    text = Path("c.yaml").read_text().replace("every: 0.1", "every: 1000.0")
    Path("c.yaml").write_text(text)
    argv = ["-m", "serial", "-c", "c.yaml", "-s", "3", "--train-iter", "500"]
    run = start(*argv, "--exp-name", "killed")
    wait_for_newer_point(run)
    time.sleep(0.5)
    run.send_signal(signum)
    told = run.communicate(timeout=20)[1]
    assert run.returncode == code, told
    stopped = result("killed")["train_iter"]
    assert 0 < stopped < 500 and "Go on with: ding -m serial -c killed/total_config.yaml --resume" in told
    done = ding("-m", "serial", "--exp-name", "killed", "--resume", "--train-iter", "500", cwd=".")
    assert done.returncode == 0 and f"gradient step {stopped:,}" in done.stderr, done.stderr
    assert ding(*argv, "--exp-name", "straight", cwd=".").returncode == 0
    assert_equal_runs(Path("straight"), Path("killed"))
