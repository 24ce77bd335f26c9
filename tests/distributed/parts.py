"""Collectors of every sampler over the same envs and policies, and what they give."""

import faulthandler
import functools
import gc
import os
import signal
import time
from contextlib import contextmanager

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from ding_like.config import deep_merge_defaults
from ding_like.data import tree_map
from ding_like.distributed.actors import FreeCollector
from ding_like.distributed.group import WorkerGroup
from ding_like.envs.env_manager.base_env_manager import BaseEnvManager
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager
from ding_like.worker import SampleCollector
from tests.helpers import policy_config

SAMPLERS = {
    "local 1": ("local", 1),
    "local 2": ("local", 2),
    "local 3": ("local", 3),
    "server 2": ("server", 2),
    "server 3": ("server", 3),
    "alternating 2": ("alternating", 2),
    "alternating 3": ("alternating", 3),
}


# ---------------------------------------------------------------- networks without a sum over the batch
class Elementwise(nn.Module):
    """Q-values and a value entry by entry: the same bits whatever batch an observation comes in."""

    def __init__(self, actions=3, key=None):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.5, 2.0, actions))
        self.key = key

    def forward(self, x, **_):
        if self.key == "frames":
            x = x[..., -1, :, :].flatten(-2).float()
        elif isinstance(x, dict):
            x = x["see"]["deep"] if self.key == "deep" else x["obs"]
        return {"logit": torch.tanh(x[..., : len(self.w)] * self.w), "value": x[..., 0] * self.w[0]}


class Leaky(nn.Module):
    """A recurrent network of the same kind: its state is a sum of what it saw that fades."""

    def __init__(self, actions=3):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.5, 2.0, actions))

    def initial_state(self, batch_size):
        return {"h": torch.full((batch_size, 1, len(self.w)), 0.25)}

    def forward(self, inputs, inference=True, **_):
        obs, state = inputs["obs"], inputs.get("prev_state")
        h = self.initial_state(obs.shape[0])["h"] if state is None else state["h"]
        h = h * 0.5 + torch.tanh(obs)[:, None] * self.w
        return {"logit": h[:, 0], "value": h[:, 0, 0], "next_state": {"h": h}}


# ---------------------------------------------------------------- collectors
def worker_policy(make, columns, total, seed):
    return make(seed, {"columns": list(range(*columns)), "env_num": total}, ["collect"])


def policy_maker(cls, network=None, obs_shape=3, action_shape=3, shapes=None, **over):
    """`make(seed, shapes, fields)`; can be sent to a worker."""
    return functools.partial(_policy, cls, network, obs_shape, action_shape, shapes or {}, over)


def _policy(cls, network, obs_shape, action_shape, own, over, seed=0, shapes=None, fields=None):
    torch.manual_seed(1)
    made = None if network is None else network()
    shapes = {"obs_shape": obs_shape, "action_shape": action_shape, "env_num": 5, **own, **(shapes or {})}
    over = deep_merge_defaults(dict(discount_factor=0.9, model=dict(encoder_hidden_size_list=[8])), over)
    return cls(policy_config(cls, **over), made, fields, seed=seed, shapes=shapes)


def _columns(fns, first, end):
    return BaseEnvManager(fns[first:end], first_column=first)


def make_manager(sampler, workers, fns, seed=0, **settings):
    if sampler == "serial":
        return BaseEnvManager(fns)
    if sampler in ("local", "free"):
        return WorkerGroup(functools.partial(_columns, fns), len(fns), workers, seed, **settings)
    manager = SubprocessEnvManager(fns, {"num_workers": workers, **settings})
    manager.alternate = 2 if sampler == "alternating" else 1
    return manager


class Collecting:
    """A collector of one sampler; keeps every block, every item and what changed in between.

    Args:
        sampler: 'free' is `local` without a barrier.
        make: `policy_maker`.
        fns: env factories.

    Attributes:
        told: of every block, its first column, its first new row and the gradient step that it was acted at.
    """

    def __init__(self, sampler, workers, make, fns, n_sample=12, seed=0, store=None, slots=2, **settings):
        self.manager = make_manager(sampler, workers, fns, seed, **settings)
        try:
            self.policy = make(seed)
            if sampler in ("local", "free"):
                self.manager.serve(self.policy, functools.partial(worker_policy, make))
            cfg = deep_merge_defaults(self.policy._cfg.collect, {"n_sample": n_sample, "collector": {"slots": slots}})
            kind = FreeCollector if sampler == "free" else SampleCollector
            self.collector = kind(cfg, self.manager, self.policy.collect_mode, seed)
        except BaseException:
            self.manager.close()
            raise
        self.blocks, self.items, self.told, self.store = [], [], [], store
        if sampler == "free":
            for lane in self.collector._rows.lanes:
                for slab in lane.slabs:
                    slab.block = functools.partial(self._block, slab, slab.block, lane.slot.columns[0])
        else:
            slab = self.collector._slab
            slab.block = functools.partial(self._block, slab, slab.block, 0)

    def _block(self, slab, real, first, ready_obs):
        block = real(ready_obs)
        self.blocks.append(tree_map(np.copy, dict(block.unlinked())))
        self.told.append((first, slab.fresh, getattr(self.collector, "acted_at", 0)))
        return block

    def sink(self, items):
        taken = items.flat() if hasattr(items, "flat") else items
        self.items.append(tree_map(np.copy, dict(taken)))
        if self.store is not None:
            return self.store.push(items)
        return len(taken["reward"] if "reward" in taken else taken["adv"])

    def collect(self, times=1, **kwargs):
        for _ in range(times):
            self.collector.collect(self.sink, **kwargs)
        return self

    @property
    def episodes(self):
        keys = ("column", "return_", "return_raw", "length")
        return [tuple(float(e[k]) for k in keys) for e in self.collector.episodes]

    def close(self):
        self.manager.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---------------------------------------------------------------- envs that tell what is true of them
class Trace(gymnasium.Env):
    """Obs [number of the episode, step, 0]; the number, drawn from the env's generator, tells all else: see `truth`."""

    observation_space = spaces.Box(-1, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = int(self.np_random.integers(1, 10**5)), 0
        return self._obs(), {}

    def step(self, action):
        reward, terminated, truncated = truth(self.episode, self.t)
        self.t += 1
        return self._obs(), reward, terminated, truncated, {}

    def _obs(self):
        return np.array([self.episode, self.t, 0], np.float32)


class Frames(Trace):
    """`Trace` in images: the newest of 3 stacked frames shows the episode's number (in two digits) and the step."""

    observation_space = spaces.Box(0, 255, (3, 2, 2), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return stack(self.episode, 0), {}

    def _obs(self):
        return stack(self.episode, self.t)


def stack(episode, t):
    """The obs at step t of an episode."""
    steps = np.maximum(np.arange(t - 2, t + 1), 0)
    return np.array([[[episode % 251, episode // 251 % 251], [s, 7]] for s in steps], np.uint8)


def truth(episode, t):
    """Reward, terminated and truncated of the step from obs [episode, t]."""
    end = t + 1 >= 4 + episode % 37
    return float(episode % 7 + t % 5), bool(end and episode % 2), bool(end and not episode % 2)


def processes(manager):
    """Ids of the workers' processes, of those that have one."""
    return [worker.child.pid for worker in crew_of(manager).workers if worker.live]


def crew_of(manager):
    """The `Workers` of a manager."""
    return manager if isinstance(manager, WorkerGroup) else manager._crew


@contextmanager
def within(seconds):
    """Raises TimeoutError in what takes longer, and shows where it stood."""

    def late(*_):
        faulthandler.dump_traceback()
        raise TimeoutError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def open_files():
    """How many descriptors this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def wait_until(true, seconds=10.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.01)


def is_gone(pid):
    """Whether a process has ended, waited for or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True
