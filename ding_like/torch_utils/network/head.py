"""Heads: features become Q-values, policy logits or a state value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.torch_utils.network.mlp import MLP, numpy_ready
from ding_like.torch_utils.network.noisy import NoisyLinear

LOG_SIGMA_RANGE = (-20.0, 2.0)  # of a deviation that depends on the state. Haarnoja 2018
SIGMA_TYPES = ("independent", "conditioned", "fixed")


def make_stream(
    hidden_size: int,
    output_size: int,
    layer_num: int,
    activation: Any,
    norm_type: str | None,
    width: int | None = None,
    noisy: bool = False,
) -> MLP:
    """`layer_num` hidden layers and one to `output_size`, the part that heads are made of."""
    sizes = [hidden_size, *[width or hidden_size] * layer_num, output_size]
    return MLP(sizes, activation, norm_type, last_activation=False, linear=NoisyLinear if noisy else nn.Linear)


class DiscreteHead(nn.Module):
    """`layer_num` hidden layers, then one value an action: `[..., H] -> [..., A]`.

    `width` is that of the hidden layers; None takes `hidden_size`. With `noisy` all layers are `NoisyLinear`.
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        width: int | None = None,
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self.Q = make_stream(hidden_size, output_size, layer_num, activation, norm_type, width, noisy)

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
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self.A = make_stream(hidden_size, output_size, layer_num, activation, norm_type, noisy=noisy)
        self.V = make_stream(hidden_size, 1, layer_num, activation, norm_type, noisy=noisy)

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


class MultiDiscreteHead(nn.Module):
    """Logits of several discrete actions from one stream: `[..., H] -> ([..., A_1], ..., [..., A_k])`.

    Args:
        output_sizes: number of choices of each action.
        width: of the hidden layers; None takes `hidden_size`.
    """

    def __init__(
        self,
        hidden_size: int,
        output_sizes: Sequence[int],
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.sizes = [int(n) for n in output_sizes]
        self.logits = make_stream(hidden_size, sum(self.sizes), layer_num, activation, norm_type, width)
        ends = np.cumsum(self.sizes).tolist()
        self._parts = [slice(end - n, end) for n, end in zip(self.sizes, ends)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.logits(x).split(self.sizes, -1)

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return numpy_ready(self.logits)

    def numpy_forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """`[B, H] -> ([B, A_1], ..., [B, A_k])` in NumPy."""
        stream: Any = self._modules["logits"]
        logits = stream.numpy_forward(x)
        return tuple([logits[:, part] for part in self._parts])


class ReparameterizationHead(nn.Module):
    """A Gaussian for each action dimension: `[..., H] -> {'mu': [..., d], 'sigma': [..., d]}`.

    Args:
        sigma_type: 'independent' learns one deviation a dimension, 'conditioned' computes it from the features,
            'fixed' keeps it.
        fixed_sigma_value: the deviation of 'fixed'.
        init_sigma: the deviation that 'independent' and 'conditioned' start from.
        bound_type: None, or 'tanh' to keep mu inside (-1, 1).
        width: of the hidden layers; None takes `hidden_size`.
    """

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        sigma_type: str = "independent",
        fixed_sigma_value: float = 0.3,
        init_sigma: float = 1.0,
        bound_type: str | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__()
        if sigma_type not in SIGMA_TYPES:
            raise ValueError(f"sigma_type is {sigma_type!r}; wanted one of {list(SIGMA_TYPES)}")
        if bound_type not in (None, "tanh"):
            raise ValueError(f"bound_type is {bound_type!r}; wanted None or 'tanh'")
        self.sigma_type, self.fixed_sigma_value, self.bound = sigma_type, float(fixed_sigma_value), bound_type
        self.mu = make_stream(hidden_size, output_size, layer_num, activation, norm_type, width)
        if sigma_type == "independent":
            self.log_sigma = nn.Parameter(torch.full((output_size,), math.log(init_sigma)))
        elif sigma_type == "conditioned":
            self.sigma = make_stream(hidden_size, output_size, layer_num, activation, norm_type, width)
            self._offset = math.log(init_sigma)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        mu = self.mu(x)
        if self.bound:
            mu = torch.tanh(mu)
        if self.sigma_type == "independent":
            sigma = self.log_sigma.exp().expand_as(mu)
        elif self.sigma_type == "conditioned":
            sigma = (self.sigma(x) + self._offset).clamp(*LOG_SIGMA_RANGE).exp()
        else:
            sigma = torch.full_like(mu, self.fixed_sigma_value)
        return {"mu": mu, "sigma": sigma}

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        streams = [self.mu, self.sigma] if self.sigma_type == "conditioned" else [self.mu]
        return all(numpy_ready(stream) for stream in streams)

    def numpy_forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """`[B, H] -> {'mu': [B, d], 'sigma': [B, d]}` in NumPy."""
        parts: Any = self._modules
        mu = parts["mu"].numpy_forward(x)
        if self.bound:
            np.tanh(mu, out=mu)
        if self.sigma_type == "conditioned":
            sigma = parts["sigma"].numpy_forward(x)
            sigma += self._offset
            np.exp(np.clip(sigma, *LOG_SIGMA_RANGE, out=sigma), out=sigma)
        else:
            sigma = np.empty_like(mu)
            log_sigma = self._parameters.get("log_sigma")
            sigma[...] = self.fixed_sigma_value if log_sigma is None else np.exp(log_sigma.detach().numpy())
        return {"mu": mu, "sigma": sigma}


class ValueHead(nn.Module):
    """A state value: `[..., H] -> [...]`. `width` as in `MultiDiscreteHead`."""

    def __init__(
        self,
        hidden_size: int,
        layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.V = make_stream(hidden_size, 1, layer_num, activation, norm_type, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.V(x).squeeze(-1)

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return numpy_ready(self.V)

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """`[B, H] -> [B]` in NumPy."""
        v: Any = self._modules["V"]
        return v.numpy_forward(x)[:, 0]
