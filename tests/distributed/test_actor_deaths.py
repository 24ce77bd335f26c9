"""Actors without a barrier that are killed, stopped or end themselves: only the block under way is lost."""

import functools
import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from ding_like.config import CfgDict
from ding_like.config.yaml_io import dump_yaml
from ding_like.distributed.group import WorkerError
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.impala import IMPALAPolicy
from ding_like.worker import Replay
from tests.distributed.parts import (
    Collecting,
    Elementwise,
    Trace,
    is_gone,
    open_files,
    policy_maker,
    processes,
    truth,
    wait_until,
    within,
)
from tests.distributed.test_deaths import KILLS, KINDS, deaths, kill_one
from tests.distributed.test_processes import session_of, start, wait_for_newer_point
from tests.envs.toys import Count
from tests.envs.worker_toys import Fate
from tests.helpers import ding, result, single, tiny_config

ONE = dict(obs_shape=1, action_shape=2)


def check_segments(run, _):
    """Every slot shows the true next observation of the slot before, unless that one terminated."""
    count = 0
    for items in run.items:
        for obs, mask, reward, terminated in zip(*(items[name] for name in ("obs", "mask", "reward", "terminated"))):
            for slot in np.flatnonzero(mask):
                episode, t = int(obs[slot, 0]), int(obs[slot, 1])
                assert (reward[slot], terminated[slot]) == truth(episode, t)[:2]
                assert terminated[slot] or obs[slot + 1, :2].tolist() == [episode, t + 1]
                count += 1
    assert count > 100


FREE = {name: KINDS[name] for name in ("3-step", "windows")}
FREE["segments"] = policy_maker(IMPALAPolicy, Elementwise, learn_unroll_len=5), check_segments, 0
CASES = [(kind, signal.SIGKILL, "restart") for kind in FREE]
CASES += [("segments", signal.SIGSTOP, "restart"), ("3-step", signal.SIGKILL, "shrink")]
CASES += [("segments", signal.SIGSTOP, "shrink")]


@pytest.mark.system
@pytest.mark.parametrize(("kind", "signum", "death"), CASES)
def test_what_is_kept_after_deaths_at_random_times_is_true(kind, signum, death):
    make, check, most = FREE[kind]
    kills = max(1, KILLS // 2) if death == "restart" else 2
    limit = {"step_timeout": 1.0} if signum == signal.SIGSTOP else {}
    store = Replay(CfgDict({**Replay.config, "replay_buffer_size": 3000})) if most else None
    settings = dict(on_worker_death=death, max_restarts=100, **limit)
    with within(60 + 10 * kills), Collecting("free", 3, make, [Trace] * 6, 30, 3, store, **settings) as run:
        run.collector.start()
        rng = random.Random(f"{kind}{signum}{death}")
        for _ in range(kills):
            kill_one(run, rng, signum, False)
        assert deaths(run) >= kills
        rows = sum(block["reward"][fresh:].size for block, (_, fresh, _) in zip(run.blocks, run.told))
        assert run.collector.envstep == rows
        check(run, most)


@pytest.mark.system
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
def test_a_death_is_raised_with_its_name_and_nothing_is_left(signum):
    make, *_ = FREE["segments"]
    with Collecting("free", 1, make, [Trace]):  # starts the fork server, which stays
        pass
    files = open_files()
    limit = {"step_timeout": 1.0} if signum == signal.SIGSTOP else {}
    with within(30), Collecting("free", 3, make, [Trace] * 6, 30, **limit) as run:
        run.collect()
        pids = processes(run.manager)
        with pytest.raises(WorkerError, match=r"worker \d \(.*columns \d") as caught:
            kill_one(run, random.Random(0), signum, False)
        assert ("SIGKILL" if signum == signal.SIGKILL else "time") in str(caught.value)
    wait_until(lambda: all(is_gone(pid) for pid in pids))
    del run, caught
    assert open_files() == files


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("death", ["restart", "shrink"])
def test_only_the_block_under_way_is_lost(nstep, death, tmp_path):
    """The worker ends itself in its 14th step, with blocks of 4 rows after a first one of 3 + nstep: what it handed
    over is complete, the last steps end truncated in the observation that they led to.
    """
    fns = [Count, functools.partial(Fate, "kill", 13, "step", str(tmp_path / "once"))]
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 1), nstep=nstep, discount_factor=0.5, **ONE)
    handed = {1: 12, 3: 10}[nstep]
    with within(60), Collecting("free", 2, make, fns, n_sample=8, on_worker_death=death) as run:
        while deaths(run) == 0 or (death == "restart" and sum(first for first, *_ in run.told) < 8):
            run.collect()
        run.collect(3)
        rows = sum(block["reward"][fresh:].size for block, (_, fresh, _) in zip(run.blocks, run.told))
        assert run.collector.envstep == rows
    mine = [items for items, (first, *_) in zip(run.items, run.told) if first == 1]
    names = ("obs", "next_obs", "discount")
    found = [(int(obs[0]), int(later[0]), d) for items in mine for obs, later, d in zip(*(items[n] for n in names))]
    later = [min(t + nstep, handed) for t in range(handed)]
    assert found[:handed] == [(t, after, 0.5 ** (after - t)) for t, after in enumerate(later)]
    anew = found[handed:]
    assert [t for t, *_ in anew] == list(range(len(anew))) and bool(anew) == (death == "restart")


@pytest.mark.system
@pytest.mark.usefixtures("in_tmp")
def test_a_run_that_is_interrupted_leaves_no_process_and_goes_on():
    made = single(tiny_config("run"))
    eval_ = dict(evaluator=dict(eval_freq=10**6))
    section = dict(type="impala", learn_unroll_len=5, learn=dict(batch_size=4), eval=eval_)
    collect = dict(n_sample=4, collector=dict(num_workers=2))
    made |= {"policy": {**section, "collect": collect}, "resume": {"every": 0.1, "share": 1.0}}
    Path("c.yaml").write_text(dump_yaml(json.loads(json.dumps(made))))
    argv = ["-m", "async", "-c", "c.yaml", "--exp-name", "killed", "--train-iter"]
    run = start(*argv, "100000")
    wait_for_newer_point(run)
    os.killpg(run.pid, signal.SIGINT)
    told = run.communicate(timeout=20)[1]
    assert run.returncode == 130 and "Traceback" not in told, told
    wait_until(lambda: not session_of(run), 5)
    reached = result("killed")["train_iter"]
    done = ding(*argv, str(reached + 5), "--resume", cwd=".")
    assert done.returncode == 0 and result("killed")["train_iter"] == reached + 5, done.stderr


def test_an_error_of_an_env_is_raised_with_its_traceback():
    fns = [Count, functools.partial(Fate, "raise", 9, "step")]
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 1), **ONE)
    with pytest.raises(Exception, match=r"column 1 .*boom-7") as caught, Collecting("free", 2, make, fns, 8) as run:
        run.collect(20)
    assert "in sampler worker 1 (env columns 1 to 1)" in caught.value.__notes__
