"""DI-engine's batch helpers for policies that still hand over lists of dictionaries."""

from __future__ import annotations

from typing import Any

import torch

from ding_like.data import ArrayDict
from ding_like.utils.collate import default_collate


def default_preprocess_learn(
    data: Any,
    use_priority_IS_weight: bool = False,
    use_priority: bool = False,
    use_nstep: bool = False,
    ignore_done: bool = False,
) -> Any:
    """Collate a list of transition dictionaries; an already collated tree passes unchanged.

    `done` becomes float (zeros with `ignore_done`), `[N, 1]` reward, done and value lose their last axis, `weight` is
    the importance weight or None, and with `use_nstep` the reward turns from `[N, n]` to `[n, N]`.
    """
    if not isinstance(data, list):
        return data
    batch = ArrayDict(default_collate(data))
    for key in ("reward", "done", "value", "adv"):
        if key in batch and batch[key].dim() == 2 and batch[key].shape[1] == 1:
            batch[key] = batch[key].squeeze(1)
    if "done" in batch:
        batch["done"] = torch.zeros_like(batch["done"], dtype=torch.float32) if ignore_done else batch["done"].float()
    if use_priority and use_priority_IS_weight:
        batch["weight"] = batch["priority_IS" if "priority_IS" in batch else "IS"]
    else:
        batch["weight"] = batch.get("weight")
    if use_nstep and batch["reward"].dim() > 1:
        batch["reward"] = batch["reward"].transpose(0, 1).contiguous()
    return batch
