"""Whether a recurrent network that unrolls by itself begins anew where `cut` tells it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ding_like.data import tree_leaves, tree_map

Call = Callable[[dict[str, Any], Any, bool], Any]
"""`call(inputs, state, inference)` gives the next state."""


def begins_anew(net: nn.Module, call: Call, row: dict[str, Any], first: Any) -> bool:
    """Whether an unroll of two steps with a cut after the first ends as one step from the initial state.

    The network is asked in eval mode; nothing of it changes, and generators go on as if it had not been asked.

    Args:
        row: its inputs of one step `[B, ...]`.
        first: the initial state, leaves `[B, ...]`.
    """
    was_training = [module for module in net.modules() if module.training]
    net.eval()
    devices = {leaf.device for leaf in tree_leaves(first) if leaf.is_cuda}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            wanted = call(row, first, True)
            other = tree_map(_another, wanted)  # to begin at: nothing of it may be left in the end
            columns = tree_leaves(wanted)[0].shape[0]
            cut = torch.tensor([[0.0], [1.0]], device=tree_leaves(wanted)[0].device).expand(2, columns)
            twice = {name: tree_map(_twice, value) for name, value in row.items()}
            found = call({**twice, "cut": cut}, other, False)
    finally:
        for module in was_training:
            module.training = True
    pairs = zip(tree_leaves(wanted), tree_leaves(found))
    return all(torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4) for a, b in pairs)


def _another(leaf: torch.Tensor) -> torch.Tensor:
    """Other numbers of the size that states have; counters stay."""
    if not leaf.is_floating_point():
        return leaf
    return torch.cos(torch.arange(leaf.numel(), device=leaf.device, dtype=leaf.dtype)).view(leaf.shape) - leaf


def _twice(leaf: Any) -> Any:
    return torch.stack([leaf, leaf]) if isinstance(leaf, torch.Tensor) else leaf
