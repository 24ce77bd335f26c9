"""DI-engine's batch helpers for policies that still hand over lists of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ding_like.data import ArrayDict, tree_index, tree_map, tree_stack
from ding_like.utils.collate import default_collate


def default_preprocess_learn(
    data: Any,
    use_priority_IS_weight: bool = False,
    use_priority: bool = False,
    use_nstep: bool = False,
    ignore_done: bool = False,
) -> Any:
    """Collate a list of transition dictionaries.

    `done` becomes float (zeros with `ignore_done`), `[N, 1]` reward, done and value lose their last axis, `weight` is
    the importance weight or None, and with `use_nstep` the reward turns from `[N, n]` to `[n, N]`.

    Of an already collated tree a shallow copy with that `done` and `weight` is returned, so that `1 - data['done']`
    and `data['weight']` work; its other fields are the same arrays.
    """
    if isinstance(data, Mapping):
        batch = ArrayDict(data)
        _float_done(batch, ignore_done)
        batch.setdefault("weight", None)
        return batch
    if not isinstance(data, list):
        return data
    batch = ArrayDict(default_collate(data))
    for key in ("reward", "done", "value", "adv"):
        if key in batch and batch[key].dim() == 2 and batch[key].shape[1] == 1:
            batch[key] = batch[key].squeeze(1)
    _float_done(batch, ignore_done)
    if use_priority and use_priority_IS_weight:
        batch["weight"] = batch["priority_IS" if "priority_IS" in batch else "IS"]
    else:
        batch["weight"] = batch.get("weight")
    if use_nstep and batch["reward"].dim() > 1:
        batch["reward"] = batch["reward"].transpose(0, 1).contiguous()
    return batch


def _float_done(batch: ArrayDict, ignore_done: bool) -> None:
    if "done" in batch:
        done = torch.as_tensor(batch["done"])
        batch["done"] = torch.zeros_like(done, dtype=torch.float32) if ignore_done else done.float()


def per_env(process: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A `_process_transition` of one env column, with scalars, as one of `[B]` fields."""

    def transition(obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        columns = range(len(timestep.reward))
        rows = [process(tree_index(obs, b), model_output[b], timestep[b]) for b in columns]
        return tree_stack([tree_map(np.asarray, row) for row in rows])

    return transition
