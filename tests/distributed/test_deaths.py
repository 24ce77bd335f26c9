"""Workers killed or stopped at random times: what is kept is true, nothing hangs, nothing is left behind.

`DING_KILLS=50 pytest -m system tests/distributed/test_deaths.py` kills so many in every mode.
"""

import functools
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

from ding_like.config import CfgDict
from ding_like.distributed.group import WorkerError
from ding_like.envs import EnvError
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.worker import Replay
from tests.distributed.parts import (
    Collecting,
    Elementwise,
    Frames,
    Leaky,
    Trace,
    crew_of,
    is_gone,
    open_files,
    policy_maker,
    processes,
    stack,
    truth,
    wait_until,
    within,
)

pytestmark = pytest.mark.system
KILLS = int(os.environ.get("DING_KILLS", "3"))
GAMMA = 0.9
MODES = {"local": ("local", False), "async": ("local", True), "server": ("server", False)}
MODES["alternating"] = ("alternating", False)


class Whole(DQNPolicy):
    """Keeps the trajectories that it gets."""

    per_column_trajectory = True

    def _get_train_sample(self, data):
        self.seen = [*getattr(self, "seen", []), data]
        return data


# ---------------------------------------------------------------- what is true
def check_steps(obs, next_obs, reward, discount, most):
    """n-step items, each by itself."""
    for (episode, t, _), (later, after, _), total, ahead in zip(obs, next_obs, reward, discount):
        assert episode == later > 0 and 1 <= after - t <= most, "an item leads into another episode, or to nowhere"
        steps = [truth(int(episode), int(t) + k) for k in range(int(after - t))]
        assert not any(one[1] or one[2] for one in steps[:-1])
        np.testing.assert_allclose(total, sum(GAMMA**k * one[0] for k, one in enumerate(steps)), rtol=1e-5)
        np.testing.assert_allclose(ahead, 0.0 if steps[-1][1] else GAMMA ** len(steps), rtol=1e-5)


def check_dqn(run, most):
    for items in run.items:
        check_steps(items["obs"], items["next_obs"], items["reward"], items["discount"], most)
    ring = run.store.ring
    serial = np.arange(ring.first, ring.end)
    kept = ring.gather(np.delete(serial, ring.idle(serial)))
    check_steps(kept["obs"], kept["next_obs"], kept["reward"], kept["discount"], most)
    assert len(kept["reward"]) == run.store.count


def check_frames(run, most):
    ring = run.store.ring
    serial = np.arange(ring.first, ring.end)
    kept = ring.gather(np.delete(serial, ring.idle(serial)))
    assert len(kept["reward"]) == run.store.count > 300
    for obs, later in zip(kept["obs"], kept["next_obs"]):
        for one in (obs, later):
            low, high, t = one[2, 0, 0], one[2, 0, 1], one[2, 1, 0]
            assert (one == stack(int(low) + 251 * int(high), int(t))).all()
        assert (obs[2, 0] == later[2, 0]).all() and 1 <= int(later[2, 1, 0]) - int(obs[2, 1, 0]) <= most


def check_windows(run, _):
    count = 0
    for items in run.items:
        names = ("obs", "null", "reward", "terminated", "done")
        for obs, null, reward, terminated, done in zip(*(items[name] for name in names)):
            real = np.flatnonzero(~null)
            assert len(real) and (np.diff(real) == 1).all()
            episode, t = obs[real, 0], obs[real, 1]
            assert (episode == episode[0]).all() and episode[0] > 0 and (np.diff(t) == 1).all()
            for slot in real:
                wanted = truth(int(obs[slot, 0]), int(obs[slot, 1]))
                assert (reward[slot], terminated[slot]) == wanted[:2]
                assert done[slot] or not (wanted[1] or wanted[2])
            assert not done[real[:-1]].any()
            if real[-1] + 1 < len(obs):
                assert done[real[-1]], "a window that is not full goes on"
                assert (obs[real[-1] + 1 :, :2] == [episode[0], t[-1] + 1]).all(), "not the final observation"
            count += 1
    assert count > 20


def check_trajectories(run, _):
    for data in run.policy.seen:
        obs, length = data["obs"], len(data["reward"])
        assert (obs[:, 0] == obs[0, 0]).all() and obs[0, 0] > 0
        assert (obs[:, 1] == np.arange(length)).all()
        assert (data["next_obs"][:, 0] == obs[:, 0]).all() and (data["next_obs"][:, 1] == obs[:, 1] + 1).all()
        wanted = [truth(int(e), int(t)) for e, t, _ in obs]
        assert data["reward"].tolist() == [one[0] for one in wanted]
        assert data["terminated"].tolist() == [one[1] for one in wanted]
        assert data["truncated"][-1] or data["terminated"][-1]
        assert not (data["truncated"][:-1] | data["terminated"][:-1]).any()


def check_rollouts(run, _):
    """Advantages by definition; the value of obs [episode, t] is the number of its episode, halved."""
    lam = 0.95
    for block, items in zip(run.blocks, run.items):
        real, found = block["mask"] > 0, []
        for b in range(real.shape[1]):
            ahead, advantages = 0.0, {}
            for t in reversed(range(len(real))):
                if not real[t, b]:
                    ahead = 0.0
                    continue
                episode, step = block["obs"][t, b, :2]
                reward, terminated, truncated = truth(int(episode), int(step))
                same = t + 1 < len(real) and real[t + 1, b] and block["obs"][t + 1, b, 0] == episode
                delta = reward + GAMMA * (0 if terminated else 0.5 * episode) - 0.5 * episode
                ahead = delta + (GAMMA * lam * ahead if same and not (terminated or truncated) else 0.0)
                advantages[t] = ahead
            found.append(advantages)
        wanted = [found[b][t] for t in range(len(real)) for b in range(real.shape[1]) if real[t, b]]
        np.testing.assert_allclose(items["adv"], wanted, rtol=1e-3, atol=0.05)


KINDS = {
    "1-step": (policy_maker(DQNPolicy, Elementwise), check_dqn, 1),
    "3-step": (policy_maker(DQNPolicy, Elementwise, nstep=3), check_dqn, 3),
    "frames": (policy_maker(DQNPolicy, functools.partial(Elementwise, key="frames"), nstep=2), check_frames, 2),
    "windows": (policy_maker(R2D2Policy, Leaky, nstep=2, burnin_step=2, learn_unroll_len=6), check_windows, 0),
    "trajectories": (policy_maker(Whole, Elementwise), check_trajectories, 0),
    "rollouts": (policy_maker(PPOPolicy, Elementwise, collect={"gae_lambda": 0.95}), check_rollouts, 0),
}


# ---------------------------------------------------------------- random kills
def deaths(run):
    crew = crew_of(run.manager)
    return crew.restarts + sum(worker.gone for worker in crew.workers)


def all_there(run):
    return not any(worker.starting for worker in crew_of(run.manager).workers)


def collect(run, ahead):
    run.collect(n_sample=30) if not ahead else run.collect()
    if ahead:
        run.collector.begin()


def kill_one(run, rng, signum, ahead, longest=0.05):
    """Collect, kill a worker some time later, collect until it was noticed and the worker is there again."""
    before, pid = deaths(run), rng.choice(processes(run.manager))
    threading.Timer(rng.uniform(0, longest), os.kill, (pid, signum)).start()
    end = time.monotonic() + 15
    while deaths(run) == before or not all_there(run):
        assert time.monotonic() < end, "nobody noticed"
        collect(run, ahead)
    for _ in range(3):
        collect(run, ahead)


CASES = [(kind, signal.SIGKILL, "restart") for kind in KINDS]
CASES += [
    ("3-step", signal.SIGSTOP, "restart"),
    ("3-step", signal.SIGKILL, "shrink"),
    ("windows", signal.SIGSTOP, "shrink"),
]


@pytest.mark.parametrize(("kind", "signum", "death"), CASES)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_kept_after_deaths_at_random_times_is_true(mode, kind, signum, death):
    make, check, most = KINDS[kind]
    sampler, ahead = MODES[mode]
    rng = random.Random(f"{mode}{kind}{signum}{death}")
    kills = KILLS if death == "restart" else 2
    settings = dict(on_worker_death=death, max_restarts=100)
    if signum == signal.SIGSTOP:
        settings["step_timeout"] = 1.0
    frames = 3 if kind == "frames" else None
    store = Replay(CfgDict({**Replay.config, "replay_buffer_size": 3000, "frame_stack": frames})) if most else None
    env = Frames if frames else Trace
    with within(60 + 10 * kills), Collecting(sampler, 3, make, [env] * 6, 30, 3, store, **settings) as run:
        run.collector.start()  # which may take longer than a step
        for _ in range(kills):
            kill_one(run, rng, signum, ahead)
        assert deaths(run) >= kills
        real = sum(float(mask.sum()) for mask in fresh_rows(run))
        assert run.collector.envstep == real
        check(run, most)


def fresh_rows(run):
    """The masks of the rows that every block is the first to show."""
    carry = run.collector._slab.carry
    for i, block in enumerate(run.blocks):
        yield block["mask"][carry if i else 0 :]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
@pytest.mark.parametrize("mode", MODES)
def test_a_death_is_raised_with_its_name_and_nothing_is_left(mode, signum):
    sampler, ahead = MODES[mode]
    make, *_ = KINDS["1-step"]
    with Collecting("local", 1, make, [Trace]):  # starts the fork server, which stays
        pass
    rng = random.Random(f"{mode}{signum}")
    for _ in range(KILLS):
        files = open_files()
        settings = {"step_timeout": 1.0} if signum == signal.SIGSTOP else {}
        with within(30), Collecting(sampler, 3, make, [Trace] * 6, 30, **settings) as run:
            collect(run, ahead)
            pids = processes(run.manager)
            with pytest.raises((WorkerError, EnvError), match=r"worker \d \(.*columns \d") as caught:
                kill_one(run, rng, signum, ahead)
            assert ("SIGKILL" if signum == signal.SIGKILL else "time") in str(caught.value)
            assert "on_worker_death" in str(caught.value)
        wait_until(lambda pids=pids: all(is_gone(pid) for pid in pids))
        del run, caught
        assert open_files() == files


@pytest.mark.parametrize("kind", ["1-step", "3-step", "windows", "trajectories"])
@pytest.mark.parametrize("mode", MODES)
def test_a_death_that_writing_a_resume_point_notices_leaves_what_is_kept_true(mode, kind):
    make, check, most = KINDS[kind]
    sampler, ahead = MODES[mode]
    store = Replay(CfgDict({**Replay.config, "replay_buffer_size": 3000})) if most else None
    settings = dict(on_worker_death="restart", max_restarts=100)
    with within(60), Collecting(sampler, 3, make, [Trace] * 6, 30, 3, store, **settings) as run:
        for k in range(4):
            for _ in range(3):
                collect(run, ahead)
            run.collector._await()
            os.kill(processes(run.manager)[k % 2], signal.SIGKILL)
            wait_until(lambda k=k: deaths(run) > k or (run.collector.state_dict() and deaths(run) > k))
            assert run.collector.state_dict()["not_exact"] is not None
            while not all_there(run):
                collect(run, ahead)
            collect(run, ahead)
        real = sum(float(mask.sum()) for mask in fresh_rows(run))
        assert run.collector.envstep == real
        check(run, most)
        collect(run, ahead)
        assert run.collector.state_dict()["not_exact"] is None
