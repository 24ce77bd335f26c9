"""Collating lists of samples, as DI-engine's users know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.data import tree_stack
from ding_like.utils.default_helper import lists_to_dicts


def default_collate(batch: Any) -> Any:
    """A list of N samples (dictionaries, tuples, arrays, tensors, numbers) as one tree of tensors `[N, ...]`.

    Tensors and arrays of shape `[1]` give `[N]`. Floats become float32, ints int64. Strings and None stay lists.
    Lists of U entries give a list of U trees. A tree that is collated already (no list) passes unchanged.

    Raises KeyError where dictionaries have different keys, TypeError for a kind that cannot be collated.
    """
    if not isinstance(batch, list):
        return batch
    if not batch:
        raise ValueError("cannot collate an empty list")
    first = batch[0]
    if isinstance(first, Mapping):
        for sample in batch:
            if sample.keys() != first.keys():
                raise KeyError(f"samples have different fields: {list(first)} and {list(sample)}")
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple):
        parts = [default_collate(list(part)) for part in zip(*batch)]
        return type(first)._make(parts) if hasattr(first, "_make") else tuple(parts)
    if isinstance(first, list):
        if len({len(sample) for sample in batch}) > 1:
            raise ValueError(f"cannot collate lists of different lengths: {[len(sample) for sample in batch]}")
        return [default_collate(list(entries)) for entries in zip(*batch)]
    if isinstance(first, torch.Tensor):
        return torch.cat(batch) if first.shape == (1,) else torch.stack(batch)
    if isinstance(first, np.ndarray):
        return default_collate([torch.as_tensor(x if x.flags.writeable else x.copy()) for x in batch])
    if isinstance(first, (bool, np.bool_)):
        return torch.as_tensor(np.asarray(batch, np.bool_))
    if isinstance(first, (int, np.integer)):
        return torch.as_tensor(np.asarray(batch, np.int64))
    if isinstance(first, (float, np.floating)):
        return torch.as_tensor(np.asarray(batch, np.float32))
    if first is None or isinstance(first, str):
        return batch
    raise TypeError(f"cannot collate samples of type {type(first).__name__}")


def timestep_collate(batch: Any) -> Any:
    """A list of N windows, dictionaries whose fields are lists of U steps, as one tree of tensors `[U, N, ...]`.

    `prev_state` keeps the first step's, `[1, N, ...]`; a field that is no list gives `[N, ...]`. A window may also be a
    list of U dictionaries. A tree that is collated already (no list) passes unchanged.

    Raises as `default_collate`.
    """
    return _collate_windows(batch, 0) if isinstance(batch, list) else batch


def collate_items(items: list) -> Any:
    """What a store keeps of a list of N items: a tree `[N, ...]`, of windows (see `timestep_collate`) `[N, U, ...]`.

    Raises as `default_collate`.
    """
    return _collate_windows(items, 1)


def _collate_windows(windows: list, axis: int) -> Any:
    """`axis` is where the steps of a window go."""
    samples = [lists_to_dicts(w, keep=("prev_state",)) if isinstance(w, list) else w for w in windows]
    if not samples or not isinstance(samples[0], Mapping):
        return default_collate(samples)
    first = [
        {k: v[:1] if k == "prev_state" and isinstance(v, list) else v for k, v in sample.items()} for sample in samples
    ]
    return {name: _stack_steps(value, axis) for name, value in default_collate(first).items()}


def _stack_steps(value: Any, axis: int) -> Any:
    """Lists of trees stacked along `axis`; lists that cannot be (strings, None) and all else as they are."""
    if isinstance(value, Mapping):
        return {key: _stack_steps(part, axis) for key, part in value.items()}
    if not isinstance(value, list) or not isinstance(value[0], (torch.Tensor, Mapping, tuple)):
        return value
    return tree_stack(value, axis)
