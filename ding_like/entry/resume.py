"""Resume points: everything that decides how a run goes on, so that a resumed run ends bit for bit as one not stopped.

A point is one file, `ckpt/resume/point.pth.tar`, written beside its name and renamed: a kill at any moment leaves the
former one. It holds what a checkpoint holds and, beyond it, replay, noise streams, generators, env snapshots, rows that
wait for their n-step future, counters, hooks, and how far the metrics were written.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ding_like
from ding_like.config import ConfigError, to_plain
from ding_like.entry.run_folder import CKPT_DIR, CONFIG_FILE
from ding_like.torch_utils.checkpoint import CheckpointError, read_file, write_file
from ding_like.torch_utils.packing import pack, unpack
from ding_like.utils.log import RunFolderError, get_logger
from ding_like.utils.seed import rng_state

FORMAT = "ding_like resume point"
POINT = Path(CKPT_DIR) / "resume" / "point.pth.tar"
# What may differ between a run and its continuation.
_FREE = ("exp_name", "resume", "seed")


class ResumePoints:
    """Writes the resume points of a run.

    Args:
        folder: the run's.
        cfg: the `resume` section.
        state: `state()` gives what to write.
    """

    def __init__(self, folder: Path, cfg: Any, state: Any) -> None:
        self.path = folder / POINT
        self.enabled, self._every, self._share = bool(cfg.enabled), float(cfg.every), float(cfg.share)
        self._state = state
        self._next = float("-inf")  # a first one at the start: a run can always be resumed
        self._told = False

    @property
    def due(self) -> bool:
        """Whether it is time for another one."""
        return self.enabled and time.perf_counter() >= self._next

    def write(self) -> None:
        """Write a point in place of the former one. Raises CheckpointError, which leaves the former, on a full disk."""
        if not self.enabled:
            return
        start = time.perf_counter()
        state = self._state()
        reason = state["collector"]["not_exact"]
        if reason is not None and not self._told:
            self._told = True
            get_logger().info(
                f"resume points of this run are not exact: {reason}. A resumed run truncates the open episodes "
                "and starts new ones; docs/resume.md tells what an exact one takes"
            )
        try:
            self.path.parent.mkdir(exist_ok=True)
        except OSError as err:
            raise CheckpointError(f"resume point {self.path} cannot be written: {err}") from err
        try:
            packed = pack(state)
        except ValueError as err:
            raise CheckpointError(
                f"resume point {self.path} cannot be written: {err}. What a state_dict gives must be plain types, "
                "arrays or objects that can be pickled; or set resume.enabled=False"
            ) from err
        write_file(self.path, {"format": FORMAT, "versions": versions(), "state": packed}, "resume point")
        end = time.perf_counter()
        self._next = end + max(self._every, (end - start) * (1 / self._share - 1))


def run_state(parts: Any, learner: Any, loop: Any, logger: Any) -> dict[str, Any]:
    """The state of a run between two rounds of its loop; refers to live memory."""
    return {
        "seed": parts.seed,
        "mode": parts.mode,
        "config": to_plain(parts.cfg),
        "policy": parts.policy.learn_mode.state_dict(),
        "acting": parts.policy.run_state_dict(),
        "collector": parts.collector.state_dict(),
        "evaluator": parts.evaluator.state_dict(),
        "store": parts.store.state_dict(),
        "learner": learner.state_dict(),
        "loop": loop.state_dict(),
        "logger": logger.state_dict(),
        "rng": rng_state(),
    }


def load_run_state(state: Mapping[str, Any], parts: Any, learner: Any, loop: Any) -> None:
    """Put newly built components into the state of a run; all but the global generators, which come last.

    Raises CheckpointError naming the part that does not fit.
    """
    steps = {
        "policy": parts.policy.learn_mode.load_state_dict,
        "acting": parts.policy.load_run_state_dict,
        "store": parts.store.load_state_dict,
        "collector": parts.collector.load_state_dict,
        "evaluator": parts.evaluator.load_state_dict,
        "learner": learner.load_state_dict,
        "loop": loop.load_state_dict,
    }
    for name, load in steps.items():
        try:
            load(state[name])
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as err:
            raise CheckpointError(f"the resume point's '{name}' does not fit this run: {err}") from err
    if parts.collector.not_exact is not None and hasattr(parts.store, "cut"):
        parts.store.cut()


def points_of(exp_name: str | os.PathLike) -> list[Path]:
    """The resume points of the runs `<exp_name>`, `<exp_name>_1`, ..., the newest first."""
    wanted = Path(os.path.abspath(os.path.expanduser(exp_name)))
    numbered = re.compile(re.escape(wanted.name) + r"(_\d+)?")
    siblings = wanted.parent.iterdir() if wanted.parent.is_dir() else ()
    found = [p / POINT for p in siblings if numbered.fullmatch(p.name) and (p / POINT).is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def run_of_config(source: Any) -> str | None:
    """The run folder of a config that is a run's own `total_config.yaml`; else None."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.path.expanduser(source))
        if path.name == CONFIG_FILE and (path.parent / CKPT_DIR).is_dir():
            return str(path.parent)
    return None


SAMPLER = "policy.collect.collector.sampler"  # `auto` resumes with what the run chose
WORKERS = [
    f"policy.collect.collector.{key}"
    for key in ("num_workers", "on_worker_death", "step_timeout", "max_restarts", "slots")
]


def find_run(cfg: Mapping[str, Any], seed: int | None, mode: str = "serial") -> tuple[Path, dict[str, Any]]:
    """Folder and state of the newest run of `cfg.exp_name` that has this config and mode and, unless it is None, this
    seed.

    Raises RunFolderError where there is no run at all, ConfigError naming what differs where none fits, CheckpointError
    for a point that cannot be read.
    """
    candidates, told = points_of(cfg["exp_name"]), []
    for path in candidates:
        folder = Path(os.path.relpath(path.parents[2]))
        state = read_point(path)
        differ = list(_differences(state["config"], to_plain(cfg)))
        if seed not in (None, state["seed"]):
            differ.insert(0, f"seed was {state['seed']}, is {seed}")
        if mode != state["mode"]:
            differ.insert(0, f"it ran with -m {state['mode']}, this is -m {mode}")
        if not differ:
            return folder, state
        more = f"; and {len(differ) - 6} more" if len(differ) > 6 else ""
        told.append(f"{folder}: {'; '.join(differ[:6])}{more}")
    if not candidates:
        raise RunFolderError(
            f"no run to resume: neither {cfg['exp_name']} nor a numbered sibling has the file {POINT}; check exp_name "
            "(--exp-name), or start the run without --resume"
        )
    raise ConfigError(
        f"no run to resume has this config. In {'. In '.join(told)}. A run is resumed with its own config and seed "
        f"(-c RUN/{CONFIG_FILE}); for a new run from its weights use --load-path"
    )


def read_point(path: Path) -> dict[str, Any]:
    """The state in a resume point, and a line in the log for every version that differs from the one that wrote it.

    Raises CheckpointError for a damaged file, or another kind of file.
    """
    content = read_file(path, FORMAT, "resume point")
    try:
        told, state = dict(content["versions"]), unpack(content["state"])
    except (LookupError, AttributeError, ImportError, TypeError, ValueError, pickle.UnpicklingError, EOFError) as err:
        raise CheckpointError(
            f"resume point {path} cannot be read: {type(err).__name__}: {err}; a class of yours that it names must be "
            "importable as it was"
        ) from err
    for name, then in told.items():
        now = versions().get(name)
        if now != then:
            get_logger().warning(f"not exact: the run was written by {name} {then}, this is {now}")
    return state


def versions() -> dict[str, str]:
    """What the numbers of a run depend on beside its config."""
    return {
        "ding_like": ding_like.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _differences(saved: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(saved, dict) and isinstance(now, dict):
        for key in {**saved, **now}:
            if path or key not in _FREE:
                where = f"{path}.{key}" if path else str(key)
                yield from _differences(saved.get(key), now.get(key), where)
    elif path in WORKERS or (path == SAMPLER and now == "auto"):
        return
    elif saved != now and not (saved != saved and now != now):
        yield f"{path} was {saved!r}, is {now!r}"
