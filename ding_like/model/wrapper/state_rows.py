"""The recurrent states of all env columns as one tree, a row a column, and what their forms must agree in."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.data import numpify, torchify, tree_cat, tree_leaves, tree_map, tree_paths


class StateRows:
    """The state `[B, ...]` of all columns, or None while all are at their initial state.


    Args:
        hint: number of columns expected.
        initial: the initial state of n columns, from an example of the form.

    Attributes:
        tree: the state.
        count: number of columns.
        told: whether that is so; False where it is only the largest number seen so far.
        leaf: the type of the leaves: tensors, or arrays while a network steps in NumPy.
    """

    def __init__(self, hint: int | None, initial: Callable[[int, Any], Any]) -> None:
        self._hint, self._make = hint, initial
        self.leaf: type = torch.Tensor
        self.forget()

    def forget(self) -> None:
        """All columns at their initial state; their number is again what the hint says."""
        self.tree: Any = None
        self.count = self._hint or 0
        self.told = self._hint is not None

    def turn(self, leaf: type) -> None:
        """From now on the leaves are of that type, `torch.Tensor` or `np.ndarray`; those there keep their memory."""
        if leaf is not self.leaf:
            self.leaf = leaf
            self.tree = self._formed(self.tree)

    def _formed(self, tree: Any) -> Any:
        if tree is None or isinstance(_first(tree), self.leaf):
            return tree
        return numpify(tree) if self.leaf is np.ndarray else torchify(tree)

    def _initial(self, n: int, example: Any) -> Any:
        return self._formed(self._make(n, example))

    def columns(self, data_id: Any) -> list[int]:
        """`data_id` as a list of different column numbers. Raises TypeError or ValueError naming what is wrong."""
        ids = data_id.tolist() if hasattr(data_id, "tolist") else data_id
        ids = [ids] if isinstance(ids, int) else list(ids)
        if set(map(type, ids)) - {int}:
            if not all(hasattr(i, "__index__") and not isinstance(i, bool) for i in ids):
                raise TypeError(f"hidden_state: data_id is {data_id!r}; wanted column numbers")
            ids = [operator.index(i) for i in ids]
        if len(set(ids)) != len(ids) or min(ids, default=0) < 0:
            raise ValueError(f"hidden_state: data_id is {ids}; wanted different column numbers from 0")
        if self.told and max(ids, default=0) >= self.count and (self.tree is not None or not _in_order(ids)):
            raise ValueError(
                f"hidden_state: data_id is {ids}, there are {self.count} columns; wanted smaller numbers: set "
                "state_num, or call reset(state=...) with the state of all columns"
            )
        return ids

    def take(self, columns: list[int] | None, n: int) -> Any:
        """The rows of the columns (n, all for None); None where their initial state is not known."""
        if self.tree is None:
            return self._initial(n if columns is None else len(columns), None)
        if columns is None or self._is_all(columns):
            return self.tree
        self.grow(max(columns, default=-1) + 1)
        return tree_map(lambda leaf: _rows_of(leaf, columns), self.tree)

    def put(self, columns: list[int] | None, state: Any) -> None:
        """Keep the state of the columns (all for None: their number is that of its rows)."""
        state = self._formed(state)
        if columns is None:
            self.tree, self.count, self.told = state, row_count(state), True
        elif columns:
            self.count = max(self.count, len(columns)) if self.tree is None else self.count
            if self._is_all(columns):
                self.tree = state
                return
            if self.tree is None:
                self.tree = self._initial(self.count, state)
            self.grow(max(columns) + 1)
            self.tree = tree_map(lambda leaf, rows: _with_rows(leaf, columns, rows), self.tree, state)

    def state_dict(self) -> dict[str, Any]:
        """All of it; the tensors are the live ones."""
        return {"tree": self.tree, "count": self.count, "told": self.told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.tree, self.count, self.told = self._formed(state["tree"]), int(state["count"]), bool(state["told"])

    def _is_all(self, columns: list[int]) -> bool:
        return len(columns) == self.count and _in_order(columns)

    def grow(self, n: int) -> None:
        """At least n columns, the new ones at their initial state."""
        missing = n - self.count
        if missing > 0:
            self.tree = tree_cat([self.tree, self._initial(missing, self.tree)])
            self.count += missing


def _rows_of(leaf: Any, columns: list[int]) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf[columns]
    return leaf.index_select(0, torch.as_tensor(columns, dtype=torch.long, device=leaf.device))


def _with_rows(leaf: Any, columns: list[int], rows: Any) -> Any:
    """A copy of the leaf in which the columns are `rows`."""
    if isinstance(leaf, np.ndarray):
        out = leaf.copy("K")  # in the order that the network made
        out[columns] = rows
        return out
    return leaf.index_copy(0, torch.as_tensor(columns, dtype=torch.long, device=leaf.device), rows.to(leaf.dtype))


def _in_order(columns: list[int]) -> bool:
    return columns == list(range(len(columns)))


def row_count(tree: Any) -> int:
    """B of a state `[B, ...]`."""
    return _first(tree).shape[0]


def _first(tree: Any) -> Any:
    """The first leaf, None where there is none."""
    first = tree
    while type(first) is dict and first:
        first = next(iter(first.values()))
    return first if isinstance(first, (torch.Tensor, np.ndarray)) else next(iter(tree_leaves(tree)), None)


def detached(tree: Any) -> Any:
    """The tree without its gradient."""
    if type(tree) is dict:
        return {key: detached(value) for key, value in tree.items()}
    return tree.detach() if isinstance(tree, torch.Tensor) else tree_map(torch.Tensor.detach, tree)


def _shapes(tree: Any) -> str:
    return ", ".join(f"{path or 'state'} {list(getattr(leaf, 'shape', ()))}" for path, leaf in tree_paths(tree))


def check_rows(tree: Any, n: int | None, what: str) -> None:
    """Raises ValueError where not every leaf is a tensor `[n, ...]`; of one n for None."""
    if n is None:
        n = next((leaf.shape[0] for leaf in tree_leaves(tree) if getattr(leaf, "ndim", 0)), None)
    if not _have_rows(tree, n):
        raise ValueError(
            f"hidden_state: {what} has leaves {_shapes(tree) or repr(tree)}; wanted tensors of {n or 'equally many'} "
            "rows, one a column (inference=True is for one step [B, ...], inference=False for an unroll [T, B, ...])"
        )


def _have_rows(tree: Any, n: int | None) -> bool:
    if isinstance(tree, torch.Tensor):
        return tree.ndim > 0 and tree.shape[0] == n
    if type(tree) is dict:
        return len(tree) > 0 and all(value is None or _have_rows(value, n) for value in tree.values())
    leaves = tree_leaves(tree)
    return len(leaves) > 0 and all(isinstance(leaf, torch.Tensor) and _have_rows(leaf, n) for leaf in leaves)


def _form(tree: Any) -> list[tuple[str, Any]]:
    return [(path, leaf.shape[1:]) for path, leaf in tree_paths(tree)]


def check_form(tree: Any, like: Any, what: str) -> None:
    """Raises ValueError where two trees differ in more than their rows."""
    if _form(tree) != _form(like):
        raise ValueError(
            f"hidden_state: {what} has leaves {_shapes(tree)}, the state known so far {_shapes(like)}; wanted the same "
            "names and the same shapes after the first axis"
        )
