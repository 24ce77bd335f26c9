"""Spaces: conversion by name, what a model is told of them, and batches of observations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.data import ArrayDict

UNSERVED = {
    "Text": "encode it as numbers in the env",
    "Sequence": "pad it to a fixed length in the env and declare a Box",
    "Graph": "flatten it to fixed-size arrays in the env and declare a Dict of Boxes",
    "OneOf": "declare a Dict with one entry for every alternative",
}


class Words(spaces.Box):
    """Texts as word numbers, int64 `[length]`: 1 to `vocab` - 1 from the left, then 0."""

    def __init__(self, vocab: int, length: int) -> None:
        super().__init__(0, vocab - 1, (length,), np.int64)
        self.vocab = vocab


def to_gymnasium(space: Any, path: str = "space") -> spaces.Space:
    """`space` as a Gymnasium space; spaces of other packages are recognised by their class name.

    Raises TypeError naming the class of a space that has no counterpart.
    """
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype).type)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n if isinstance(space.n, int) else tuple(space.n))
    if kind == "Dict":
        return spaces.Dict({k: to_gymnasium(s, f"{path}.{k}") for k, s in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([to_gymnasium(s, f"{path}.{i}") for i, s in enumerate(space.spaces)])
    raise TypeError(
        f"{path} is a {type(space).__module__}.{kind}; wanted a Box, Discrete, MultiDiscrete, MultiBinary, "
        "Dict or Tuple space of gymnasium or gym"
    )


def children(space: spaces.Space) -> Iterator[tuple[Any, spaces.Space]]:
    """Pairs (key, space) of a Dict, (position, space) of a Tuple."""
    if isinstance(space, spaces.Dict):
        return iter(space.spaces.items())
    assert isinstance(space, spaces.Tuple)
    return iter(enumerate(space.spaces))


def _check_leaf(space: spaces.Space, path: str) -> None:
    kind = type(space).__name__
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        advice = UNSERVED.get(kind, "declare a Box, Discrete, MultiDiscrete or MultiBinary space")
        key = path.removeprefix("obs.")
        if key != path and "." not in key and not key.isdigit():  # an entry of a Dict, not of a Tuple
            if space.dtype is not None and space.dtype.kind == "U":
                advice = f"read it with wrappers=[dict(type='words', key='{key}')]"
            advice += f", or drop it with wrappers=[dict(type='select_obs', drop=['{key}'])]"
        raise TypeError(f"{path} is a {kind} space, which cannot be batched; {advice}")
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim != 1:
        raise TypeError(f"{path} is a MultiDiscrete of shape {space.shape}; wanted one axis: flatten it in the env")


def obs_spec(space: spaces.Space, path: str = "obs") -> Any:
    """What a model is told of an observation space, as plain ints, lists and dicts (fit for a YAML file).

    Box and MultiBinary: int (one axis) or list; Discrete, MultiDiscrete: `{'@one_hot': [n, ...]}`; Dict: by key; Tuple:
    `{'@tuple': [...]}`; Words: `{'@words': [vocab, length]}`. Raises TypeError for spaces that cannot be batched,
    naming the key.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)) and not len(space.spaces):
        raise TypeError(f"{path} is an empty {type(space).__name__} space; a policy needs something to see")
    if isinstance(space, spaces.Dict):
        return {k: obs_spec(s, f"{path}.{k}") for k, s in children(space)}
    if isinstance(space, spaces.Tuple):
        return {"@tuple": [obs_spec(s, f"{path}.{k}") for k, s in children(space)]}
    _check_leaf(space, path)
    if isinstance(space, spaces.Discrete):
        return {"@one_hot": [int(space.n)]}
    if isinstance(space, spaces.MultiDiscrete):
        return {"@one_hot": [int(n) for n in space.nvec]}
    if isinstance(space, Words):
        return {"@words": [space.vocab, space.shape[0]]}
    assert space.shape is not None
    if len(space.shape) == 0:
        raise TypeError(f"{path} is a {type(space).__name__} of shape (); wanted at least one axis: use shape (1,)")
    if 0 in space.shape:
        raise TypeError(f"{path} is an empty {type(space).__name__} space of shape {space.shape}; leave it out")
    return int(space.shape[0]) if len(space.shape) == 1 else [int(n) for n in space.shape]


def action_spec(space: spaces.Space) -> Any:
    """What a model is told of an action space: Discrete int, MultiDiscrete list of ints, Box int or list.

    A MultiBinary of n is n actions of two choices.
    """
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        _check_leaf(space, "action")
        return int(space.n) if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec]
    if isinstance(space, spaces.Box) and len(space.shape) > 0:
        return int(space.shape[0]) if len(space.shape) == 1 else [int(n) for n in space.shape]
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return [2] * int(space.shape[0])
    raise TypeError(f"the action space is {space}; wanted Discrete, MultiDiscrete or MultiBinary of one axis, or Box")


def model_shapes(observation_space: spaces.Space, action_space: spaces.Space) -> tuple[Any, Any]:
    """`(obs_shape, action_shape)` for a model's constructor; see `obs_spec` and `action_spec`."""
    return obs_spec(observation_space), action_spec(action_space)


def describe_space(space: spaces.Space, bounds: bool = False) -> dict[str, Any]:
    """A space in plain types, with the numbers of the env itself: a `start` that `ZeroStart` took away is told.

    `{'kind': 'Dict', 'parts': {...}}`, `{'kind': 'Tuple', 'parts': [...]}`, else `kind`, `shape`, `dtype`; `n` and
    `start` (numbers, or one for each action) of Discrete and MultiDiscrete; `range`, the lowest and the highest bound
    of a Box, with `bounds` also all of them, `low` and `high`. Raises TypeError for spaces that cannot be batched.
    """
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "parts": {k: describe_space(s, bounds) for k, s in children(space)}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [describe_space(s, bounds) for _, s in children(space)]}
    _check_leaf(space, "space")
    assert space.shape is not None
    plain: dict[str, Any] = {"shape": [int(n) for n in space.shape], "dtype": np.dtype(space.dtype).name}
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = getattr(space, "moved_from", space.start)
        n = space.n if isinstance(space, spaces.Discrete) else space.nvec
        plain |= {"n": np.asarray(n).tolist(), "start": np.asarray(start).tolist()}
    if isinstance(space, spaces.Box):
        plain["range"] = [float(np.min(space.low)), float(np.max(space.high))]
        plain |= {"low": space.low.tolist(), "high": space.high.tolist()} if bounds else {}
    kinds = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return {"kind": next(kind.__name__ for kind in kinds if isinstance(space, kind)), **plain}


def buffer_dtype(dtype: Any) -> np.dtype:
    """The dtype observations are kept in: float64 becomes float32, every other keeps its own."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype == np.float64 else dtype


class LeafBatch:
    """Writes the observations of one array (or number) space into `[B, ...]`."""

    def __init__(self, space: spaces.Space, path: str) -> None:
        _check_leaf(space, path)
        assert space.shape is not None
        self.path, self.space = path, space
        self.shape = space.shape
        self.dtype = buffer_dtype(space.dtype)
        self.kind: Any = None  # class and dtype of the last observation that passed `check`: the next is like it
        self.kind_dtype: Any = None

    def empty(self, n: int) -> np.ndarray:
        """An unwritten batch `[n, ...]`."""
        return np.empty((n, *self.shape), self.dtype)

    def write(self, batch: np.ndarray, b: int, obs: Any) -> None:
        """Write `obs` to row `b`. Raises as `check`, which is skipped for an observation like the last one."""
        kind = type(obs)
        is_array = kind is np.ndarray
        if kind is not self.kind or (is_array and (obs.dtype is not self.kind_dtype or obs.shape != self.shape)):
            self.check(obs)
            self.kind, self.kind_dtype = kind, obs.dtype if is_array else None
        batch[b] = obs

    def wrong_shape(self, obs: Any) -> ValueError:
        """The error that says which shape was wanted."""
        return ValueError(f"{self.path} has shape {np.shape(obs)}; wanted {self.shape}, as its space {self.space} says")

    def check(self, obs: Any) -> None:
        """Raises ValueError or TypeError unless type, shape and kind of numbers are those of the space."""
        if type(obs) is np.ndarray and obs.dtype == self.space.dtype and obs.shape == self.shape:
            return
        scalar = self.shape == () and isinstance(obs, (int, float, np.generic))
        if not scalar and not isinstance(obs, np.ndarray):
            wanted = "a number" if self.shape == () else "a numpy array"
            raise TypeError(f"{self.path} is a {type(obs).__name__}; wanted {wanted} of its space {self.space}")
        if np.shape(obs) != self.shape:
            raise self.wrong_shape(obs)
        got = np.asarray(obs).dtype
        if not np.can_cast(got, self.dtype, "same_kind"):
            raise TypeError(
                f"{self.path} has dtype {got} where its space says {self.space.dtype}; writing it would "
                f"change the numbers: return obs.astype('{self.space.dtype}') or declare the space as {got}"
            )


class NodeBatch:
    """Writes Dict or Tuple observations: one `LeafBatch` or `NodeBatch` for every entry."""

    def __init__(self, space: spaces.Space, path: str) -> None:
        self.path = path
        self.is_dict = isinstance(space, spaces.Dict)
        self.parts = {k: obs_batch(s, f"{path}.{k}") for k, s in children(space)}

    def empty(self, n: int) -> Any:
        """An unwritten batch: `[n, ...]` in every entry."""
        made = {k: part.empty(n) for k, part in self.parts.items()}
        return ArrayDict(made) if self.is_dict else tuple(made.values())

    def write(self, batch: Any, b: int, obs: Any) -> None:
        """Write the entries of `obs` to row `b`."""
        for k, part in self.parts.items():
            part.write(batch[k], b, obs[k])

    def check(self, obs: Any) -> None:
        """Raises ValueError or TypeError naming the entry that its space does not describe."""
        if self.is_dict and not isinstance(obs, dict):
            raise TypeError(f"{self.path} is a {type(obs).__name__}; wanted a dict with keys {list(self.parts)}")
        if not self.is_dict and not (isinstance(obs, tuple) and len(obs) == len(self.parts)):
            size = f" of {len(obs)}" if isinstance(obs, tuple) else ""
            raise TypeError(f"{self.path} is a {type(obs).__name__}{size}; wanted a tuple of {len(self.parts)}")
        if self.is_dict and obs.keys() != self.parts.keys():
            raise ValueError(f"{self.path} has the keys {list(obs)}; wanted {list(self.parts)}, as its space says")
        for k, part in self.parts.items():
            part.check(obs[k])


def obs_batch(space: spaces.Space, path: str = "obs") -> LeafBatch | NodeBatch:
    """How observations of `space` from B columns become one tree `[B, ...]`; raises as `obs_spec`."""
    return NodeBatch(space, path) if isinstance(space, (spaces.Dict, spaces.Tuple)) else LeafBatch(space, path)


def check_obs(space: spaces.Space, obs: Any) -> None:
    """Raises ValueError or TypeError naming the entry of `obs` that `space` does not describe."""
    obs_batch(space).check(obs)
