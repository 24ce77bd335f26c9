"""Uniform replay: sampling against bare takes, bytes per stored transition, memory of a long run.

Vector work: 1e6 transitions of 17 float32 observations, 6 float32 actions, reward and discount, 8 columns; a
batch is 256. Image work: 4x84x84 uint8 stacks, 50,000 transitions. Long run: 1e6 env steps of CartPole-v1
collected into a ring of 100,000; the resident memory at the end against when the ring became full.

    python benchmarks/replay.py [--rounds 7] [--size 1000000] [--run-steps 1000000]
"""

from collections.abc import Callable, Iterator

import numpy as np
import psutil
from common import Check, interleave, median, parser, ratio, report, seconds

from ding_like.config import CfgDict
from ding_like.data import Block, RowLink
from ding_like.entry.build import build, full_config
from ding_like.worker.replay_buffer import Replay

COLUMNS, ROWS = 8, 64
FRAME = 84 * 84


def blocks(count: int, obs: np.ndarray, fields: dict[str, np.ndarray]) -> Iterator[Block]:
    """`count` one-step blocks `[ROWS, COLUMNS]` as a collector hands them over, one episode end in each."""
    for number in range(count):
        end = np.array([number * 37 % (ROWS * COLUMNS)])
        link = RowLink(obs, end, [obs[0, 0]], COLUMNS)
        yield Block({"obs": obs[:-1], **fields}, ROWS, link)


def vector_store(size: int, **cfg: object) -> Replay:
    """A full store of the vector work; `cfg` are further keys of its section."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS + 1, COLUMNS, 17), dtype=np.float32)
    fields = {
        "action": rng.standard_normal((ROWS, COLUMNS, 6), dtype=np.float32),
        "reward": rng.standard_normal((ROWS, COLUMNS), dtype=np.float32),
        "discount": np.full((ROWS, COLUMNS), 0.99, np.float32),
    }
    store = Replay(CfgDict(replay_buffer_size=size, **cfg))
    for block in blocks(size // (ROWS * COLUMNS) + 2, obs, fields):
        store.push(block)
    return store


def image_bytes(size: int = 50_000) -> float:
    """Bytes of storage per transition of a full ring, final observations included."""
    obs = np.zeros((ROWS + 1, COLUMNS, 4, 84, 84), np.uint8)
    fields = {
        "action": np.zeros((ROWS, COLUMNS), np.int64),
        "reward": np.zeros((ROWS, COLUMNS), np.float32),
        "discount": np.zeros((ROWS, COLUMNS), np.float32),
    }
    store = Replay(CfgDict(replay_buffer_size=size))
    for block in blocks(size // (ROWS * COLUMNS) + 2, obs, fields):
        store.push(block)
    return store.ring.nbytes / store.count


def memory_of_run(steps: int) -> list[float]:
    """Resident MiB at each tenth of a random-policy run; the ring is full at the first."""
    config = dict(
        env=dict(type="CartPole-v1", collector_env_num=COLUMNS, evaluator_env_num=1),
        policy=dict(
            type="dqn",
            nstep=3,
            collect=dict(n_sample=ROWS * COLUMNS),
            other=dict(replay_buffer=dict(replay_buffer_size=steps // 10)),
        ),
    )
    parts, process, sizes = build(full_config(config), seed=0), psutil.Process(), []
    for tenth in range(1, 11):
        while parts.collector.envstep < tenth * steps // 10 + ROWS * COLUMNS:
            parts.collector.collect(parts.store.push, random=True)
        sizes.append(process.memory_info().rss / 2**20)
    return sizes


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--size", type=int, default=1_000_000, help="transitions stored (default 1,000,000)")
    args.add_argument("--batch", type=int, default=256)
    args.add_argument("--run-steps", type=int, default=1_000_000, help="env steps of the long run")
    options = args.parse_args()
    store = vector_store(options.size)
    rng, n = np.random.default_rng(1), options.size
    flat = {"obs": (n, 17), "next_obs": (n, 17), "action": (n, 6), "reward": (n,), "discount": (n,)}
    arrays = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in flat.items()}
    index = iter(np.resize(rng.integers(0, n, (4096, options.batch)), (10_000_000 // options.batch, options.batch)))

    def take() -> list[np.ndarray]:
        rows = next(index)
        return [array.take(rows, 0) for array in arrays.values()]

    def fancy() -> list[np.ndarray]:
        rows = next(index)
        return [array[rows] for array in arrays.values()]

    def us(call: Callable[[], object]) -> float:
        return 1e6 * seconds(call, 1000)

    results = interleave(
        {
            "store.sample": lambda: us(lambda: store.sample(options.batch)),
            "bare take": lambda: us(take),
            "bare fancy index": lambda: us(fancy),
        },
        options.rounds,
    )
    stack, memory = image_bytes(), memory_of_run(options.run_steps)
    checks = [
        Check("store.sample / bare take", ratio(results, "store.sample", "bare take"), 1.5, at_least=False),
        Check("bytes per 4x84x84 transition / 7,056", stack / FRAME, 4.2, at_least=False),
        Check("MiB grown after the ring was full", memory[-1] - memory[0], 2.0, at_least=False),
    ]
    facts = {"us_per_transition": median(results, "store.sample") / options.batch, "image_bytes": stack}
    facts |= {"rss_mib": [round(m, 2) for m in memory]}
    report(f"uniform sampling of {options.batch} from {n:,}", "us", results, checks, **facts)


if __name__ == "__main__":
    main()
