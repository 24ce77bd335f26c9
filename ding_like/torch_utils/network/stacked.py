"""Several networks of one form as one: batched products in the place of a loop over networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ding_like.torch_utils.network.mlp import make_activation


class StackedMLP(nn.Module):
    """K MLPs of the same sizes and different weights; each is initialised as `nn.Linear` is.

    As fast as K separate ones where the layers are wide, about twice as fast where they are narrow
    (`benchmarks/sac.py --layers`).

    Args:
        count: K.
        sizes: input size, hidden sizes, output size.
        activation: between the layers.
        norm_type: None or 'LN' (LayerNorm before each activation).
    """

    def __init__(
        self, count: int, sizes: Sequence[int], activation: Any = "relu", norm_type: str | None = None
    ) -> None:
        super().__init__()
        if norm_type not in (None, "LN"):
            raise ValueError(f"norm_type is {norm_type!r}; wanted None or 'LN'")
        self.weights, self.biases, self.scales = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for size_in, size_out in pairwise(sizes):
            bound = 1 / math.sqrt(size_in)
            self.weights.append(torch.empty(count, size_out, size_in).uniform_(-bound, bound))
            self.biases.append(torch.empty(count, 1, size_out).uniform_(-bound, bound))
        if norm_type:  # gain and shift of each hidden layer
            start = torch.tensor([1.0, 0.0])[:, None, None, None]
            self.scales.extend(start.expand(2, count, 1, width).clone() for width in sizes[1:-1])
        self.activation = make_activation(activation)
        self.count = count

    def forward(self, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
        """`[..., in]` to `[K, ..., out]`; with `count` of the first so many networks alone."""
        lead, last = x.shape[:-1], len(self.weights) - 1
        x = x.reshape(-1, x.shape[-1]).expand(count or self.count, -1, -1)  # [K, N, in]
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            if count is not None:  # else no slice, whose gradient would be copied
                weight, bias = weight[:count], bias[:count]
            x = torch.baddbmm(bias, x, weight.transpose(1, 2))
            if i < last:
                if len(self.scales):
                    gain, shift = self.scales[i]
                    x = F.layer_norm(x, x.shape[-1:]) * gain[:count] + shift[:count]
                x = self.activation(x)
        return x.reshape(len(x), *lead, -1)  # [K, ..., out]
