"""Writing rows, the 3-step adder and ring insertion together, in microseconds per env step.

The steps are made beforehand, so neither env nor network is timed; blocks of 64 rows, an episode ends every
200 steps of each column, DQN's items.

    python benchmarks/rows.py [--rounds 9]
"""

from collections.abc import Callable

import numpy as np
from common import Check, interleave, median, parser, report, seconds

from ding_like.config import CfgDict
from ding_like.data import Infos
from ding_like.envs.base_env import EnvTimestep
from ding_like.policy.dqn import DQNPolicy
from ding_like.worker.collector.slab import Slab
from ding_like.worker.replay_buffer import Replay

ROWS, NSTEP, EPISODE = 64, 3, 200
PARTS = ("rows", "adder", "insert")


def steps(columns: int, count: int) -> list[tuple]:
    """`count` steps as (obs, row, timestep): what a collector has when it writes a row."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((count + 1, columns, 4), dtype=np.float32)
    made = []
    for t in range(count):
        terminated = (np.arange(columns) * 7 + t) % EPISODE == 0
        flags = terminated, terminated, np.zeros(columns, bool)
        timestep = EnvTimestep(obs[t + 1], np.ones(columns, np.float32), flags[0], Infos([{}] * columns), *flags[1:])
        row = {
            "obs": obs[t],
            "action": rng.integers(0, 2, columns),
            "reward": timestep.reward,
            "next_obs": timestep.obs,
            "terminated": terminated,
            "done": timestep.done,
            "truncated": timestep.truncated,
        }
        made.append((row["obs"], row, timestep, np.flatnonzero(terminated)))
    return made


def pipeline(columns: int) -> dict[str, Callable[[], object]]:
    """The three parts of one block; called in this order they do one block's work."""
    cfg = DQNPolicy.default_config()
    cfg.nstep, cfg.model = NSTEP, CfgDict(obs_shape=4, action_shape=2)
    policy = DQNPolicy(cfg, enable_field=["collect"]).collect_mode
    slab, store = Slab(ROWS + NSTEP - 1, NSTEP - 1), Replay(CfgDict(replay_buffer_size=100_000))
    made = steps(columns, 40 * ROWS)
    state: dict = {"at": 0, "block": None, "items": None}

    def rows() -> None:
        count = slab.capacity - slab.fill
        first = state["at"] = state["at"] if state["at"] + count < len(made) else 0
        for obs, row, timestep, ended in made[first : first + count]:
            slab.write(obs, row, timestep)
            if len(ended):
                slab.end(ended, timestep.obs)
        state["at"] += count
        state["block"] = slab.block(made[state["at"]][0])

    def adder() -> None:
        state["items"] = policy.get_train_sample(state["block"])

    def insert() -> None:
        store.push(state["items"])
        slab.shift()

    return {"rows": rows, "adder": adder, "insert": insert}


def measure(columns: int, blocks: int = 50) -> Callable[[], float]:
    """A variant: microseconds per env step of the whole path."""
    parts = pipeline(columns)

    def block() -> None:
        for part in parts.values():
            part()

    return lambda: 1e6 * seconds(block, blocks) / (ROWS * columns)


def measure_part(columns: int, name: str, blocks: int = 50) -> Callable[[], float]:
    """A variant: microseconds per env step of one part, the others run untimed around it."""
    parts = pipeline(columns)

    def run() -> float:
        spent = 0.0
        for _ in range(blocks):
            for each, part in parts.items():
                taken = seconds(part, 1)
                spent += taken if each == name else 0.0
        return 1e6 * spent / (blocks * ROWS * columns)

    return run


def main() -> None:
    options = parser(__doc__, rounds=9).parse_args()
    variants = {f"{columns} columns": measure(columns) for columns in (64, 8, 1)}
    variants |= {f"64 columns, {name}": measure_part(64, name) for name in PARTS}
    results = interleave(variants, options.rounds)
    checks = [Check("rows + adder + insert, 64 columns", median(results, "64 columns"), 0.5, at_least=False)]
    report("rows, 3-step adder and ring insertion", "us per env step", results, checks)


if __name__ == "__main__":
    main()
