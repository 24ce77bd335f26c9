"""Collating lists of samples, as DI-engine's users know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def default_collate(batch: Any) -> Any:
    """A list of N samples (dictionaries, tuples, arrays, tensors, numbers) as one tree of tensors `[N, ...]`.

    Tensors and arrays of shape `[1]` give `[N]`. Floats become float32, ints int64. Strings and None stay lists. A tree
    that is collated already (no list) passes unchanged.

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
