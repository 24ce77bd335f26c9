"""Shared parts of tests: small configs and policies, rows of known steps, and the plain-Python n-step items."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ding_like.config import deep_merge_defaults
from ding_like.data import tree_index, tree_map
from ding_like.entry.diagnostics import CLOCK_SECTION
from ding_like.envs import BaseEnvManager
from ding_like.envs.base_env import EnvTimestep
from ding_like.policy.dqn import DQNPolicy
from ding_like.worker import Evaluator, Learner, SampleCollector
from ding_like.worker.collector.slab import Slab

ROOT = Path(__file__).parents[1]


# ---------------------------------------------------------------- configs and runs
def tiny_config(exp_name="run", **policy):
    """`(main, create)`: DQN on CartPole, a second long at most; `policy` is merged over its policy section."""
    main = dict(
        exp_name=str(exp_name),
        env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=3),
        policy=deep_merge_defaults(
            dict(
                nstep=2,
                model=dict(encoder_hidden_size_list=[16]),
                learn=dict(update_per_collect=2, batch_size=8, learner=dict(hook=dict(log_show_after_iter=5))),
                collect=dict(n_sample=8),
                eval=dict(evaluator=dict(eval_freq=20)),
                other=dict(eps=dict(decay=200), replay_buffer=dict(replay_buffer_size=200)),
            ),
            policy,
        ),
    )
    create = dict(env=dict(type="CartPole-v1"), env_manager=dict(type="base"), policy=dict(type="dqn"))
    return main, create


def single(pair):
    """The single-dict form of `(main, create)`."""
    return deep_merge_defaults(*pair)


def metrics(folder):
    """The lines of `metrics.jsonl` without what depends on the clock: wall times, and records of rates."""
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["section"] != CLOCK_SECTION]
    return [{k: v for k, v in line.items() if k != "wall_time_s"} for line in lines]


def result(folder):
    return json.loads((Path(folder) / "result.json").read_text())


def python(*argv, cwd, timeout=60):
    """`python argv` in `cwd` with this checkout importable."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, argv)], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout
    )


def ding(*argv, cwd, timeout=60):
    return python("-m", "ding_like.entry.cli", *argv, cwd=cwd, timeout=timeout)


# ---------------------------------------------------------------- components
def policy_config(cls=DQNPolicy, **over):
    return deep_merge_defaults(
        cls.default_config(),
        {
            "learn": {"learner": Learner.config},
            "eval": {"evaluator": {**Evaluator.config, "n_episode": 3}},
            "collect": {"collector": SampleCollector.config},
        },
        over,
    )


def make_policy(cls=DQNPolicy, obs_shape=1, action_shape=2, model=None, seed=0, fields=None, shapes=None, **over):
    shapes = {"obs_shape": obs_shape, "action_shape": action_shape, **(shapes or {})}
    over.setdefault("model", {"encoder_hidden_size_list": [8]})
    return cls(policy_config(cls, **over), model, fields, seed=seed, shapes=shapes)


def make_manager(*envs, role="collect"):
    evaluating = role == "eval"
    return BaseEnvManager(
        [lambda env=env: env for env in envs],
        role=role,
        auto_reset=not evaluating,
        seed_every_episode=evaluating,
    )


def make_collector(policy, *envs, n_sample=8, seed=0):
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": n_sample})
    return SampleCollector(cfg, make_manager(*envs), policy.collect_mode, seed)


class TableQ(nn.Module):
    """Q-values by the integer in obs `[N, 1]`: row `table[obs]`."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(torch.as_tensor(table))

    def forward(self, x):
        return {"logit": self.table[x[..., 0].long()]}


class Constant(nn.Module):
    """The same Q-values at every obs; one trainable number that changes nothing."""

    def __init__(self, *q):
        super().__init__()
        self.q = nn.Parameter(torch.tensor(q, dtype=torch.float32))

    def forward(self, x):
        return {"logit": self.q.expand(len(x), -1)}


# ---------------------------------------------------------------- rows of known steps
class Steps:
    """T rows of B columns with every number distinct, episodes ending where `flags [T, B]` is 1 (terminated) or 2
    (truncated): obs 1000 b + t counted over the column, the true next obs at an end its negative.
    """

    def __init__(self, flags, obs=lambda x: x):
        self.flags = np.asarray(flags)
        self.length, self.columns = self.flags.shape
        at = np.arange(self.length + 1)[:, None] + 1000.0 * np.arange(self.columns)
        self.obs = at[..., None].astype(np.float32)  # [T + 1, B, 1]
        self.end = self.flags > 0
        self.next_obs = np.where(self.end[..., None], -1 - self.obs[:-1], self.obs[1:]).astype(np.float32)
        self.reward = (1 + at[:-1] % 7).astype(np.float32)
        self.action = (at[:-1] % 3).astype(np.int64)
        self._as = obs

    def fill(self, slab, start, stop):
        """Write rows `[start, stop)`. Returns the observation to act on next."""
        for t in range(start, stop):
            obs, true = self._as(self.obs[t]), self._as(self.next_obs[t].copy())
            terminated, truncated = self.flags[t] == 1, self.flags[t] == 2
            ts = EnvTimestep(true, self.reward[t], self.end[t], None, terminated, truncated)
            row = dict(obs=obs, action=self.action[t], reward=self.reward[t], next_obs=true)
            slab.write(obs, row | dict(terminated=terminated, done=self.end[t]), ts)
            if self.end[t].any():
                slab.end(np.flatnonzero(self.end[t]), tree_index(true, np.flatnonzero(self.end[t])))
        return self._as(self.obs[stop])

    def blocks(self, sizes, nstep):
        """Blocks that start `sizes` rows of items each, as a collector makes them; the first `nstep - 1` rows of a
        block are the last of the one before.
        """
        carry = nstep - 1
        slab = Slab(max(sizes) + carry, carry)
        start = 0
        for size in sizes:
            stop = start + carry + size - slab.fill
            yield slab.block(self.fill(slab, start, stop))
            slab.shift()
            start = stop

    def items(self, nstep, gamma):
        """By definition: for every (t, b) in order `(obs, action, reward, discount, next_obs)`, or None where the
        n-step future is not there yet."""
        found = {}
        for t in range(self.length):
            for b in range(self.columns):
                total, k = 0.0, 0
                while k < nstep and t + k < self.length:
                    total += gamma**k * float(self.reward[t + k, b])
                    k += 1
                    if self.end[t + k - 1, b]:
                        break
                last = t + k - 1
                if k == nstep or self.end[last, b]:
                    discount = 0.0 if self.flags[last, b] == 1 else gamma**k
                    found[t, b] = (
                        float(self.obs[t, b, 0]),
                        int(self.action[t, b]),
                        total,
                        discount,
                        float(self.next_obs[last, b, 0]),
                    )
                else:
                    found[t, b] = None
        return found


def rows_of(items):
    """Fields `[N, ...]` as tuples `(obs, action, reward, discount, next_obs)`."""
    names = ("obs", "action", "reward", "discount", "next_obs")
    columns = [np.asarray(items[name]).reshape(len(items["reward"])).tolist() for name in names]
    return list(zip(*columns))


def fingerprint(tree):
    """The bytes of every array of a tree, to compare before and after."""
    arrays = tree_map(lambda x: x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x, tree)
    return repr(tree_map(lambda x: x.tobytes() if isinstance(x, np.ndarray) else copy.deepcopy(x), arrays))


def chi_square(counts, expected):
    """Pearson's statistic; for k cells it is about k - 1, and above k - 1 + 5 sqrt(2 (k - 1)) once in a million."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    return float(((counts - expected) ** 2 / expected).sum())


def chi_limit(cells):
    return cells - 1 + 5 * np.sqrt(2 * (cells - 1)) + 5
