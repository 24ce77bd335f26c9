"""Learning curves: from the `metrics.jsonl` of run folders to one line with its interval."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.entry.run_folder import RESULT_FILE
from ding_like.utils.log import METRICS_FILE, get_logger
from ding_like.utils.registry import suggest

LARGEST = 1e300  # of a value; sums and axes of larger ones overflow
MAX_POINTS = 1000  # of an aggregated curve; a picture shows no more
RESAMPLES = 2000  # of a bootstrap
_CHUNK = 64  # points of a curve resampled at a time


class NoDataError(ValueError):
    """A run that has logged nothing of what is asked for yet."""


@dataclass(frozen=True)
class Run:
    """One run's values `y [N]` at strictly increasing `x [N]`; `solved`: it ended at its stop value."""

    folder: Path
    x: np.ndarray
    y: np.ndarray
    solved: bool = False


@dataclass(frozen=True)
class Curve:
    """A line `y [G]` over `x [G]` of so many runs; `low`, `high [G]` where they are several."""

    x: np.ndarray
    y: np.ndarray
    runs: int
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def find_runs(folder: str | Path) -> list[Path]:
    """The run folders of one curve: the folder itself, or its `seed_N` in order of N.

    Raises ValueError for a folder that is neither.
    """
    folder = Path(folder)
    if (folder / METRICS_FILE).is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; ding plot takes run folders, or folders of seed_N folders")
    inner = sorted(path.parent.name for path in folder.glob(f"*/{METRICS_FILE}"))
    seeds = sorted((name for name in inner if re.fullmatch(r"seed_\d+", name)), key=lambda name: int(name[5:]))
    if not seeds:
        told = f"; give those in it that are meant: {', '.join(inner)}" if inner else ""
        raise ValueError(f"{folder} is no run folder (no {METRICS_FILE} in it) and has no seed_N folders{told}")
    others = [name for name in inner if name.startswith("seed_") and name not in seeds]
    if others:
        get_logger().info(f"{folder}: left out, as they are not named seed_N: {', '.join(others)}")
    return [folder / name for name in seeds]


def read_run(folder: Path, key: str = "eval_value", section: str = "eval", x: str = "envstep") -> Run:
    """One run's values of `key` in a section of its metrics.

    Of several values at one x the last counts. Values that are null (not finite when they were logged) or beyond
    `LARGEST`, and a last line that is not whole (the run was killed, or writes it now), are left out, and a log line
    says so.

    Raises NoDataError where nothing was logged yet, ValueError for an unknown key, what is no number, or a broken line.
    """
    path = folder / METRICS_FILE
    records = _records(path)
    rows = [(line, record) for line, record in records if record.get("section") == section]
    if not rows:
        has = ", ".join(sorted({str(record.get("section")) for _, record in records}))
        raise NoDataError(f"{path} has no record of section {section!r}; it has {has or 'none at all yet'}")
    found = [(line, row) for line, row in rows if key in row and x in row]
    if not found:
        keys = list(dict.fromkeys(name for _, row in rows for name in row if name != "section"))
        lacks = x if key in keys and x not in keys else key
        told = f"{suggest(lacks, keys)} It has: {', '.join(keys)}"
        raise ValueError(f"{path}: section {section!r} has no {lacks!r}.{told}")
    points, left_out = {}, []
    for line, row in found:
        at, value = (_number(f"{path}, line {line}", name, row[name]) for name in (x, key))
        if at is None or value is None:
            left_out.append(line)
        else:
            points[at] = value
    if not points:
        raise NoDataError(f"{path}: {key!r} of section {section!r} is null, or its {x!r} is, in every record")
    if left_out:
        get_logger().info(
            f"{path}: {len(left_out)} records whose {key!r} or {x!r} is null or beyond {LARGEST:g} are left out, the "
            f"first in line {left_out[0]}"
        )
    order = sorted(points)
    return Run(folder, np.array(order), np.array([points[at] for at in order]), _solved(folder))


def _records(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The records with the numbers of their lines."""
    lines = path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line else {}
        except ValueError as error:  # of JSON, or a whole number of thousands of digits
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: {error}; remove the line, or plot another run") from error
            get_logger().info(f"{path}: the last line is not whole and is left out")
            continue
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number}: {line:.60} is no record; remove the line, or plot another run")
        if record:
            records.append((number, record))
    return records


def _number(where: str, name: str, value: Any) -> float | None:
    """A value as it is drawn; None for null and what is not finite or too large."""
    if value is not None and not isinstance(value, int | float):
        raise ValueError(f"{where}: {name!r} is {value!r:.60}, which cannot be drawn; choose a number")
    return float(value) if value is not None and abs(value) <= LARGEST else None


def _solved(folder: Path) -> bool:
    path = folder / RESULT_FILE
    try:
        result = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:  # it still runs, or was killed
        return False
    except ValueError:
        result = None
    if isinstance(result, dict):
        return bool(result.get("stop"))
    get_logger().info(f"{path} is broken; the run counts as one that did not reach its stop value")
    return False


def smoothed(run: Run, count: int) -> Run:
    """Each value as the mean of the last `count` up to it (of fewer at the start)."""
    sums = np.cumsum(np.concatenate([[0.0], run.y]))
    ends = np.arange(1, len(run.y) + 1)
    starts = np.maximum(ends - count, 0)
    return replace(run, y=(sums[ends] - sums[starts]) / (ends - starts))


def align(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """The runs on one grid: x `[G]`, values `[S, G]`; at each x a run has its last value up to there.

    The grid holds every x of every run (evenly spaced ones where they are more than MAX_POINTS), without
    extrapolation: it starts where the last run has its first value and ends where the first run ends. But a run that
    ended because it reached its stop value holds its last value as long as the others go on.

    Raises ValueError where the runs have no x in common.
    """
    start = max(run.x[0] for run in runs)
    last = max(runs, key=lambda run: run.x[-1])
    first = min((run for run in runs if not run.solved), key=lambda run: run.x[-1], default=last)
    end = first.x[-1]
    if end < start:
        raise ValueError(f"{first.folder} ends at {end:,g}, before another run starts ({start:,g}): nothing in common")
    if last.x[-1] - end > 0.05 * (last.x[-1] - start):
        get_logger().info(
            f"{first.folder} ends at {end:,g} without having reached its stop value; the curve ends there, although "
            f"other runs go on to {last.x[-1]:,g}"
        )
    grid = np.unique(np.concatenate([run.x for run in runs]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > MAX_POINTS:
        grid = np.linspace(start, end, MAX_POINTS)
    return grid, np.stack([run.y[np.searchsorted(run.x, grid, side="right") - 1] for run in runs])


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: the mean without a quarter (rounded down) of the values at each end. Agarwal 2021."""
    ordered = np.sort(values, axis)
    count = values.shape[axis]
    return np.take(ordered, range(count // 4, count - count // 4), axis).mean(axis)


def mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean."""
    return values.mean(axis)


AGGREGATES: dict[str, Callable[..., np.ndarray]] = {"mean": mean, "iqm": iqm}


def bootstrap(
    values: np.ndarray, statistic: Callable[..., np.ndarray], ci: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval `([G], [G])` of a statistic over runs `[S, G]`; whole runs are resampled.

    Efron 1979. With few seeds such an interval is too narrow rather than too wide.
    """
    count = len(values)
    picks = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    tails = [(1 - ci) / 2, (1 + ci) / 2]
    parts = [
        np.quantile(statistic(values[:, at : at + _CHUNK][picks], 1), tails, axis=0)  # of [R, S, g]
        for at in range(0, values.shape[1], _CHUNK)
    ]
    low, high = np.concatenate(parts, 1)
    return low, high


def curve(runs: Sequence[Run], aggregate: str = "mean", ci: float = 0.95) -> Curve:
    """One run as it is; several as their mean or interquartile mean with a bootstrap interval of level `ci`."""
    if len(runs) == 1:
        return Curve(runs[0].x, runs[0].y, 1)
    x, values = align(runs)
    statistic = AGGREGATES[aggregate]
    return Curve(x, statistic(values), len(runs), *bootstrap(values, statistic, ci))
