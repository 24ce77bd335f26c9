"""Between a policy and one env outside of any env manager: observations as the env gives them, actions as it takes
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.data import ArrayDict, tree_leaves, tree_paths
from ding_like.rl_utils.previous import PreviousStep


class Interface:
    """What an env gives and takes.

    Args:
        plain: `{'obs': ..., 'action': ...}`, each as `envs.spaces.describe_space` makes it; where the policy also sees
            the step before, `previous`: some of 'prev_action', 'prev_reward'.
    """

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.plain = dict(plain)
        self.action: dict[str, Any] = plain["action"]
        self.leaves = list(_leaves(plain["obs"], ""))
        fields = plain.get("previous")
        self._previous = PreviousStep(fields, self.action) if fields else None
        self._last: np.ndarray | None = None  # actions `[B, ...]` of the step before, counted from 0

    def reset(self) -> None:
        """An episode starts: there is no step before."""
        self._last = None

    def with_previous(self, batch: Any, reward: Any = None, batched: bool = False) -> Any:
        """What `to_batch` gave, with the step before where the policy sees it: the last `to_env` and its reward.

        Raises ValueError for a reward that is missing or does not fit, and for another number of rows than before.
        """
        if self._previous is None:
            return batch
        rows = len(tree_leaves(batch)[0])
        if self._last is None:
            return ArrayDict(self._previous.none(batch, (rows,)))
        if len(self._last) != rows:
            raise ValueError(_other_rows(rows, len(self._last)))
        given = np.zeros(rows, np.float32)
        if "prev_reward" in self._previous.fields:
            if reward is None:
                raise ValueError(
                    "reward is None and the network takes prev_reward; wanted act(obs, reward=...), what the env gave "
                    "for the action before (looked at from an episode's second step on), and reset() where one starts"
                )
            given = _leaf_batch({"shape": (), "dtype": "float32"}, reward, batched, "reward")
            if len(given) != rows:
                raise ValueError(f"reward has {len(given)} rows; wanted {rows}, as obs")
        return ArrayDict(self._previous.after(batch, self._last, given))

    def to_batch(self, obs: Any, batched: bool = False) -> Any:
        """One observation (or a tree `[B, ...]`) as the tree `[B, ...]` that policies act on.

        Raises ValueError naming the entry whose keys, shape, kind of numbers or values are not those of the env.
        """
        batch = _to_batch(self.plain["obs"], obs, batched, "obs")
        lengths = {path: len(leaf) for path, leaf in tree_paths(batch)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"obs has parts of different length: {lengths}; wanted as many rows in each")
        return batch

    def to_env(self, action: np.ndarray, batched: bool = False) -> Any:
        """Actions `[B, ...]` of an acting policy as the env takes them: all, or the one of a batch of one."""
        if self._previous is not None:
            self._last = np.array(action)
        if self.action["kind"] != "Box":  # a Box's are in the env's units already
            action = (np.asarray(action) + self.action.get("start", 0)).astype(self.action["dtype"])
        if batched:
            return action
        return int(action[0]) if self.action["kind"] == "Discrete" else action[0]


@contextmanager
def untouched(
    model: nn.Module | None, noises: dict[str, Any], wrapped: Any, memory: dict[str, Any], rows: int
) -> Iterator[None]:
    """Acting inside the block leaves modes (train or eval), noise streams and hidden states of evaluation as they are.

    Args:
        model: None where its modes make no difference.
        wrapped: what acts in evaluation.
        memory: the hidden states that the block goes on from and leaves; empty where an episode starts.
        rows: observations of the block.

    Raises ValueError where the memory is that of another number of rows.
    """
    if memory.get("count", rows) != rows:
        raise ValueError(_other_rows(rows, memory["count"]))
    recurrent = wrapped.keeps_state
    evaluating = wrapped.run_state_dict() if recurrent else {}
    if recurrent:
        wrapped.reset()
        if memory:
            wrapped.load_run_state_dict(memory)
    kept = noises.pop("eval", None)
    training = [] if model is None else [module for module in model.modules() if module.training]
    try:
        yield
    finally:
        noises.pop("eval", None)
        if kept is not None:
            noises["eval"] = kept
        for module in training:
            module.training = True
        if recurrent:
            memory.update(wrapped.run_state_dict())
            wrapped.load_run_state_dict(evaluating)


def _other_rows(rows: int, before: int) -> str:
    return (
        f"obs has {rows} rows and the step before had {before}: a recurrent policy remembers each row's episode; "
        "wanted as many, or a call of policy.reset() first, where episodes start"
    )


def kept_dtype(leaf: Mapping[str, Any]) -> np.dtype:
    """The dtype in which a policy sees the observations of a leaf: float64 becomes float32."""
    dtype = np.dtype(leaf["dtype"])
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def _leaves(plain: Mapping[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs (dotted path, leaf) in the order of `tree_paths`; the path of an observation that is one array is ''."""
    if "parts" not in plain:
        yield path, dict(plain)
        return
    for key, part in _parts(plain):
        yield from _leaves(part, f"{path}.{key}" if path else str(key))


def _parts(plain: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    parts = plain["parts"]
    return list(parts.items() if plain["kind"] == "Dict" else enumerate(parts))


def _to_batch(plain: Mapping[str, Any], obs: Any, batched: bool, path: str) -> Any:
    if "parts" not in plain:
        return _leaf_batch(plain, obs, batched, path)
    parts = _parts(plain)
    if plain["kind"] == "Dict":
        wanted = [key for key, _ in parts]
        if not isinstance(obs, Mapping):
            raise ValueError(f"{path} is a {type(obs).__name__}; wanted a dict with the keys {wanted}")
        if set(obs) != set(wanted):
            raise ValueError(f"{path} has the keys {list(obs)}; wanted {wanted}")
        return ArrayDict({key: _to_batch(part, obs[key], batched, f"{path}.{key}") for key, part in parts})
    if not isinstance(obs, (tuple, list)) or len(obs) != len(parts):
        size = f" of {len(obs)}" if isinstance(obs, (tuple, list)) else ""
        raise ValueError(f"{path} is a {type(obs).__name__}{size}; wanted a tuple of {len(parts)}")
    return tuple(_to_batch(part, obs[i], batched, f"{path}.{i}") for i, part in parts)


def _leaf_batch(leaf: Mapping[str, Any], obs: Any, batched: bool, path: str) -> np.ndarray:
    shape, dtype = tuple(leaf["shape"]), kept_dtype(leaf)
    if isinstance(obs, Mapping):
        raise ValueError(f"{path} is a {type(obs).__name__}; wanted an array of shape {shape}")
    array = _array(obs, path)
    if array.ndim != len(shape) + batched or array.shape[batched:] != shape:
        given = f"{('B', *shape)}".replace("'", "") if batched else str(shape)
        hint = "" if batched or array.shape[1:] != shape else ": a batch wants act(obs, batched=True)"
        raise ValueError(f"{path} has shape {array.shape}; wanted {given}{hint}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"{path} has dtype {array.dtype}; wanted {leaf['dtype']}")
    if "n" in leaf:
        array = _from_zero(leaf, array, path)
    with np.errstate(over="ignore"):
        array = array.astype(dtype, copy=False)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{path} is not finite in {dtype}; wanted numbers, got NaN or infinity")
    return array if batched else array[None]


def _array(obs: Any, path: str) -> np.ndarray:
    if isinstance(obs, torch.Tensor):
        obs = obs.detach().cpu()
        obs = obs.float() if obs.dtype == torch.bfloat16 else obs  # which numpy lacks
    try:
        return np.asarray(obs)
    except (ValueError, TypeError, RuntimeError) as err:  # rows of different length, tensors that numpy cannot read
        raise ValueError(f"{path} is a {type(obs).__name__} that makes no array: {err}") from err


def _from_zero(leaf: Mapping[str, Any], array: np.ndarray, path: str) -> np.ndarray:
    start = np.asarray(leaf["start"])
    moved = array.astype(np.int64) - start
    if (moved < 0).any() or (moved >= np.asarray(leaf["n"])).any():
        last = (start + leaf["n"] - 1).tolist()
        raise ValueError(f"{path} is {array.tolist()!r:.80}; wanted whole numbers from {start.tolist()} to {last}")
    return moved
