"""Rows of collected steps: memory allocated from the first row, written in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ding_like.data import (
    Block,
    RowLink,
    buffer_from_example,
    tree_cat,
    tree_index,
    tree_leaves,
    tree_map,
    tree_paths,
    tree_write,
)

NO_ENDS = np.empty(0, np.int64)
Memory = Callable[[dict[str, Any], bool], dict[str, Any]]


class Part(NamedTuple):
    """Some columns of a row, where not all are stepped together."""

    columns: slice
    total: int  # columns of a whole row
    begins: bool  # whether it is the first part of its row


class Slab:
    """`[capacity + 1, B]` rows; the first `carry` of a new block are the last ones of the block before.

    Args:
        capacity: rows of the largest block, the carry included.
        carry: rows at a block's end that wait for their n-step future.
        masked: keep a field `mask` (float32): 1 for a transition, 0 for a row in which a column only was reset.
        memory: makes arrays `[capacity + 1, B, ...]` for the fields of a row `[B, ...]`, told whether `next_obs` is by
            reference; None allocates them here.
    """

    def __init__(self, capacity: int, carry: int, masked: bool = False, memory: Memory | None = None) -> None:
        self.capacity = capacity
        self._memory = memory or self._own_memory
        self.carry = carry
        self.masked = masked
        self.fill = 0  # rows written
        self.fresh = 0  # of these, rows that the block before showed too
        self._fields: dict[str, Any] = {}
        self._checked: list[tuple[str, np.ndarray, int]] = []
        self._shown: dict[int, tuple[dict[str, Any], Any]] = {}  # views of the first n rows, by n: blocks are alike
        self._linked = False
        self._rows: Any = None
        self._ends: list[np.ndarray] = []  # flat rows at which episodes ended, one array for each row with ends
        self._finals: list[Any] = []
        self._columns = 0
        self._width = 0  # entries of a row

    @property
    def linked(self) -> bool:
        """Whether the next observation of a row is what the row after it shows."""
        return self._linked

    def set_memory(self, memory: Memory) -> None:
        """Take arrays of another making from the first row on."""
        self._memory = memory

    def begin_rows(self, row: dict[str, Any], linked: bool, columns: int) -> None:
        """Make memory for rows like `row` `[1, ...]` of so many columns, which somebody else writes."""
        self._linked, self._columns, self._width = linked, columns, len(row)
        self._buffers(row)

    def write(
        self, obs: Any, row: dict[str, Any], timestep: Any, idle: np.ndarray = NO_ENDS, part: Part | None = None
    ) -> None:
        """Append one row: fields `[B, ...]`. A `next_obs` that *is* `timestep.obs` is kept by reference.

        Args:
            idle: columns for which the row is no transition (of a slab that is `masked`).
            part: the row has these columns only, of B in all; the first part of a row begins it.
        """
        if not self._fields:
            self._allocate(obs, row, timestep, part)
        t = self.fill
        key: Any = t
        if part is not None:
            t = t if part.begins else t - 1
            key = t, part.columns
        fields = self._fields
        if self._linked and (row.get("next_obs") is not timestep.obs or row.get("obs") is not obs):
            raise ValueError(
                "_process_transition: the first row stored `obs` and `timestep.obs` themselves, this one another "
                "array; store the same in every row, or a changed copy in every row"
            )
        if len(row) != self._width:
            raise ValueError(
                f"_process_transition returned the fields {list(row)}, the first row had {list(fields)}"
                f"{' and next_obs' if self._linked else ''}; every row needs the same"
            )
        try:
            for name, value in row.items():
                if name == "next_obs" and self._linked:
                    continue
                field = fields[name]
                if value is None or field is None:
                    if value is not field:
                        raise ValueError(f"field '{name}' is None in one row and not in another")
                elif type(field) is np.ndarray:
                    field[key] = value
                else:
                    tree_write(field, key, value)
        except (KeyError, ValueError, TypeError) as err:
            raise type(err)(
                f"_process_transition: the row does not fit the first one, whose fields are {list(fields)}: {err}"
            ) from err
        if self.masked:
            fields["mask"][key] = 1.0
            fields["mask"][t, idle] = 0.0
        self.fill = t + 1

    def end(self, columns: np.ndarray, finals: Any, row: int = -1) -> None:
        """The row just written (or `row`) ended episodes in `columns [K]`, with the final observations `[K, ...]`."""
        self._ends.append((self.fill - 1 if row < 0 else row) * self._columns + columns)
        self._finals.append(finals)

    def take_ends(self) -> list[tuple[np.ndarray, Any]]:
        """What `end` noted, as (flat rows, finals); it is forgotten here."""
        ends, self._ends, self._finals = list(zip(self._ends, self._finals)), [], []
        return ends

    def gap(self, columns: np.ndarray, row: int) -> None:
        """In `columns` row `row` is no transition and belongs to no episode: the row before ends one, truncated.

        It has to show the observation that the last one led to. Where no row is left here there is nothing to do: the
        last one was given out with that observation to come.
        """
        if row > 0:
            self._truncate((row - 1, columns))

    def _truncate(self, where: Any) -> None:
        """Make rows ends of episodes: truncated, where they are not terminated."""
        fields = self._fields
        terminated, truncated = fields["terminated"][where], fields["truncated"][where]
        fields["truncated"][where] = np.logical_or(truncated, np.logical_not(terminated))
        if isinstance(fields.get("done"), np.ndarray):
            fields["done"][where] = True

    def block(self, ready_obs: Any) -> Block:
        """The rows as a `Block` of views; `ready_obs [B]` is the observation after the last row.

        Raises FloatingPointError naming field, row and column where an observation or reward is not finite.
        """
        rows = self.fill
        link = None
        if self._linked:
            tree_write(self._rows, rows, ready_obs)
        ends = np.concatenate(self._ends) if self._ends else NO_ENDS
        finals = tree_cat(self._finals) if self._ends else None
        self._check_finite(rows, ends, finals)
        if rows not in self._shown:
            self._shown[rows] = (
                {name: tree_map(lambda a: _view(a, rows), field) for name, field in self._fields.items()},
                tree_index(self._rows, slice(0, rows + 1)),
            )
        fields, obs_rows = self._shown[rows]
        if self._linked:
            link = RowLink(obs_rows, ends, finals, self._columns)
        return Block(fields, rows - self.carry, link)

    def shift(self, to: Slab | None = None) -> None:
        """Start the next block, here or in another slab: the last `carry` rows become its first."""
        to = to or self
        rows, keep = self.fill, self.carry
        first = rows - keep
        if keep:
            for name, field in self._fields.items():
                tree_map(lambda a, b: b.__setitem__(slice(0, keep), a[first:rows].copy()), field, to._fields[name])
        drop = first * self._columns
        kept = [(e - drop, f) for e, f in zip(self._ends, self._finals) if e[0] >= drop]
        self._ends, self._finals = [], []
        to._ends, to._finals = [e for e, _ in kept], [f for _, f in kept]
        to.fill = to.fresh = keep

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict | None:
        """The rows that come again in the next block; None where there are none."""
        if not self.fill:
            return None
        return {
            "fields": {name: tree_map(lambda a: a[: self.fill], field) for name, field in self._fields.items()},
            "linked": self._linked,
            "width": self._width,
            "fresh": self.fresh,
            "ends": list(self._ends),
            "finals": list(self._finals),
        }

    def load_state_dict(self, state: dict | None) -> None:
        """Restore `state_dict` into a new slab."""
        if state is None:
            return
        first = next(leaf for leaf in tree_leaves(state["fields"]))
        self.fill, self._columns = first.shape[:2]
        self.fresh, self._width, self._linked = state["fresh"], state["width"], state["linked"]
        self._ends, self._finals = list(state["ends"]), list(state["finals"])
        self._buffers({name: tree_index(value, 0) for name, value in state["fields"].items()})
        for name, value in state["fields"].items():
            tree_map(lambda to, rows: to.__setitem__(slice(0, self.fill), rows), self._fields[name], value)

    def cut(self, obs: Any) -> None:
        """End every open episode with the last row: truncated, with the final observation `obs [B]`."""
        if not self.fill:
            return
        last = self.fill - 1
        self._truncate(last)
        shown = tree_map(np.copy, obs)
        while self._ends and self._ends[-1][0] // self._columns == last:  # one or two entries a row
            tree_write(shown, self._ends.pop() % self._columns, self._finals.pop())
        self.end(np.arange(self._columns), shown)

    def _allocate(self, obs: Any, row: dict[str, Any], timestep: Any, part: Part | None = None) -> None:
        columns, self._width = len(timestep.reward), len(row)
        self._columns = columns if part is None else part.total
        for path, leaf in tree_paths(row):
            if len(np.shape(leaf)) == 0 or len(leaf) != columns:
                raise ValueError(
                    f"_process_transition: field '{path}' has shape {list(np.shape(leaf))}; wanted one entry an env "
                    f"column, [{columns}, ...]"
                )
        if self.masked and "mask" in row:
            raise ValueError(
                "_process_transition: the field 'mask' is the collector's here, as this env manager has rows that are "
                "no transition; choose another name"
            )
        self._linked = row.get("next_obs") is timestep.obs and row.get("obs") is obs
        self._buffers({k: v for k, v in row.items() if not (k == "next_obs" and self._linked)})

    def _own_memory(self, row: dict[str, Any], linked: bool) -> dict[str, Any]:
        lead = (self.capacity + 1, self._columns)
        return {
            name: None if value is None else buffer_from_example(tree_index(value, 0), lead)
            for name, value in row.items()
        }

    def _buffers(self, row: dict[str, Any]) -> None:
        """Memory for rows like this one, `[B, ...]`."""
        if self.masked:
            row = {**row, "mask": np.zeros(len(next(iter(tree_leaves(row)))), np.float32)}
        self.adopt(self._memory(row, self._linked), self._linked, self._columns, self._width)

    def adopt(self, fields: dict[str, Any], linked: bool, columns: int, width: int) -> None:
        """Keep rows in these arrays `[capacity + 1, B, ...]`, of which another process may write some columns."""
        self._fields, self._linked, self._columns, self._width = fields, linked, columns, width
        self._rows = self._fields.get("obs")
        # The row after the last observation is what its steps lead to.
        extra = {"obs": int(self._linked), "reward": 0, "next_obs": 0}
        self._checked = [
            (name, leaf, more)
            for name, more in extra.items()
            for leaf in tree_leaves(self._fields.get(name))
            if leaf.dtype.kind == "f"
        ]

    def _check_finite(self, rows: int, ends: np.ndarray, finals: Any) -> None:
        fresh = self.fresh
        for name, leaf, extra in self._checked:
            part = leaf[fresh : rows + extra]
            if not math.isfinite(np.add.reduce(part, None)):  # a large but finite sum may overflow, so look closer
                bad = np.argwhere(~np.isfinite(part))
                if len(bad):
                    raise NonFiniteError(name, int(bad[0][0]), int(bad[0][1]), rows - fresh)
        for leaf in tree_leaves(finals):
            bad = ~np.isfinite(leaf.reshape(len(ends), -1)).all(1)  # [K]
            for flat in ends[bad].tolist():
                t, column = divmod(flat, self._columns)
                if t >= fresh:
                    raise NonFiniteError("the final obs", t - fresh, column, rows - fresh)


def _view(a: np.ndarray, rows: int) -> np.ndarray:
    """The first rows, read-only: the last of them come again in the next block."""
    view = a[:rows]
    view.flags.writeable = False
    return view


class NonFiniteError(FloatingPointError):
    """A NaN or infinity in what an env returned."""

    def __init__(self, field: str, row: int, column: int, rows: int) -> None:
        self.field, self.row, self.column, self.rows = field, row, column, rows
        super().__init__(f"{field} of env column {column} is not finite")
