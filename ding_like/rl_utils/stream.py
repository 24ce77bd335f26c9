"""The streaming adder: windows of B endless rows of episodes, each given out as soon as it is complete."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, RowLink, tree_index, tree_write
from ding_like.rl_utils.windows import as_numpy, mark_null, plan_windows, row_ends


class WindowStream:
    """Cuts the blocks of a collector into the windows that `get_train_sample` would cut whole episodes into.

    A window is complete when its last slot is there, or its episode has ended; episodes may be endless. A block must
    show the last `carry` rows of the block before again.

    Args:
        columns: env columns of a block.
        burnin, unroll_len, stride, tail, last_fn_type: as of `get_train_sample`.

    Attributes:
        carry: rows of a block that the next one must show again: those of a window that are there before its last is,
            or before its episode is made to end (`cut`).
    """

    def __init__(
        self,
        columns: int,
        unroll_len: int,
        *,
        burnin: int = 0,
        stride: int | None = None,
        tail: int = 0,
        last_fn_type: str = "last",
    ) -> None:
        self._columns = columns
        self._plan = plan_windows(unroll_len, last_fn_type, burnin, stride, tail)
        self._tail = tail
        self._reach = self._plan.span + tail  # rows from the first trained step of a window to its last slot
        self.carry = self._plan.width - min(tail, 1)
        self._seen = 0  # rows of all blocks so far
        self._start = np.zeros(columns, np.int64)  # first row of the open episode of each column, counted as `_seen`
        self._given = np.zeros(columns, np.int64)  # windows of it that were given out
        self._again = False  # whether the last row seen may have become an end since

    def rows_for(self, samples: int) -> int:
        """Rows of a block that give about half of so many samples, so that they never give more."""
        return max(1, samples * self._plan.stride // (2 * self._columns))

    def take(self, block: Block, fresh: int) -> ArrayDict | None:
        """The windows `[N, U]` that the rows from `fresh` on complete, ordered by column; None if there is none.

        `null` (bool) and `mask` (float32) are among the fields; `prev_state` keeps its first slot, `[N, 1, ...]`. Slots
        after an end show the final observation.

        Raises ValueError where it is not stored and the windows have a tail, KeyError where no flag tells of ends.
        """
        if self._tail and "obs" in block and "next_obs" not in block:
            raise ValueError(
                "the steps have no field 'next_obs': where an episode is truncated the last tail (policy.nstep) slots "
                "of a window show its final observation, which values are bootstrapped from; let _process_transition "
                "store next_obs=timestep.obs"
            )
        ends = row_ends(block)  # [R, B]
        real = as_numpy(block["mask"]) > 0 if "mask" in block else None
        base, first, self._again = self._seen - fresh, max(0, fresh - self._again), False
        self._seen += len(ends) - fresh
        found: list[tuple[int, int, int, int, bool]] = []  # column, first and last row of its episode, window, ended
        for b in range(ends.shape[1]):
            for end in (np.flatnonzero(ends[first:, b]) + (first + base)).tolist():
                self._skip_idle(b, real, base)
                start = int(self._start[b])
                if start <= end:
                    found += [(b, start, end, trained, True) for trained in self._rest(b, end)]
                    self._start[b], self._given[b] = end + 1, 0
            self._skip_idle(b, real, base)
            found += [(b, int(self._start[b]), self._seen - 1, trained, False) for trained in self._whole(b)]
        return self._gather(block, np.array(found, np.int64), base) if found else None

    def _skip_idle(self, b: int, real: np.ndarray | None, base: int) -> None:
        """A row in which a column was only reset is part of no episode."""
        row = int(self._start[b]) - base
        while real is not None and 0 <= row < len(real) and not real[row, b]:  # before the block it began with a step
            row += 1
        self._start[b] = row + base

    def _rest(self, b: int, end: int) -> list[int]:
        """First trained steps of the windows still to come of the episode of column `b` that ended at row `end`."""
        return self._plan.firsts(end - int(self._start[b]) + 1)[int(self._given[b]) :]

    def _whole(self, b: int) -> list[int]:
        """First trained steps of the windows that the rows of an open episode have completed."""
        length = self._seen - int(self._start[b])
        total = 0 if length < self._reach else (length - self._reach) // self._plan.stride + 1
        firsts = [k * self._plan.stride for k in range(int(self._given[b]), total)]
        self._given[b] = max(total, int(self._given[b]))
        return firsts

    def _gather(self, block: Block, found: np.ndarray, base: int) -> ArrayDict:
        column, start, last, first, ended = found.T[:, :, None]  # [N, 1] each
        slots = start + self._plan.slots(first)  # [N, U]
        before, after = slots < start, (slots > last) & (ended > 0)
        rows = np.clip(slots, start, last) - base
        out = ArrayDict()
        for name, field in dict.items(block):
            if field is not None and name not in ("mask", "next_obs"):
                picked = rows[:, :1] if name == "prev_state" else rows
                out[name] = tree_index(field, (picked, column))
        if after.any() and "obs" in out and "next_obs" in block:
            window, slot = np.nonzero(after)
            t, b = last[window, 0] - base, column[window, 0]
            tree_write(out["obs"], (window, slot), next_obs_at(block, t, b))
        return mark_null(out, before | after, None)

    def cut(self, columns: Any = None) -> None:
        """Open episodes (of any columns) were made to end with the last row, which the next block shows as an end."""
        self._again = True

    def state_dict(self) -> dict[str, Any]:
        """Where every column stands."""
        return {"seen": self._seen, "start": self._start, "given": self._given, "again": self._again}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`. Raises ValueError for another number of columns."""
        if len(state["start"]) != len(self._start):
            raise ValueError(f"the saved run has {len(state['start'])} env columns, this one {len(self._start)}")
        self._seen, self._again = state["seen"], state["again"]
        self._start[:], self._given[:] = state["start"], state["given"]


def next_obs_at(block: Block, t: np.ndarray, b: np.ndarray) -> Any:
    """The true observations `[K, ...]` after the rows `t [K]` of columns `b [K]`."""
    link = block.link
    if link is None or dict.__contains__(block, "next_obs"):
        return tree_index(block["next_obs"], (t, b))
    return _following(link, t, b)


def _following(link: RowLink, t: np.ndarray, b: np.ndarray) -> Any:
    out = tree_index(link.rows, (t + 1, b))
    if len(link.ends):
        flat = t * link.columns + b
        slot = np.minimum(np.searchsorted(link.ends, flat), len(link.ends) - 1)
        hit = link.ends[slot] == flat
        if hit.any():
            tree_write(out, hit, tree_index(link.finals, slot[hit]))
    return out
