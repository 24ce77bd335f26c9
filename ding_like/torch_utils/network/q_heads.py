"""Heads of Q-networks: features become a value for each action, a distribution, or quantiles of the return."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.config.checks import at_least, finite, one_of
from ding_like.torch_utils.network.head import DiscreteHead, DuelingHead, make_stream
from ding_like.torch_utils.network.mlp import MLP, numpy_ready

HEAD_TYPES = ("q", "distribution", "quantile", "implicit")
HEAD_CHECKS = {
    "head_type": one_of(*HEAD_TYPES),
    "n_atom": at_least(2),
    "v_min": finite,
    "v_max": finite,
    "num_quantiles": at_least(1),
    "quantile_embedding_size": at_least(1),
}


class ActionStreams(nn.Module):
    """n numbers for each action: `[..., H] -> [..., A, n]`.

    Dueling: each of the n is V + A - mean(A) by itself. Wang 2016, eq. 9; Hessel 2018, section 3.

    Args:
        how: `layer_num`, `activation`, `norm_type` and `noisy` of each stream.
    """

    def __init__(self, hidden_size: int, actions: int, size: int, dueling: bool = True, **how: Any) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.A = make_stream(hidden_size, actions * size, **how)
        if dueling:
            self.V = make_stream(hidden_size, size, **how)

    def forward(self, x: Tensor) -> Tensor:
        out = self.A(x).unflatten(-1, (self.actions, self.size))
        if "V" in self._modules:
            out = self.V(x).unsqueeze(-2) + (out - out.mean(-2, keepdim=True))
        return out

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return all(numpy_ready(stream) for stream in self.children())

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """`[B, H] -> [B, A, n]` in NumPy."""
        parts: Any = self._modules  # nn.Module's own look-up is slow
        out = parts["A"].numpy_forward(x).reshape(-1, self.actions, self.size)
        if "V" in parts:
            out += parts["V"].numpy_forward(x)[:, None] - out.mean(1, keepdims=True)
        return out


class _StreamHead(nn.Module):
    """A head over `ActionStreams`."""

    def __init__(self, streams: ActionStreams) -> None:
        super().__init__()
        self.streams = streams

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` equals `forward`."""
        return all(numpy_ready(part) for part in self.children())


class DistributionalHead(_StreamHead):
    """A distribution of the return over atoms at equal distances from `v_min` to `v_max`. Bellemare 2017.

    `[..., H]` to `atom_logit [..., A, n]`, `distribution`, its softmax, and `logit [..., A]`, the expectation of that.
    """

    support: Tensor

    def __init__(self, streams: ActionStreams, v_min: float = -10.0, v_max: float = 10.0) -> None:
        super().__init__(streams)
        if v_min >= v_max:
            raise ValueError(f"v_min is {v_min} and v_max is {v_max}; wanted a v_max above v_min")
        self.register_buffer("support", torch.linspace(v_min, v_max, streams.size), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        atom_logit = self.streams(x)
        distribution = atom_logit.softmax(-1)
        return {"logit": distribution @ self.support, "distribution": distribution, "atom_logit": atom_logit}

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The expectations, `[B, H] -> [B, A]`, in NumPy."""
        parts: Any = self._modules
        weight = parts["streams"].numpy_forward(x)  # [B, A, n]
        weight -= weight.max(-1, keepdims=True)
        np.exp(weight, out=weight)
        return weight @ self.support.numpy() / weight.sum(-1)


class QuantileHead(_StreamHead):
    """K quantiles of the return for each action, at the middles of K equal parts of [0, 1]. Dabney 2018a, lemma 2.

    `[..., H]` to `q [..., A, K]`, their probabilities `tau [..., K]`, and `logit [..., A]`, the mean.
    """

    tau: Tensor

    def __init__(self, streams: ActionStreams) -> None:
        super().__init__(streams)
        self.register_buffer("tau", middles(streams.size), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        q = self.streams(x)
        return {"logit": q.mean(-1), "q": q, "tau": self.tau.expand(*q.shape[:-2], -1)}

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The means, `[B, H] -> [B, A]`, in NumPy."""
        parts: Any = self._modules
        return parts["streams"].numpy_forward(x).mean(-1)


class ImplicitQuantileHead(_StreamHead):
    """The quantile of the return for any probability. Dabney 2018b, eq. 4.

    The outputs are those of `QuantileHead`. While `sampling` is set, the K probabilities are drawn for each item by
    torch's global generator; else they are the middles of equal parts.

    Args:
        streams: of size 1.
        embedding_size: cosines that describe a probability.
    """

    tau: Tensor
    frequencies: Tensor

    def __init__(
        self, streams: ActionStreams, hidden_size: int, num_quantiles: int = 32, embedding_size: int = 64
    ) -> None:
        super().__init__(streams)
        self.phi = MLP([embedding_size, hidden_size])
        self.register_buffer("tau", middles(num_quantiles), persistent=False)
        self.register_buffer("frequencies", math.pi * torch.arange(embedding_size), persistent=False)
        self.sampling = False

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        lead, tau = x.shape[:-1], self.tau
        if self.sampling:
            tau = torch.rand(*lead, len(tau), dtype=tau.dtype, device=tau.device)
        embedding = self.phi(torch.cos(tau.unsqueeze(-1) * self.frequencies))  # [..., K, H]
        q = self.streams(x.unsqueeze(-2) * embedding).squeeze(-1).transpose(-1, -2)  # [..., A, K]
        return {"logit": q.mean(-1), "q": q, "tau": tau.expand(*lead, -1)}

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The means over the middles, `[B, H] -> [B, A]`, in NumPy."""
        parts: Any = self._modules
        tau = self.tau.numpy()
        embedding = parts["phi"].numpy_forward(np.cos(tau[:, None] * self.frequencies.numpy()))  # [K, H]
        seen = (x[:, None] * embedding).reshape(-1, x.shape[1])
        return parts["streams"].numpy_forward(seen).reshape(len(x), len(tau), -1).mean(1)


def middles(parts: int) -> Tensor:
    """The middles of equal parts of [0, 1]."""
    return (torch.arange(parts) + 0.5) / parts


def make_q_head(
    head_type: str,
    hidden_size: int,
    actions: int,
    dueling: bool,
    n_atom: int = 51,
    v_min: float = -10.0,
    v_max: float = 10.0,
    num_quantiles: int = 32,
    quantile_embedding_size: int = 64,
    **how: Any,
) -> nn.Module:
    """The head of that type; `how` as in `ActionStreams`. What it gives becomes an output by `q_output`."""
    if head_type == "q":
        return (DuelingHead if dueling else DiscreteHead)(hidden_size, actions, **how)
    size = {"distribution": n_atom, "quantile": num_quantiles, "implicit": 1}[head_type]
    streams = ActionStreams(hidden_size, actions, size, dueling, **how)
    if head_type == "distribution":
        return DistributionalHead(streams, v_min, v_max)
    if head_type == "quantile":
        return QuantileHead(streams)
    return ImplicitQuantileHead(streams, hidden_size, num_quantiles, quantile_embedding_size)


def q_output(found: Any) -> dict[str, Any]:
    """The output of a Q-network from what its head gives: a dictionary, or the values alone."""
    return found if isinstance(found, dict) else {"logit": found}
