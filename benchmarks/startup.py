"""How long a user waits: `import ding_like` with its entry beyond torch, and `ding -m serial` until its first env step.

Each figure is of a process of its own, started in turn (A B A B). The run is `cartpole_dqn_config` as shipped; its time
goes from the start of the process to the first step of the collector, so it includes imports, the config, the envs and
the evaluation before training. One round is thrown away (it fills the caches of files).

    python benchmarks/startup.py [--rounds 7]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Check, interleave, median, parser, report

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "dizoo_configs/classic_control/cartpole/config/cartpole_dqn_config.py"
IMPORT = """
import time, torch
start = time.perf_counter()
import ding_like
from ding_like.entry import serial_pipeline
print(time.perf_counter() - start)
"""
MARK = """
import os, time
from ding_like.worker import SampleCollector

def collect(*args, **kwargs):
    print("FIRST", time.time(), flush=True)
    os._exit(0)

SampleCollector.collect = collect
"""


def lines(folder: str, *argv: object) -> list[str]:
    """What a fresh python prints, with this checkout and `folder` importable. Raises RuntimeError where it fails."""
    path = os.pathsep.join([str(ROOT), folder])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    argv = (sys.executable, *map(str, argv))
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{argv} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.splitlines()


def import_seconds(folder: str) -> float:
    """Of importing the package and `serial_pipeline` in a process that has torch already."""
    return float(lines(folder, "-c", IMPORT)[-1])


def first_step_seconds(folder: str) -> float:
    """From the start of a `ding -m serial` to its collector's first step."""
    mark = "env.import_names=['startup_mark']"
    start = time.time()
    out = lines(folder, "-m", "ding_like.entry.cli", "-m", "serial", "-c", CONFIG, "-s", 0, "--set", mark)
    first = next(line for line in out if line.startswith("FIRST"))
    return float(first.split()[1]) - start


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "startup_mark.py").write_text(MARK, encoding="utf-8")
        variants: dict[str, Callable[[], float]] = {
            "import ding_like beyond torch": lambda: import_seconds(folder),
            "process start to first env step": lambda: first_step_seconds(folder),
            "of it: python and torch": lambda: _torch_seconds(folder),
        }
        results = interleave(variants, options.rounds)
    checks = [Check(name, median(results, name), target, at_least=False) for name, target in zip(variants, (2.0, 4.0))]
    report("Start", "s", results, checks)


def _torch_seconds(folder: str) -> float:
    start = time.perf_counter()
    lines(folder, "-c", "import torch")
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
