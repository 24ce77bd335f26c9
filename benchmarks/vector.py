"""Natively batched envs: 256 CartPole-v1 columns in one Gymnasium `VectorEnv`, rows stored.

The library's side is built from a config: `vector` manager, policy, collector, store. The bare loops step the same env
with the same forward (actor and critic 64x64 tanh, NumPy on parameter views) or with actions drawn beforehand, and
store nothing.

    python benchmarks/vector.py [--rounds 9] [--columns 256]
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from collect import random_actor
from common import Check, interleave, parser, ratio, report
from ppo import config as ppo_config

from ding_like.entry.build import build, full_config

ROWS = 64


def library(columns: int, blocks: int, random: bool = False) -> tuple[Callable[[], float], Any]:
    """Env steps/s of collecting blocks of 64 rows into the policy's store, and the policy."""
    if random:  # rows that a network fills are not there
        config: dict = dict(env={}, policy=dict(type="dqn", other=dict(replay_buffer=dict(replay_buffer_size=10**5))))
    else:
        config = ppo_config()
    config["env"] = dict(type="CartPole-v1", collector_env_num=columns, evaluator_env_num=1)
    config["env_manager"] = dict(type="vector")
    config["policy"]["collect"] = dict(n_sample=ROWS * columns)
    parts = build(full_config(config), seed=0)
    gc.freeze()  # as the loop of a run does

    def run() -> float:
        before, start = parts.collector.envstep, time.perf_counter()
        for _ in range(blocks):
            parts.collector.collect(parts.store.push, random=random)
            list(parts.store.batches(0, ROWS * columns))  # a rollout is forgotten
        return float(parts.collector.envstep - before) / (time.perf_counter() - start)

    return run, parts.policy


def bare(columns: int, blocks: int, act: Callable[[np.ndarray], Any]) -> Callable[[], float]:
    """Env steps/s of the loop that stores nothing; the rows of resets are not counted."""
    envs = gymnasium.make_vec("CartPole-v1", columns, vectorization_mode="vector_entry_point")
    state = {"obs": envs.reset(seed=0)[0]}

    def run() -> float:
        obs, start, idle = state["obs"], time.perf_counter(), 0
        for _ in range(blocks * ROWS):
            obs, _, terminated, truncated, _ = envs.step(act(obs))
            idle += np.count_nonzero(terminated) + np.count_nonzero(truncated)
        state["obs"] = obs
        return float(blocks * ROWS * columns - idle) / (time.perf_counter() - start)

    return run


def main() -> None:
    args = parser(__doc__, rounds=9)
    args.add_argument("--columns", type=int, default=256, help="env columns (default 256)")
    options = args.parse_args()
    columns, blocks = options.columns, 8
    mlp_run, policy = library(columns, blocks)
    random_run, _ = library(columns, blocks, random=True)
    net = policy.get_model()
    variants = {
        "library, MLP": mlp_run,
        "bare step + the same forward": bare(columns, blocks, lambda obs: net.numpy_forward(obs)["logit"].argmax(1)),
        "library, random": random_run,
        "bare step, random": bare(columns, blocks, random_actor(columns)),
    }
    results = interleave(variants, options.rounds)
    checks = [
        Check(
            "MLP: library / bare", ratio(results, "library, MLP", "bare step + the same forward"), 0.7, at_least=True
        ),
        Check("random: library / bare", ratio(results, "library, random", "bare step, random"), 0.5, at_least=True),
    ]
    report(f"Collecting, {columns} native columns", "env steps/s", results, checks, columns=columns)


if __name__ == "__main__":
    main()
