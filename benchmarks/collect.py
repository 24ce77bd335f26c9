"""Serial collecting: 8 CartPole-v1 columns in this process, MLP 64x64, rows stored in the replay ring.

The library's side is built from a config: env manager, epsilon-greedy policy, collector, 1-step items, ring.
The bare loops step the same envs with the same net and store nothing.

    python benchmarks/collect.py [--rounds 9] [--columns 8]
"""

import time
from collections.abc import Callable

import numpy as np
from bare import BareEnvs, mlp, module_actor, numpy_actor
from common import Check, interleave, median, parser, ratio, report

from ding_like.entry.build import build, full_config

ROWS, EPS = 128, 0.1


def library(columns: int, blocks: int, random: bool = False) -> Callable[[], float]:
    """Env steps/s of collecting `blocks` blocks of 128 rows into the store."""
    config = dict(
        env=dict(type="CartPole-v1", collector_env_num=columns, evaluator_env_num=1),
        policy=dict(
            type="dqn",
            model=dict(encoder_hidden_size_list=[64, 64], dueling=False, head_layer_num=0),
            collect=dict(n_sample=ROWS * columns),
            other=dict(eps=dict(start=EPS, end=EPS), replay_buffer=dict(replay_buffer_size=100_000)),
        ),
    )
    parts = build(full_config(config), seed=0)

    def run() -> float:
        before, start = parts.collector.envstep, time.perf_counter()
        for _ in range(blocks):
            parts.collector.collect(parts.store.push, random=random)
        return (parts.collector.envstep - before) / (time.perf_counter() - start)

    return run


def bare(columns: int, blocks: int, act: Callable[[np.ndarray], np.ndarray]) -> Callable[[], float]:
    """Env steps/s of the loop that stores nothing."""
    envs, steps = BareEnvs(columns), blocks * ROWS

    def run() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            envs.step(act(envs.obs))
        return steps * columns / (time.perf_counter() - start)

    return run


def random_actor(columns: int) -> Callable[[np.ndarray], np.ndarray]:
    """Actions drawn beforehand, so that the loop costs the envs alone."""
    actions = iter(np.random.default_rng(0).integers(0, 2, (1_000_000, columns)))
    return lambda obs: next(actions)


def main() -> None:
    args = parser(__doc__, rounds=9)
    args.add_argument("--columns", type=int, default=8)
    args.add_argument("--blocks", type=int, default=24, help="blocks of 128 rows a round (default 24)")
    options = args.parse_args()
    net = mlp([4, 64, 64, 2])
    size = options.columns, options.blocks
    results = interleave(
        {
            "collecting, rows stored": library(*size),
            "bare loop, module forward": bare(*size, module_actor(net, EPS)),
            "bare loop, numpy forward": bare(*size, numpy_actor(net, EPS)),
            "collecting, random policy": library(*size, random=True),
            "bare env loop": bare(*size, random_actor(options.columns)),
        },
        options.rounds,
    )
    speed = median(results, "collecting, rows stored")
    share = ratio(results, "collecting, random policy", "bare env loop")
    checks = [
        Check("collecting, env steps/s (2x the fastest peer that stores)", speed, 38_000, at_least=True),
        Check("collecting, env steps/s (fastest bare peer)", speed, 33_000, at_least=True),
        Check("random policy / bare env loop", share, 0.65, at_least=True),
    ]
    report(f"serial collecting, {options.columns} columns", "env steps/s", results, checks)


if __name__ == "__main__":
    main()
