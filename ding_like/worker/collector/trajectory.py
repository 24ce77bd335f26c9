"""Whole trajectories: the rows of a collector by column, each handed to the policy when it is finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, tree_cat, tree_index, tree_leaves, tree_map
from ding_like.rl_utils.segment_stream import SegmentStream
from ding_like.rl_utils.stream import WindowStream
from ding_like.rl_utils.windows import row_ends
from ding_like.worker.attribute import attribute_of

ROWS = 8  # of a block: the cost of a block is spread over so many, and a collect ends at most so many rows late


class TrajectoryStream:
    """Keeps the rows of open episodes, and makes train samples of every trajectory that is finished.

    Args:
        columns: env columns of a block.
        longest: steps after which an open episode is handed on; its next step begins another trajectory.
        make: `get_train_sample` of a policy. It gets copies `[L]` of all fields, without `mask`.
        as_list: hand over a list of L dictionaries instead.

    Attributes:
        carry: rows of a block that the next one must show again: none.
    """

    carry = 0

    def __init__(self, columns: int, longest: int, make: Callable[[Any], Any], as_list: bool = False) -> None:
        self._longest, self._make, self._as_list = longest, make, as_list
        self._chunks: deque[ArrayDict] = deque()  # rows [T, B] in order, from `_first` on
        self._first = self._seen = 0  # numbers of rows: of the first one kept, of the next one to come
        self._start = np.zeros(columns, np.int64)  # first row of the open trajectory of each column
        self._cut = np.zeros(columns, bool)  # where the last row was made an end since

    def rows_for(self, samples: int) -> int:
        """Rows of a block: how many samples they give is not known before."""
        return ROWS

    def take(self, block: Block, fresh: int) -> Any:
        """Train samples of the trajectories that the rows of the block finish: a tree `[N, ...]`, a list, or None."""
        rows, base = block.unlinked(), self._seen
        mask = rows.pop("mask", None)
        ends = row_ends(rows)  # [R, B]
        samples = self._finish(np.flatnonzero(self._cut), base - 1)
        self._cut[:] = False
        self._chunks.append(tree_map(np.copy, rows))
        self._seen += len(ends)
        for row in range(len(ends)):
            if mask is not None:
                idle = mask[row] == 0  # only after an end: such a row is part of no trajectory
                self._start[idle] = base + row + 1
            ended = ends[row] | (base + row + 1 - self._start >= self._longest)
            samples += self._finish(np.flatnonzero(ended), base + row)
        self._forget()
        return _joined(samples)

    def _finish(self, columns: np.ndarray, last: int) -> list[Any]:
        """What the policy makes of the trajectories of these columns that end with row `last`."""
        made = []
        for b in columns.tolist():
            if self._start[b] <= last:
                trajectory = self._trajectory(b, last)
                made.append(self._make(_steps(trajectory) if self._as_list else trajectory))
                self._start[b] = last + 1
        return made

    def _trajectory(self, b: int, last: int) -> ArrayDict:
        parts, row = [], self._first
        for chunk in self._chunks:
            span = slice(max(int(self._start[b]) - row, 0), max(last + 1 - row, 0))
            parts.append(tree_index(chunk, (span, b)))
            row += len(chunk)
        return tree_cat(parts)

    def _forget(self) -> None:
        """Drop the rows that no open trajectory has."""
        oldest = int(self._start.min())
        while self._chunks and self._first + len(self._chunks[0]) <= oldest:
            self._first += len(self._chunks.popleft())

    def cut(self, columns: Any = slice(None)) -> None:
        """Open episodes (of `columns`) end with the last row, truncated: the envs start anew."""
        if not self._chunks:
            return
        last = self._chunks[-1]
        terminated, truncated = last["terminated"][-1], last["truncated"][-1]  # [B]
        truncated[columns] = np.logical_or(truncated[columns], np.logical_not(terminated[columns]))
        if "done" in last:
            last["done"][-1][columns] = True
        self._cut[columns] = True

    def state_dict(self) -> dict[str, Any]:
        """The rows of open trajectories and where each column stands."""
        rows = _plain(tree_cat(list(self._chunks))) if self._chunks else None
        return {"rows": rows, "first": self._first, "seen": self._seen, "start": self._start, "cut": self._cut}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`. Raises ValueError for another number of columns."""
        if len(state["start"]) != len(self._start):
            raise ValueError(f"the saved run has {len(state['start'])} env columns, this one {len(self._start)}")
        self._chunks = deque([] if state["rows"] is None else [ArrayDict(tree_map(np.array, state["rows"]))])
        self._first, self._seen = state["first"], state["seen"]
        self._start[:], self._cut[:] = state["start"], state["cut"]


def make_stream(policy: Any, columns: int) -> WindowStream | SegmentStream | TrajectoryStream | None:
    """What makes a policy's train samples of rows; None: its `get_train_sample` does, of every block."""
    segments = attribute_of(policy, "segments", None)
    if segments is not None:
        return SegmentStream(columns, **segments)
    windows, trajectories = attribute_of(policy, "windows", None), attribute_of(policy, "trajectories", None)
    if windows is not None:
        return WindowStream(columns, **windows)
    return None if trajectories is None else TrajectoryStream(columns, make=policy.get_train_sample, **trajectories)


def _steps(trajectory: ArrayDict) -> list[dict[str, Any]]:
    return [_plain(trajectory[t]) for t in range(len(trajectory))]


def _plain(tree: Any) -> Any:
    """Plain dictionaries in place of `ArrayDict`."""
    if type(tree) is tuple:
        return tuple(map(_plain, tree))
    return {name: _plain(value) for name, value in dict.items(tree)} if isinstance(tree, dict) else tree


def _joined(samples: list[Any]) -> Any:
    """What `_get_train_sample` returned for several trajectories as if for one; None where there is nothing."""
    parts = [part for part in samples if part is not None and not _empty(part)]
    if not parts:
        return None
    if isinstance(parts[0], list):
        return [item for part in parts for item in part]
    return parts[0] if len(parts) == 1 else tree_cat(parts)


def _empty(part: Any) -> bool:
    if isinstance(part, list):
        return not part
    return isinstance(part, dict) and len(tree_leaves(part)[0]) == 0
