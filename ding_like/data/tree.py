"""Tree functions: the only language infrastructure speaks about data.

Nodes are dictionaries (`ArrayDict` among them), tuples (`namedarraytuple` among them) and `None`. Everything
else is a leaf: numpy arrays, torch tensors, scalars, lists, `Infos`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class LeafTuple(tuple):
    """A tuple that trees treat as one leaf (see `Infos`)."""

    __slots__ = ()


def is_tensor(x: Any) -> bool:
    """Whether `x` is a torch tensor. Does not import torch: where it was not imported, nothing is one."""
    return isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_node(x: Any) -> bool:
    """Whether `x` has children (a `None` is a node without any)."""
    return x is None or isinstance(x, dict) or (isinstance(x, tuple) and not isinstance(x, LeafTuple))


def rebuild_tuple(like: tuple, values: list) -> tuple:
    """A tuple of the type of `like` (named or plain) holding `values`."""
    return like._make(values) if hasattr(like, "_make") else tuple(values)


def tree_map(fn: Callable, tree: Any, *rest: Any) -> Any:
    """`fn` applied to every leaf; `rest` are trees of the same structure whose leaves are passed along.

    Raises ValueError where the structures differ, naming the keys.
    """
    if tree is None:
        return None
    if isinstance(tree, dict):
        if hasattr(type(tree), "unlinked"):
            tree = tree.unlinked()  # type: ignore[attr-defined]
        for other in rest:
            if not isinstance(other, dict) or other.keys() != tree.keys():
                got = list(other.keys()) if isinstance(other, dict) else type(other).__name__
                raise ValueError(f"trees differ: {list(tree.keys())} against {got}")
        raw = [dict.__getitem__] * len(rest)
        out = {k: tree_map(fn, v, *(get(other, k) for get, other in zip(raw, rest))) for k, v in dict.items(tree)}
        return type(tree)(out) if type(tree) is not dict else out
    if isinstance(tree, tuple) and not isinstance(tree, LeafTuple):
        for other in rest:
            if not isinstance(other, tuple) or len(other) != len(tree):
                raise ValueError(f"trees differ: a tuple of {len(tree)} against {type(other).__name__}")
        pairs = zip(tuple.__iter__(tree), *(tuple.__iter__(other) for other in rest))
        return rebuild_tuple(tree, [tree_map(fn, *p) for p in pairs])
    return fn(tree, *rest)


def tree_paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs (dotted path, leaf) in a fixed order."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for k, v in dict.items(tree):
            yield from tree_paths(v, f"{prefix}.{k}" if prefix else str(k))
    elif is_node(tree):
        names = getattr(tree, "_fields", None) or range(len(tree))
        for k, v in zip(names, tuple.__iter__(tree)):
            yield from tree_paths(v, f"{prefix}.{k}" if prefix else str(k))
    else:
        yield prefix, tree


def tree_leaves(tree: Any) -> list:
    """All leaves, in the order of `tree_paths`."""
    return [leaf for _, leaf in tree_paths(tree)]


def tree_index(tree: Any, key: Any) -> Any:
    """`leaf[key]` for every leaf."""
    if isinstance(tree, np.ndarray):
        return tree[key]
    return tree_map(lambda leaf: leaf[key], tree)


def tree_write(tree: Any, key: Any, value: Any) -> None:
    """`leaf[key] = value` in place; `value` is a tree of the same structure, or broadcasts to every leaf.

    A `None` in the destination is skipped. Errors name the failing field.
    """
    if isinstance(tree, np.ndarray) or is_tensor(tree):
        if value is None:  # numpy would write NaN
            raise TypeError("got None, wanted something that fits the array")
        tree[key] = value
    elif tree is None:
        return
    elif isinstance(tree, dict):
        source = value if isinstance(value, dict) else None
        for k, leaf in dict.items(tree):
            _write_field(k, leaf, key, value if source is None else _field(source, k, tree))
    elif is_node(tree):
        matched = isinstance(value, tuple) and not isinstance(value, LeafTuple)
        if matched and len(value) != len(tree):
            raise ValueError(f"cannot write {len(value)} fields into {len(tree)}")
        names = getattr(tree, "_fields", None) or range(len(tree))
        parts = tuple.__iter__(value) if matched else [value] * len(tree)
        for name, leaf, part in zip(names, tuple.__iter__(tree), parts):
            _write_field(name, leaf, key, part)
    else:
        tree[key] = value


def _field(source: dict, key: str, destination: dict) -> Any:
    if not dict.__contains__(source, key):
        raise KeyError(f"field '{key}' is missing: got {list(source.keys())}, wanted {list(destination.keys())}")
    return dict.__getitem__(source, key)


def _write_field(name: Any, leaf: Any, key: Any, value: Any) -> None:
    try:
        tree_write(leaf, key, value)
    except (ValueError, IndexError, TypeError, RuntimeError) as err:
        raise type(err)(f"in field '{name}': {err}") from err


def tree_stack(trees: list, axis: int = 0) -> Any:
    """Trees of one structure stacked along a new axis (numpy leaves, or torch if the first leaf is)."""
    return tree_map(lambda *xs: (_torch() if is_tensor(xs[0]) else np).stack(xs, axis), *trees)


def _torch() -> Any:
    return sys.modules["torch"]


def tree_cat(trees: list, axis: int = 0) -> Any:
    """Trees of one structure joined along an existing axis."""
    return tree_map(
        lambda *xs: _torch().cat(xs, axis) if is_tensor(xs[0]) else np.concatenate(xs, axis),
        *trees,
    )


def leading_shape(tree: Any, ndim: int = 1) -> tuple[int, ...]:
    """The first `ndim` axes of the first array leaf. Raises ValueError for a tree without one."""
    for leaf in tree_leaves(tree):
        if hasattr(leaf, "shape") and len(leaf.shape) >= ndim:
            return tuple(leaf.shape[:ndim])
    raise ValueError("the tree holds no array with that many leading axes")


def buffer_from_example(example: Any, lead: tuple[int, ...] | int) -> Any:
    """Zeroed numpy arrays `[*lead, *leaf.shape]` for every leaf of `example` (one step of one column)."""
    shape = (lead,) if isinstance(lead, int) else tuple(lead)

    def empty(leaf: Any) -> np.ndarray:
        a = leaf.detach().cpu().numpy() if is_tensor(leaf) else np.asarray(leaf)
        if a.dtype == object:
            raise TypeError(f"cannot make a buffer for a field of type {type(leaf).__name__}; wanted numbers")
        return np.zeros(shape + a.shape, a.dtype)

    return tree_map(empty, example)


def torchify(tree: Any) -> Any:
    """Numpy leaves become tensors that share their memory (read-only ones are copied); other leaves pass."""
    import torch

    def tensor(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        return torch.from_numpy(a if a.flags.writeable else a.copy())

    return tree_map(tensor, tree)


def numpify(tree: Any) -> Any:
    """CPU tensors become numpy arrays that share their memory; other leaves pass."""
    return tree_map(lambda a: a.detach().numpy() if is_tensor(a) else a, tree)
