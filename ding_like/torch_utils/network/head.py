"""Heads: features become Q-values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.torch_utils.network.mlp import MLP, numpy_ready


def _stream(hidden_size: int, output_size: int, layer_num: int, activation: Any, norm_type: str | None) -> MLP:
    return MLP([hidden_size] * (layer_num + 1) + [output_size], activation, norm_type, last_activation=False)


class DiscreteHead(nn.Module):
    """`layer_num` hidden layers, then one value an action: `[..., H] -> [..., A]`."""

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
    ) -> None:
        super().__init__()
        self.Q = _stream(hidden_size, output_size, layer_num, activation, norm_type)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.Q(x)

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return numpy_ready(self.Q)

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """`[B, H] -> [B, A]` in NumPy."""
        q: Any = self._modules["Q"]  # nn.Module's own look-up is slow
        return q.numpy_forward(x)


class DuelingHead(nn.Module):
    """Value and advantage streams, Q = V + A - mean(A). Wang 2016, eq. 9."""

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
    ) -> None:
        super().__init__()
        self.A = _stream(hidden_size, output_size, layer_num, activation, norm_type)
        self.V = _stream(hidden_size, 1, layer_num, activation, norm_type)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.A(x)
        return self.V(x) + (a - a.mean(-1, keepdim=True))

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return numpy_ready(self.A) and numpy_ready(self.V)

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """`[B, H] -> [B, A]` in NumPy."""
        parts: Any = self._modules
        a = parts["A"].numpy_forward(x)
        a += parts["V"].numpy_forward(x) - a.mean(-1, keepdims=True)
        return a
