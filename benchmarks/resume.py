"""What resume points cost: the share of a run's time that writing them takes, as shipped recipes run by default.

    python benchmarks/resume.py [--rounds 5]

Runs `cartpole_dqn_config` and `cartpole_ppo_config` as shipped (with other seeds each round), times each write, and
prints its share of the wall time of the run in per cent; then the time of one point of a replay of a million items.
"""

import logging
import tempfile
import time
from pathlib import Path

import numpy as np
from common import Check, median, parser, report

from ding_like.config import CfgDict
from ding_like.data import ArrayDict
from ding_like.entry import resume, serial_pipeline
from ding_like.torch_utils.checkpoint import write_file
from ding_like.torch_utils.packing import pack
from ding_like.worker import Replay

RECIPES = Path(__file__).resolve().parent.parent / "dizoo_configs/classic_control/cartpole/config"
NAMES = ("cartpole_dqn", "cartpole_ppo")


def run(name: str, seed: int) -> tuple[float, list[float]]:
    """Seconds of a whole run, and of each of its resume points."""
    written: list[float] = []
    real = resume.ResumePoints.write

    def timed(self) -> None:
        start = time.perf_counter()
        real(self)
        written.append(time.perf_counter() - start)

    resume.ResumePoints.write = timed
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        serial_pipeline(str(RECIPES / f"{name}_config.py"), seed=seed, exp_name=f"{folder}/run", max_env_step=30000)
        seconds = time.perf_counter() - start
    resume.ResumePoints.write = real
    return seconds, written


def million() -> tuple[float, float]:
    """Seconds and megabytes of the point of a replay of 1e6 transitions with observations of 8 numbers."""
    n = 1_000_000
    replay = Replay(CfgDict(replay_buffer_size=n))
    obs = np.zeros((n, 8), np.float32)
    replay.push(ArrayDict(obs=obs, next_obs=obs, action=np.zeros(n, np.int64), reward=np.zeros(n, np.float32)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "point"
        start = time.perf_counter()
        write_file(path, {"state": pack(replay.state_dict())}, "point")
        return time.perf_counter() - start, path.stat().st_size / 1e6


def main() -> None:
    args = parser(__doc__, rounds=5).parse_args()
    logging.getLogger("ding_like").setLevel(logging.WARNING)
    results: dict[str, list[float]] = {}
    for seed in range(args.rounds):
        for name in NAMES:
            seconds, written = run(name, seed)
            results.setdefault(f"{name}, share of the run", []).append(100 * sum(written) / seconds)
            results.setdefault(f"{name}, one point, ms", []).extend(1e3 * one for one in written)
            results.setdefault(f"{name}, the run, s", []).append(seconds)
    seconds, size = million()
    results["a replay of 1e6 transitions, ms"] = [1e3 * seconds]
    checks = [Check(name, median(results, name), 2.0, False) for name in results if name.endswith("share of the run")]
    report("resume points", "% of wall time, ms, s", results, checks, megabytes_of_1e6=size)


if __name__ == "__main__":
    main()
