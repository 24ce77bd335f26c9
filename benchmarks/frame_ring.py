"""The frame ring: bytes a step over real Pong episodes, inserting and sampling of 84x84 stacks of 4 on one thread.

Bytes: Pong with random actions, 8 columns, n-step 3; what the store holds divided by its items, and the same of R2D2's
windows divided by the steps of them that train. Rates: blocks of 64 rows of 8 columns into a full ring; uniform batches
of 32 to 256 from it, obs and next_obs, n-step 3; the bare take gathers as many frames from one array. In CPU time of
this process, so that a neighbour's load counts less.

    python benchmarks/frame_ring.py [--rounds 7] [--size 50000] [--steps 30000]
"""

import time
from collections.abc import Callable

import numpy as np
import psutil
from common import Check, interleave, median, parser, report

from ding_like.config import CfgDict
from ding_like.data import ArrayDict, Block, RowLink, tree_leaves
from ding_like.entry.build import Components, build, full_config
from ding_like.worker.replay_buffer import Replay

COLUMNS, ROWS, STACK, NSTEP = 8, 64, 4, 3
FRAME = 84 * 84


def store_of(size: int, stack: int | None = STACK) -> Replay:
    return Replay(CfgDict(replay_buffer_size=size, frame_stack=stack))


def blocks(rows: int) -> list[Block]:
    """Blocks that go round: `rows` rows start an item, an end in every second one."""
    total, rng = rows + NSTEP - 1, np.random.default_rng(0)
    frames = rng.integers(0, 255, (2 * rows + NSTEP + STACK, COLUMNS, 84, 84), dtype=np.uint8)
    frames[2 * rows :] = frames[: NSTEP + STACK]
    made = []
    for start in (0, rows):
        obs = np.stack([frames[start + i : start + i + total + 1] for i in range(STACK)], 2)
        ends = np.array([] if start else [rows // 2 * COLUMNS], np.int64)
        fields = {
            "obs": obs[:-1],
            "action": np.zeros((rows, COLUMNS), np.int64),
            "reward": np.zeros((rows, COLUMNS), np.float32),
            "discount": np.zeros((rows, COLUMNS), np.float32),
        }
        hop = np.full((rows, COLUMNS), NSTEP, np.int64)
        finals = obs[rows // 2 + 1, :1] if len(ends) else None
        made.append(Block(fields, rows, RowLink(obs, ends, finals, COLUMNS, hop)))
    return made


def cpu_rate(call: Callable[[], int], seconds: float = 0.5) -> float:
    """Items a second of `call`, which returns its number of items."""
    count, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds:
        count += call()
    return count / spent


def inserter(store: Replay, rows: int) -> Callable[[], int]:
    made, number = blocks(rows), [0]

    def insert() -> int:
        number[0] += 1
        return store.push(made[number[0] % 2])

    for _ in range(store.ring.size // (rows * COLUMNS) + 2):
        insert()
    return insert


def pong(policy: str, **section: object) -> Components:
    """A run of Pong with a network too small to matter."""
    config = dict(
        env=dict(
            type="ALE/Pong-v5",
            wrappers=["atari", dict(type="frame_stack", n=STACK)],
            collector_env_num=COLUMNS,
            evaluator_env_num=1,
        ),
        policy=dict(type=policy, model=dict(encoder_hidden_size_list=[4, 4, 8]), **section),
    )
    return build(full_config(config), 0)


def transition_bytes(steps: int) -> dict[str, float]:
    """Bytes a step of a ring that random episodes fill three times, and what it and the process grow by once it is."""
    store = dict(replay_buffer_size=steps // 3, frame_stack=STACK)
    parts = pong("dqn", nstep=NSTEP, collect=dict(n_sample=256), other=dict(replay_buffer=store))
    sizes, held = [], []
    try:
        while parts.collector.envstep < steps:
            parts.collector.collect(parts.store.push, n_step=256, random=True)
            if parts.store.ring.full:
                sizes.append(parts.store.nbytes / parts.store.count)
                held.append(psutil.Process().memory_info().rss / 2**20)
    finally:
        parts.close()
    return {"step_bytes": max(sizes), "growth": sizes[-1] / sizes[0], "rss_grown_mib": held[-1] - held[0]}


def window_bytes(steps: int) -> dict[str, float]:
    """Bytes of windows (20 + 80 slots, n-step 5: 75 steps that train) a step that trains, and without frame_stack."""
    store = dict(replay_buffer_size=steps // 75, frame_stack=STACK)
    parts = pong("r2d2", collect=dict(n_sample=8), learn=dict(batch_size=4), other=dict(replay_buffer=store))
    whole, trained = 0, 0

    def push(items: ArrayDict) -> int:
        nonlocal whole, trained
        whole += sum(leaf.nbytes for leaf in tree_leaves(items))
        trained += int((~items["null"][:, 20:95]).sum())
        return parts.store.push(items)

    try:
        while parts.collector.envstep < steps:
            parts.collector.collect(push, n_step=512, random=True)
    finally:
        parts.close()
    used = parts.store.ring.count / parts.store.ring.size  # memory of windows to come is not counted
    held = parts.store.nbytes - parts.store.ring.nbytes * (1 - used)
    return {"window_step_bytes": held / trained, "whole_window_step_bytes": whole / trained}


def rates(size: int, rounds: int) -> dict[str, list[float]]:
    """Transitions a second of CPU time."""
    store, small = store_of(size), store_of(size // 5)
    insert, insert_few = inserter(store, ROWS), inserter(small, 4)
    flat = np.full((store.ring.places, FRAME), 1, np.uint8)
    rng = np.random.default_rng(0)

    def sample(n: int) -> Callable[[], float]:
        return lambda: cpu_rate(lambda: len(store.sample(n)["index"]))

    def bare(n: int) -> int:
        first = rng.integers(0, len(flat) - STACK - NSTEP, n)[:, None] + np.arange(STACK)
        for frames in (first, first + NSTEP):
            flat.take(frames.ravel(), 0)
        return n

    variants = {f"sample {n}": sample(n) for n in (32, 64, 128, 256)}
    variants |= {f"bare take {n}": (lambda n=n: cpu_rate(lambda: bare(n))) for n in (32, 256)}
    variants |= {"insert, 64 rows": lambda: cpu_rate(insert), "insert, 4 rows": lambda: cpu_rate(insert_few)}
    return interleave(variants, rounds)


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--size", type=int, default=50_000, help="transitions of the ring that is timed")
    args.add_argument("--steps", type=int, default=30_000, help="env steps of Pong")
    options = args.parse_args()
    results = rates(options.size, options.rounds)
    facts = transition_bytes(options.steps) | window_bytes(options.steps // 2)
    checks = [
        Check("bytes a step / 7,056", facts["step_bytes"] / FRAME, 1.1, at_least=False),
        Check("bytes a step of windows / 7,056", facts["window_step_bytes"] / FRAME, 1.1, at_least=False),
        Check("growth once full", facts["growth"], 1.02, at_least=False),
        Check("inserted a second, 64 rows", median(results, "insert, 64 rows"), 200_000, at_least=True),
    ]
    for n in (32, 64, 128, 256):
        checks.append(Check(f"sampled a second, batch {n}", median(results, f"sample {n}"), 150_000, at_least=True))
    report(f"frame ring of {options.size:,} 84x84 stacks of 4", "transitions/s", results, checks, **facts)


if __name__ == "__main__":
    main()
