"""Prioritised replay: a batch drawn, weighed and gathered, and its priorities written back, against bare gathers.

1e6 transitions of 17 float32 observations (next ones too), 6 float32 actions, reward and discount, 8 columns; a
batch is 256. The bare gathers take as many random rows of five such arrays, by fancy index and by `take`.

    python benchmarks/per.py [--rounds 7] [--size 1000000] [--batch 256]
"""

from collections.abc import Callable

import numpy as np
from common import Check, interleave, parser, ratio, report, seconds
from replay import vector_store

from ding_like.worker.replay_buffer import Replay


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--size", type=int, default=1_000_000, help="transitions stored (default 1,000,000)")
    args.add_argument("--batch", type=int, default=256)
    args.add_argument("--calls", type=int, default=500, help="calls timed a round")
    options = args.parse_args()
    rng, n, size = np.random.default_rng(0), options.batch, options.size
    keys = {name: value for name, value in Replay.config.items() if name != "replay_buffer_size"}
    store, uniform = vector_store(size, priority=True, **keys), vector_store(size)
    spread(store, rng)
    widths = {"obs": (17,), "next_obs": (17,), "action": (6,), "reward": (), "discount": ()}
    arrays = [rng.standard_normal((size, *width), dtype=np.float32) for width in widths.values()]
    index, priority = rng.integers(0, size, (4096, n)), rng.exponential(size=(4096, n))
    tree, counter = store.sampler.tree, iter(range(1 << 40))
    mass = (np.arange(n) + rng.random((4096, n))) * (tree.total / n)

    def both() -> None:
        batch = store.sample(n)
        store.update(batch["index"], priority[next(counter) % 4096])

    def fancy() -> list[np.ndarray]:
        rows = index[next(counter) % 4096]
        return [array[rows] for array in arrays]

    def take() -> list[np.ndarray]:
        rows = index[next(counter) % 4096]
        return [array.take(rows, 0) for array in arrays]

    def us(call: Callable[[], object]) -> Callable[[], float]:
        return lambda: 1e6 * seconds(call, options.calls)

    results = interleave(
        {
            "prioritised sample + update": us(both),
            "bare fancy index": us(fancy),
            "bare take": us(take),
            "uniform sample": us(lambda: uniform.sample(n)),
            "tree.find": us(lambda: tree.find(mass[next(counter) % 4096])),
            "tree.set": us(lambda: tree.set(index[next(counter) % 4096], priority[next(counter) % 4096])),
        },
        options.rounds,
    )
    name = "prioritised sample + update"
    checks = [Check(f"{name} / bare fancy index", ratio(results, name, "bare fancy index"), 3.0, at_least=False)]
    report(f"prioritised replay, batches of {n} from {size:,}", "us", results, checks)


def spread(store: Replay, rng: np.random.Generator) -> None:
    """Give every item a priority of its own, as after long training."""
    ring = store.ring
    for first in range(ring.first, ring.end, 100_000):
        index = np.arange(first, min(first + 100_000, ring.end))
        store.update(index, rng.exponential(size=len(index)))


if __name__ == "__main__":
    main()
