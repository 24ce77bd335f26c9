"""What rings are made of: rows that wrap, and trees of arrays as plain state."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_map
from ding_like.utils.collate import collate_items

Spans = list[tuple[int, int, slice]]


def copied_items(items: Any) -> ArrayDict | None:
    """A copy of a tree `[N, ...]` or a list of dictionaries, without fields that are None; None of an empty list."""
    if isinstance(items, list):
        if not items:
            return None
        items = tree_map(np.asarray, collate_items(items))
    return ArrayDict({name: tree_map(np.array, value) for name, value in items.items() if value is not None})


def spans(start: int, rows: int, size: int) -> Spans:
    """Where `rows` rows from `start` lie in a ring of `size`: (first row, end row, the part of the source), split at
    the wrap.
    """
    end = start + rows
    if end <= size:
        return [(start, end, slice(0, rows))]
    head = size - start
    return [(start, size, slice(0, head)), (0, rows - head, slice(head, rows))]


def plain(tree: Any) -> Any:
    """The same arrays in plain dictionaries and tuples."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in dict.items(tree)}
    return tuple(map(plain, tree)) if type(tree) is tuple else tree


def copied(tree: Any, length: int | None = None) -> Any:
    """A copy of what `plain` made, its arrays lengthened to `length`, with `ArrayDict` for its dictionaries."""
    if isinstance(tree, dict):
        return ArrayDict({name: copied(value, length) for name, value in tree.items()})
    if type(tree) is tuple:
        return tuple(copied(value, length) for value in tree)
    return tree_map(lambda a: lengthened(a, len(a) if length is None else length), tree)


def lengthened(array: np.ndarray, length: int, fill: int = 0) -> np.ndarray:
    """A copy that goes on with `fill` to `length` rows."""
    new = np.zeros((length,) + array.shape[1:], array.dtype)
    new[: len(array)] = array
    if fill:
        new[len(array) :] = fill
    return new


def write(field: Any, where: Spans, value: Any) -> None:
    """Write the rows of `value` where `spans` says."""
    if type(field) is np.ndarray:
        for start, stop, part in where:
            field[start:stop] = value[part]
    else:
        tree_map(lambda to, source: write(to, where, source), field, value)


def take(value: Any, address: np.ndarray) -> Any:
    """Rows at `address`, which may run past the end by less than one round."""
    if type(value) is np.ndarray:
        return value.take(address, 0, None, "wrap")
    return tree_map(lambda a: a.take(address, 0, mode="wrap"), value)
