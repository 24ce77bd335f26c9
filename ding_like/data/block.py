"""`Block`: contiguous rows `[L, B]` a collector hands over, with `next_obs` kept by reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data.array_dict import ArrayDict
from ding_like.data.tree import tree_index, tree_leaves, tree_map, tree_write


class RowLink:
    """The next observation of every row, as references.

    Attributes:
        rows: tree `[L + 1, B, ...]`: the observation of every row and of the step after the last.
        ends: int array `[K]`: flat indices `t * B + b`, ascending, of rows at which an episode ended.
        finals: tree `[K, ...]`: the true final observations of those rows; None where there are none.
        columns: B.
        hop: int array `[E, B]`, distance from a row to the row its bootstrap observation stands at; None
            means 1.
    """

    __slots__ = ("columns", "ends", "finals", "hop", "rows")

    def __init__(self, rows: Any, ends: np.ndarray, finals: Any, columns: int, hop: np.ndarray | None = None) -> None:
        self.rows = rows
        self.ends = ends
        self.finals = finals
        self.columns = columns
        self.hop = hop

    def with_hop(self, hop: np.ndarray | None) -> RowLink:
        """The same rows seen at another distance."""
        return RowLink(self.rows, self.ends, self.finals, self.columns, hop)

    def materialise(self, starts: int) -> Any:
        """The next observations `[starts, B, ...]` as arrays of their own."""
        t = np.arange(starts)[:, None]
        hop = np.ones((starts, self.columns), np.int64) if self.hop is None else self.hop[:starts].astype(np.int64)
        out = tree_index(self.rows, (t + hop, np.arange(self.columns)))  # [E, B, ...], a copy
        if not len(self.ends):
            return out
        end = (t + hop - 1) * self.columns + np.arange(self.columns)  # [E, B] the row whose next obs it is
        slot = np.searchsorted(self.ends, end)
        slot[slot == len(self.ends)] = 0
        hit = self.ends[slot] == end
        if hit.any():
            tree_write(out, hit, tree_index(self.finals, slot[hit]))
        return out


class Block(ArrayDict):
    """Rows `[L, B]`; the first `starts` of them may start an item, the rest wait for their n-step future.

    Reading `block['next_obs']` materialises the linked next observations (once, read-only); assigning it
    replaces the link by a field of its own. `block.link` is the link itself.
    """

    starts: int
    link: RowLink | None

    def __init__(self, fields: Any = (), starts: int = 0, link: RowLink | None = None) -> None:
        super().__init__(fields)
        self.starts = starts
        self.link = link
        self._next: Any = None

    @property
    def linked(self) -> bool:
        """Whether `next_obs` is a reference into the rows that the field `obs` shows."""
        if self.link is None or dict.__contains__(self, "next_obs") or not dict.__contains__(self, "obs"):
            return False
        shown, rows = tree_leaves(dict.__getitem__(self, "obs")), tree_leaves(self.link.rows)
        return len(shown) == len(rows) and all(_shows(a, b) for a, b in zip(shown, rows))

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            if key == "next_obs" and self.link is not None and not dict.__contains__(self, key):
                if self._next is None:
                    self._next = tree_map(_frozen, self.link.materialise(len(self)))
                return self._next
            return super().__getitem__(key)
        return self.unlinked()[key]

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (key == "next_obs" and self.link is not None)

    def keys(self) -> Any:
        """The field names, `next_obs` among them."""
        names = list(dict.keys(self))
        return [*names, "next_obs"] if "next_obs" in self and "next_obs" not in names else names

    def __iter__(self) -> Any:
        return iter(self.keys())

    def items(self) -> Any:
        """Pairs (name, field), `next_obs` among them."""
        return [(name, self[name]) for name in self.keys()]

    def values(self) -> Any:
        """The fields, `next_obs` among them."""
        return [self[name] for name in self.keys()]

    def __reduce__(self) -> tuple:
        """A linked block pickles its observations once, and is linked again where it is unpickled."""
        fields = dict(dict.items(self))
        length = len(self)
        if self.linked:
            del fields["obs"]
        return _restore, (fields, list(dict.keys(self)), self.starts, self.link, length)

    def unlinked(self) -> ArrayDict:
        """All rows with `next_obs` as a field like any other: what indexing and `tree_map` see."""
        fields = ArrayDict(dict.items(self))
        if "next_obs" in self:
            fields["next_obs"] = self["next_obs"]
        return fields

    def copy(self) -> Block:
        return Block(dict.items(self), self.starts, self.link)

    def flat(self) -> ArrayDict:
        """Every item on its own: fields `[starts * B, ...]`, `next_obs` included; copies.

        Rows whose `mask` is 0 are no transitions: they are left out, and the field with them.
        """
        n = self.starts
        fields = {k: v for k, v in dict.items(self.unlinked()) if v is not None}
        mask = fields.pop("mask", None)
        if mask is None:
            return ArrayDict(tree_map(lambda a: a[:n].reshape((-1,) + a.shape[2:]).copy(), fields))
        real = np.flatnonzero(mask[:n] > 0)
        return ArrayDict(tree_map(lambda a: a[:n].reshape((-1,) + a.shape[2:]).take(real, 0), fields))


def _shows(field: Any, rows: Any) -> bool:
    """Whether `field` is a view of the first of `rows`."""
    return (
        field.__array_interface__["data"][0] == rows.__array_interface__["data"][0]
        and field.strides == rows.strides
        and field.shape[1:] == rows.shape[1:]
        and field.dtype == rows.dtype
    )


def _restore(fields: dict, order: list, starts: int, link: RowLink | None, length: int) -> Block:
    if link is not None and "obs" in order and "obs" not in fields:
        fields = {**fields, "obs": tree_index(link.rows, slice(0, length))}
    return Block({name: fields[name] for name in order}, starts, link)


def _frozen(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a
