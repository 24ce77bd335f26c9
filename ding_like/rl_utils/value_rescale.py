"""Invertible value rescaling, which lets one network serve rewards of very different size."""

import torch
from torch import Tensor


def value_transform(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, any shape.  Pohlen 2018, proposition A.2.

    Written as ``x / (sqrt(|x| + 1) + 1) + eps x``: the same number, with no cancellation near zero.
    """
    return x / (torch.sqrt(x.abs() + 1) + 1) + eps * x


def value_inv_transform(x: Tensor, eps: float = 1e-3) -> Tensor:
    """The inverse of `value_transform`, any shape; `eps` must be the same."""
    shifted = x.abs() + 1 + eps
    root = 2 * shifted / (torch.sqrt(1 + 4 * eps * shifted) + 1)  # sqrt(|h^-1(x)| + 1)
    return torch.sign(x) * (root * root - 1)
