"""Reductions and element losses. Masks and weights are applied here and nowhere else."""

import torch
import torch.nn.functional as F
from torch import Tensor


def huber(td: Tensor, delta: float = 1.0) -> Tensor:
    """td^2 / 2 up to `delta`, linear beyond; unreduced, the shape of `td`.  Huber 1964."""
    return F.huber_loss(td, torch.zeros_like(td), reduction="none", delta=delta)


def select(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` where `mask` is set and 0 elsewhere; `mask` (bool or 0/1) has the shape of `x`, None keeps all.

    Select before a nonlinear loss: the gradient that comes back through a selected-away NaN is then exactly
    0.
    """
    if mask is None:
        return x
    if mask.shape != x.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, x has {tuple(x.shape)}; they must be equal")
    return torch.where(mask.bool(), x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_mean(x: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """Mean of ``weight * x`` over the entries that `mask` keeps; 0 if it keeps none.

    Whatever stands in a masked entry of `x` or `weight`, NaN included, changes neither the value nor a
    gradient.

    Args:
        x: any shape.
        mask: the shape of `x`, bool or 0/1; None keeps all.
        weight: the shape of `x`, or one that broadcasts to it; it does not enter the divisor.
    """
    if weight is not None:
        if torch.broadcast_shapes(x.shape, weight.shape) != x.shape:
            raise ValueError(f"weight has shape {tuple(weight.shape)}; it must broadcast to x, {tuple(x.shape)}")
        x = select(x, mask) * select(weight.expand(x.shape), mask)
    else:
        x = select(x, mask)
    if mask is None:
        return x.mean()
    return x.sum() / mask.bool().sum().clamp(min=1)
