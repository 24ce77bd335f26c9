"""Which workers step which rows of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding_like.envs.env_manager.worker_handle import WorkerHandle

NO_COLUMN = np.zeros(0, np.int64)


@dataclass
class Plan:
    """Some columns and who steps them.

    Attributes:
        columns: their numbers.
        rows: of the shared arrays: a slice where the columns stand side by side, else `columns`.
        parts: workers, which of their columns (counted from their first; None: all), where these stand in `columns`,
            and how many they are.
        order: None where the columns of the parts, one after the other, are `columns`; else where each stands there.
        busy: whether a step of them is under way.
    """

    columns: np.ndarray
    rows: Any
    parts: list[tuple[WorkerHandle, list[int] | None, Any, int]]
    order: np.ndarray | None
    busy: bool = False


def make_plan(columns: np.ndarray, workers: Sequence[WorkerHandle]) -> Plan:
    """The plan of columns, in the order in which their rows are wanted. Raises IndexError for one that is not there."""
    last = workers[-1].columns[1] - 1
    if np.any((columns < 0) | (columns > last)):
        raise IndexError(f"there are no env columns {columns.tolist()}; wanted some of 0 to {last}")
    parts: list[tuple[WorkerHandle, list[int] | None, Any, int]] = []
    for worker in workers:
        first, end = worker.columns
        at = np.flatnonzero((columns >= first) & (columns < end))
        local = (columns[at] - first).tolist()
        if local:
            whole = local == list(range(worker.width))
            parts.append((worker, None if whole else local, as_slice(at), len(local)))
    order = np.concatenate([np.arange(len(columns))[at] for _, _, at, _ in parts]) if parts else columns
    in_order = np.array_equal(order, np.arange(len(columns)))
    return Plan(columns, as_slice(columns), parts, None if in_order else np.argsort(order))


def as_slice(index: np.ndarray) -> Any:
    """A slice in place of numbers that follow each other."""
    if len(index) and np.array_equal(index, np.arange(index[0], index[0] + len(index))):
        return slice(int(index[0]), int(index[0]) + len(index))
    return index


def joined(places: list) -> np.ndarray:
    """Slices and arrays of numbers as one array."""
    return np.concatenate(
        [np.arange(at.start, at.stop) if isinstance(at, slice) else at for at in places] or [NO_COLUMN]
    )
