"""Segments: the rows of B endless columns in pieces of one length, which go on across the ends of episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, RowLink, tree_cat, tree_index, tree_map, tree_write
from ding_like.rl_utils.stream import next_obs_at
from ding_like.rl_utils.windows import as_numpy


class SegmentStream:
    """Cuts the blocks of a collector into segments of `unroll_len` slots and one more, which shows what the last of
    them led to. Espeholt 2018, section 3.

    Every slot shows the true next observation of the slot before, unless that one terminated: after a truncated end a
    null slot with the final observation is put in (a row that is no transition is such a slot already). A column's next
    segment begins with its first row that is in none yet, so that every row trains exactly once and none is padding.

    Rows that wait for the end of their segment are copied: a block shows new rows alone (`carry` is 0).

    Args:
        columns: env columns of a block.
        unroll_len: steps of a segment.
    """

    carry = 0

    def __init__(self, columns: int, unroll_len: int) -> None:
        self._columns, self._length = columns, unroll_len
        self._rows: Block | None = None  # from the first that waits on
        self._start = np.zeros(columns, np.int64)  # of these, the first that waits in each column
        self._waiting = np.zeros(columns, np.int64)  # slots of each column's open segment

    def rows_for(self, samples: int) -> int:
        """The fewest rows of a block that complete so many segments, if no episode is truncated."""
        rounds = np.arange(1, -(-samples // self._columns) + 1)[:, None]
        due = rounds * self._length - self._waiting  # [rounds, B] rows after which there is one more
        return max(1, int(np.partition(due, samples - 1, axis=None)[samples - 1]))

    def take(self, block: Block, fresh: int) -> ArrayDict | None:
        """The segments `[N, unroll_len + 1]` that the rows of the block complete; None if there is none.

        They have the fields of a row and `mask` (float32), 1 where a slot is a transition that trains: not in the last
        slot, nor in a null slot, whose other fields repeat a row's. `prev_state` keeps its first slot, `[N, 1, ...]`.
        After a slot that terminated, and after a null slot, a state begins anew.
        """
        rows = _joined(self._rows, _as_rows(block))
        slots = _Slots(rows, self._columns)
        at = slots.of_row(self._start)
        found = []  # columns and first slots
        while len(full := np.flatnonzero(at + self._length <= slots.end)):
            found.append(np.stack([full, at[full]]))
            at[full] = slots.real_from(at[full] + self._length, full)
        out = self._gather(rows, slots, *np.concatenate(found, 1)) if found else None
        self._waiting = slots.end - at
        self._start = slots.row_at(at)
        first = int(self._start.min())
        self._rows = _kept(rows, first)
        self._start -= first
        return out

    def _gather(self, rows: Block, slots: _Slots, column: np.ndarray, first: np.ndarray) -> ArrayDict:
        column, at = column[:, None], first[:, None] + np.arange(self._length)  # [N, U]
        t = slots.row[np.concatenate([at, at[:, -1:]], 1)]  # [N, U + 1]
        out = ArrayDict()
        for name, field in dict.items(rows):
            if field is not None and name not in ("mask", "next_obs"):
                out[name] = tree_index(field, (t[:, :1] if name == "prev_state" else t, column))
        last = np.ones((len(t), 1), bool)
        segment, slot = np.nonzero(np.concatenate([slots.added[at], last], 1))
        tree_write(out["obs"], (segment, slot), next_obs_at(rows, t[segment, slot], column[segment, 0]))
        out["mask"] = (~np.concatenate([slots.null[at], last], 1)).astype(np.float32)
        return out

    def cut(self, columns: Any = None) -> None:
        """Open episodes of `columns` (None: all) were made to end, truncated, with the last row."""
        rows = self._rows
        if rows is None:  # all that was shown has trained, bootstrapped from the observation after it
            return
        last = len(rows) - 1
        b = np.arange(self._columns) if columns is None else np.asarray(columns)
        rows["truncated"][last, b] |= ~rows["terminated"][last, b]
        link = rows.link
        if link is not None:
            b = b[~np.isin(last * self._columns + b, link.ends)]
            after = tree_index(link.rows, (last + 1, b))
            finals = after if link.finals is None else tree_cat([link.finals, after])
            ends = np.concatenate([link.ends, last * self._columns + b])
            order = np.argsort(ends)
            rows.link = RowLink(link.rows, ends[order], tree_index(finals, order), self._columns)

    def state_dict(self) -> dict[str, Any]:
        """The rows that wait, and where every column stands."""
        rows = self._rows
        state: dict[str, Any] = {"start": self._start, "waiting": self._waiting, "fields": None, "link": None}
        if rows is not None:
            state["fields"] = dict(_own_fields(rows))
            state["link"] = None if rows.link is None else [rows.link.rows, rows.link.ends, rows.link.finals]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`. Raises ValueError for another number of columns."""
        if len(state["start"]) != self._columns:
            raise ValueError(f"the saved run has {len(state['start'])} env columns, this one {self._columns}")
        self._start, self._waiting = state["start"].copy(), state["waiting"].copy()
        self._rows = None
        if state["fields"] is not None:
            link = None
            if state["link"] is not None:
                rows, ends, finals = state["link"]
                link = RowLink(rows, ends, finals, self._columns)
            self._rows = _kept(Block(state["fields"], 0, link), 0)


class _Slots:
    """The slots of rows `[R, B]`, column by column: one for each row, and those added after truncated ends.

    Attributes:
        row: `[S]`, the row that a slot shows, or comes after.
        added: `[S]`, whether it was added.
        null: `[S]`, whether it is no transition.
        end: `[B]`, one past the last slot of each column.
    """

    def __init__(self, rows: Block, columns: int) -> None:
        ended = as_numpy(rows["truncated"]).astype(bool) & ~as_numpy(rows["terminated"]).astype(bool)  # [R, B]
        if rows.link is not None:  # elsewhere the next row shows the final observation
            beside = np.zeros(ended.size, bool)
            beside[rows.link.ends] = True
            ended = ended & beside.reshape(ended.shape)
        length = len(ended)
        longer = ended.T.reshape(-1)
        stop = np.cumsum(1 + longer)  # one past the slots of each row
        self._first = (stop - 1 - longer).reshape(columns, length)
        self.end = stop[length - 1 :: length].copy()
        self.row = np.repeat(np.tile(np.arange(length), columns), 1 + longer)
        self.added = np.zeros(len(self.row), bool)
        self.added[stop[longer] - 1] = True
        self.null = self.added.copy()
        if "mask" in rows:
            self.null[self._first[as_numpy(rows["mask"]).T <= 0]] = True
        total = len(self.null)
        following = np.where(self.null, total, np.arange(total))
        self._real = np.append(np.minimum.accumulate(following[::-1])[::-1], total)

    def of_row(self, row: np.ndarray) -> np.ndarray:
        """`[B]`: the first slot from row `row [B]` of each column on that is a transition; `end` if there is none."""
        columns = np.arange(len(row))
        inside = np.minimum(row, self._first.shape[1] - 1)
        at = np.where(row == inside, self._first[columns, inside], self.end)
        return self.real_from(at, columns)

    def real_from(self, at: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The first transitions from the slots `at [K]` of `columns [K]` on; `end` where there is none."""
        return np.minimum(self._real[at], self.end[columns])

    def row_at(self, at: np.ndarray) -> np.ndarray:
        """`[B]`: the rows of the slots `at [B]`; the next row to come for `end`."""
        return np.where(at < self.end, self.row[np.minimum(at, len(self.row) - 1)], self._first.shape[1])


def _as_rows(block: Block) -> Block:
    """Rows whose next observations are either all by reference or all a field of their own."""
    if block.linked:
        return block
    if "next_obs" not in block:
        raise ValueError(
            "the steps have no field 'next_obs': the last slot of a segment shows the observation that values are "
            "bootstrapped from; let _process_transition store next_obs=timestep.obs"
        )
    return Block(dict.items(block.unlinked()))


def _joined(old: Block | None, new: Block) -> Block:
    """The rows of both, one after the other's."""
    if old is None:
        return new
    fields, link = tree_cat([_own_fields(old), _own_fields(new)]), None
    if old.link is not None and new.link is not None:
        before = len(old)
        obs = tree_cat([tree_index(old.link.rows, slice(0, before)), new.link.rows])
        ends = np.concatenate([old.link.ends, new.link.ends + before * new.link.columns])
        parts = [rows.link.finals for rows in (old, new) if rows.link is not None and len(rows.link.ends)]
        fields["obs"] = tree_index(obs, slice(0, -1))
        link = RowLink(obs, ends, tree_cat(parts) if parts else None, new.link.columns)
    return Block({name: fields[name] for name in dict.keys(new)}, 0, link)


def _kept(rows: Block, first: int) -> Block | None:
    """A copy of the rows from `first` on; None where there is none."""
    if first == len(rows):
        return None
    link, tail = rows.link, slice(first, None)
    kept = Block(tree_map(lambda a: np.array(a[tail]), _own_fields(rows)))
    if link is not None:
        obs = tree_map(lambda a: np.array(a[tail]), link.rows)
        some = int(np.searchsorted(link.ends, first * link.columns))
        ends = link.ends[some:] - first * link.columns
        kept["obs"] = tree_index(obs, slice(0, -1))
        kept.link = RowLink(obs, ends, tree_index(link.finals, slice(some, None)) if len(ends) else None, link.columns)
    return kept


def _own_fields(rows: Block) -> ArrayDict:
    """The fields, without observations that the link holds too."""
    return ArrayDict({name: field for name, field in dict.items(rows) if name != "obs" or rows.link is None})
