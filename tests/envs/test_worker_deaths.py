"""Whatever process dies when: it is said or mended, nothing hangs, nothing is left behind."""

import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ding_like.envs import EnvError
from tests.envs.toys import Count
from tests.envs.worker_helpers import subprocesses
from tests.envs.worker_toys import Diary, Fate, Slow
from tests.helpers import ROOT, python

pytestmark = pytest.mark.system
LONG = functools.partial(Count, 10_000)


def pids(manager):
    return [worker.child.pid for worker in manager._crew.workers]


def gone(pid, within=5.0):
    until = time.monotonic() + within
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
    return not os.path.exists(f"/proc/{pid}")


def play(manager, rows):
    """Step all columns; for every row the idle and the lost columns."""
    told = []
    for _ in range(rows):
        manager.step(np.zeros(manager.env_num, int))
        told.append((manager.idle.tolist(), manager.lost.tolist()))
    return told


# ------------------------------------------------------------------ raise
@pytest.mark.parametrize(
    "fate, words",
    [
        ("kill", "was killed by SIGKILL (exit code -9)"),
        ("exit", "exited with code 7"),
        ("hang", "timed out after {} s"),
        ("stop", "timed out after {} s"),
    ],
)
@pytest.mark.parametrize("where, limit", [("reset", 3), ("step", 0.5)])
def test_a_death_is_raised_with_worker_columns_and_how(fate, words, where, limit, monkeypatch):
    """Case B46."""
    monkeypatch.setattr("ding_like.utils.workers.PATIENCE", 3)
    began = time.monotonic()
    with pytest.raises(EnvError) as error:
        manager = subprocesses(LONG, LONG, functools.partial(Fate, fate, 5, where), workers=2, step_timeout=0.5)
        children = pids(manager)
        manager.launch(0)
        play(manager, 10)
    said = str(error.value)
    assert all(word in said for word in ["env worker 1 (", "column 2", "on_worker_death to 'restart' or 'shrink'"]), (
        said
    )
    assert words.format(limit) in said
    assert time.monotonic() - began < 10 and all(map(gone, children))
    with pytest.raises(EnvError, match="is closed"):
        manager.step(np.zeros(3, int))
    manager.close()


@pytest.mark.parametrize("fate", ["exit", "kill"])
def test_a_death_while_envs_are_made_is_raised(fate):
    with pytest.raises(EnvError, match=r"env worker 1 .*, making its envs"):
        subprocesses(LONG, functools.partial(Fate, fate, 0, "init"), on_worker_death="restart")


def test_an_evaluation_needs_whole_episodes_so_a_death_is_raised(made):
    manager = made(LONG, LONG, auto_reset=False, on_worker_death="restart")
    assert not manager.may_idle
    manager.launch(0)
    os.kill(pids(manager)[0], signal.SIGKILL)
    with pytest.raises(EnvError, match="env worker 0"):
        play(manager, 2)


# ------------------------------------------------------------------ restart
def restarted(made, rows, **cfg):
    """Four columns of two workers, the second of which is killed before row 3."""
    manager = made(*[LONG] * 4, on_worker_death="restart", **cfg)
    manager.launch(0)
    first = play(manager, 3)
    os.kill(pids(manager)[1], signal.SIGKILL)
    return manager, first + play(manager, rows)


def test_columns_of_a_killed_worker_are_idle_until_it_is_back(made):
    manager, told = restarted(made, 1)
    assert manager.may_idle and told == [([], [])] * 3 + [([2, 3], [2, 3])]
    step, rows = None, 0
    while len(manager.idle):
        ready = manager.ready_obs
        step = manager.step(np.zeros(4, int))
        rows += 1
        assert manager.lost.tolist() == []
        if len(manager.idle):
            assert step.obs.tolist()[2:] == [[3.0], [3.0]]  # the last that is known
            assert step.reward.tolist() == [1, 1, 0, 0] and not step.done.any()
            assert list(step.info)[2:] == [{}, {}]
        time.sleep(0.001)
    assert ready.tolist()[2:] == [[0.0], [0.0]]  # known one row before: what the policy acted on
    assert step.obs.tolist() == [[4.0 + rows]] * 2 + [[1.0]] * 2
    assert manager.take_finished() == []


def test_the_others_go_on_while_a_worker_is_started(made, tmp_path):
    manager = made(LONG, functools.partial(Slow, tmp_path), on_worker_death="restart")
    manager.launch(0)
    os.kill(pids(manager)[1], signal.SIGKILL)
    assert play(manager, 20) == [([1], [1])] + [([1], [])] * 19
    assert manager.ready_obs[0].tolist() == [20.0]
    (tmp_path / "go").touch()
    while len(manager.idle):
        play(manager, 1)
    assert manager.ready_obs[1].tolist() == [1.0]


def test_a_new_worker_begins_episodes_that_were_not_there_before(made):
    manager = made(*[Diary] * 4, on_worker_death="restart")
    seen = [manager.launch(0)]
    for _ in range(2):
        os.kill(pids(manager)[1], signal.SIGKILL)
        play(manager, 1)
        while len(manager.idle):
            seen.append(manager.ready_obs[2:])
            play(manager, 1)
    starts = {tuple(row) for obs in seen for row in obs.tolist()}
    assert len(starts) >= 8


def test_a_row_that_is_lost_shows_what_was_acted_on(made):
    manager = made(*[Diary] * 4, on_worker_death="restart")
    manager.launch(0)
    play(manager, 5)
    before = manager.ready_obs
    os.kill(pids(manager)[1], signal.SIGKILL)
    step = manager.step(np.zeros(4, int))
    assert step.obs[2:].tobytes() == before[2:].tobytes() and manager.lost.tolist() == [2, 3]


def test_all_workers_dead_at_once_are_waited_for(made):
    manager = made(*[LONG] * 2, on_worker_death="restart")
    manager.launch(0)
    for pid in pids(manager):
        os.kill(pid, signal.SIGKILL)
    assert play(manager, 1) == [([0, 1], [0, 1])]
    assert len(play(manager, 1)[0][0]) < 2


def test_a_group_goes_on_while_the_other_is_started(made):
    manager = made(*[LONG] * 4, on_worker_death="restart")
    manager.launch(0)
    groups = manager.groups(2)
    os.kill(pids(manager)[1], signal.SIGKILL)
    idle, turn, until = {0: 0, 1: 0}, 0, time.monotonic() + 20
    while time.monotonic() < until:
        for columns in groups:
            manager.send(np.zeros(2, int), columns)
        for g, columns in enumerate(groups):
            step = manager.recv(columns)
            assert set(manager.idle.tolist()) <= set(columns.tolist())
            idle[g] += len(manager.idle) > 0
            if g == 0:
                assert step.obs.tolist() == [[turn + 1.0]] * 2
        turn += 1
        if g == 1 and not len(manager.idle):
            break
    assert idle[0] == 0 and 0 < idle[1] < turn
    assert manager.ready(groups[1]).tolist() == [[1.0], [1.0]]


def test_a_worker_that_always_dies_is_raised_after_max_restarts(made):
    manager = made(LONG, functools.partial(Fate, "exit", 0, "step"), on_worker_death="restart", max_restarts=3)
    manager.launch(0)
    with pytest.raises(EnvError, match=r"env worker 1 .*exited with code 7, after 3 restarts \(collector.max"):
        play(manager, 100_000)


def test_a_death_in_launch_is_mended_and_one_in_state_is_told_by_the_next_step(made, tmp_path):
    fns = [LONG, functools.partial(Fate, "kill", 0, "reset", str(tmp_path / "once"))]
    manager = made(*fns, on_worker_death="restart")
    assert manager.launch(0).tolist() == [[0.0], [0.0]]
    os.kill(pids(manager)[0], signal.SIGKILL)
    state = manager.state_dict()
    assert "are gone" in state["not_exact"] and state["envs"] is None
    assert play(manager, 1) == [([0], [0])]


def test_an_error_of_an_env_is_never_mended(made, tmp_path):
    manager = made(LONG, functools.partial(Fate, "raise", 2), on_worker_death="restart")
    manager.launch(0)
    with pytest.raises(EnvError, match="boom-7"):
        play(manager, 5)


# ------------------------------------------------------------------ shrink
def test_columns_of_dead_workers_stay_idle_until_none_is_left(made):
    manager = made(*[LONG] * 3, workers=3, on_worker_death="shrink")
    manager.launch(0)
    os.kill(pids(manager)[1], signal.SIGKILL)
    assert play(manager, 3) == [([1], [1]), ([1], []), ([1], [])]
    os.kill(pids(manager)[0], signal.SIGKILL)
    assert play(manager, 2) == [([0, 1], [0]), ([0, 1], [])]
    assert manager.step(np.zeros(3, int)).obs[2].tolist() == [6.0]
    assert "are gone" in manager.state_dict()["not_exact"]
    os.kill(pids(manager)[2], signal.SIGKILL)
    with pytest.raises(EnvError, match="it was the last worker"):
        play(manager, 2)


# ------------------------------------------------------------------ at random
@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
@pytest.mark.parametrize("policy", ["raise", "restart", "shrink"])
def test_a_signal_at_a_random_time(made, policy, sent, trial):
    rng = random.Random(100 * trial + int(sent))
    manager = made(*[Diary] * 6, workers=3, on_worker_death=policy, step_timeout=0.3)
    manager.launch(trial)
    hit = []
    old = pids(manager)
    sender = threading.Timer(rng.random() * 0.1, os.kill, (rng.choice(old), sent))
    sender.start()
    try:
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            step = manager.step(np.zeros(6, int))
            assert np.isfinite(step.obs).all() and np.isfinite(manager.ready_obs).all()
            assert not step.done[manager.idle].any() and not step.reward[manager.idle].any()
            hit += manager.lost.tolist()
        assert policy != "raise" and len(hit) >= 2
    except EnvError as err:
        assert policy == "raise" and "env worker" in str(err)
    sender.join()
    manager.close()
    assert all(map(gone, old + pids(manager)))


SCRIPT = """
import functools, os, signal, sys, time
import numpy as np
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager
from tests.envs.worker_helpers import subprocesses
from tests.envs.worker_toys import Fate

if __name__ == "__main__":
    fates = [functools.partial(Fate, fate, 3) for fate in sys.argv[1:]]
    manager = SubprocessEnvManager(fates, {"num_workers": len(fates)})
    print(*(worker.child.pid for worker in manager._crew.workers), flush=True)
    manager.launch(0)
    while True:
        manager.step(np.zeros(len(fates), int))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(tmp_path, sent):
    """A stopped one and one that is stuck in a library neither."""
    (tmp_path / "script.py").write_text(SCRIPT)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "script.py"), "none", "stop", "spin"]
    parent = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children = list(map(int, parent.stdout.readline().split()))
    assert len(children) == 3
    time.sleep(0.3)
    parent.send_signal(sent)
    parent.communicate(timeout=15)
    assert all(map(gone, children))


OPEN_SCRIPT = """
import os, sys
import gymnasium
import torch
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager
from ding_like.envs.make import make_env_fns
from ding_like.utils import ENV_REGISTRY
from tests.envs.worker_toys import Witness

print("read once")

@ENV_REGISTRY.register("here")
class Here(Witness):
    pass

gymnasium.register("Here-v0", entry_point=Here)
fns = [make_env_fns({"type": kind}, 1)[0] for kind in ("here", "Here-v0")]
manager = SubprocessEnvManager([*fns, lambda: Here(3)], {"num_workers": 3})
manager.launch(0)
infos = manager.step([0, 0, 0]).info
print(len({os.getpid(), *(info["pid"] for info in infos)}), [info["torch"] for info in infos])
print(max(info["mib"] for info in infos) < 100)
"""


def test_envs_of_a_script_run_in_workers_that_are_small_and_have_no_torch(in_tmp):
    """The script has no guard and does not close the manager."""
    (in_tmp / "script.py").write_text(OPEN_SCRIPT)
    done = python("script.py", cwd=in_tmp)
    assert (done.stdout, done.stderr) == ("read once\n4 [False, False, False]\nTrue\n", "")
