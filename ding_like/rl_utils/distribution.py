"""Action distributions: light, batched over all leading axes, differentiable.

A forbidden action has the most negative finite logit of its type (`mask_logit`): its probability is exactly 0,
and it adds nothing to an entropy, a divergence or a gradient. (-inf would make them NaN.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MASKED = torch.finfo(torch.float32).min
FEW_ACTIONS, MANY_NUMBERS = 16, 8192
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Categorical:
    """One of A actions; `logit` `[..., A]` needs no normalising."""

    def __init__(self, logit: Tensor) -> None:
        self.log_probs = _log_softmax(logit)  # [..., A]

    @cached_property
    def probs(self) -> Tensor:
        return self.log_probs.exp()  # [..., A]

    def log_prob(self, action: Tensor) -> Tensor:
        """`[...]` of actions `[...]`, int64."""
        _wanted_shape("action", action, self.log_probs.shape[:-1])
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """`[...]`, in nats."""
        return -(self.probs * self.log_probs).sum(-1)

    def kl(self, other: Categorical) -> Tensor:
        """KL(self || other) `[...]`."""
        _wanted_shape("the other distribution's logit", other.log_probs, self.log_probs.shape)
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)

    def mode(self) -> Tensor:
        """The likeliest action `[...]`, the first of equals."""
        return self.log_probs.argmax(-1)

    def sample(self) -> Tensor:
        """Random actions `[...]`, from torch's global generator."""
        probs = self.probs.detach()
        return torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1).reshape(probs.shape[:-1])


class MultiCategorical:
    """k independent categoricals; `logit` is a sequence of `[..., A_i]`, actions are `[..., k]`."""

    def __init__(self, logit: Sequence[Tensor]) -> None:
        self.parts = [Categorical(part) for part in logit]

    def log_prob(self, action: Tensor) -> Tensor:
        """Of the joint action, `[...]` of `[..., k]`, int64."""
        _wanted_shape("action", action, (*self.parts[0].log_probs.shape[:-1], len(self.parts)))
        return _sum([part.log_prob(a) for part, a in zip(self.parts, action.unbind(-1))])

    def entropy(self) -> Tensor:
        """Of the joint action `[...]`, in nats."""
        return _sum([part.entropy() for part in self.parts])

    def kl(self, other: MultiCategorical) -> Tensor:
        """KL(self || other) `[...]`."""
        if len(other.parts) != len(self.parts):
            raise ValueError(f"the other distribution has {len(other.parts)} parts; wanted {len(self.parts)}")
        return _sum([part.kl(its) for part, its in zip(self.parts, other.parts)])

    def mode(self) -> Tensor:
        """The likeliest action `[..., k]`."""
        return torch.stack([part.mode() for part in self.parts], -1)

    def sample(self) -> Tensor:
        """Random actions `[..., k]`, from torch's global generator."""
        return torch.stack([part.sample() for part in self.parts], -1)


class Gaussian:
    """d independent normals; `mu` and `sigma` (above 0) are `[..., d]`."""

    def __init__(self, mu: Tensor, sigma: Tensor) -> None:
        _wanted_shape("sigma", sigma, mu.shape)
        self.mu, self.sigma = mu, sigma

    @cached_property
    def log_scale(self) -> Tensor:
        """Sum of the logarithms of sigma, `[...]`."""
        return self.sigma.log().sum(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density `[...]` of actions `[..., d]`."""
        _wanted_shape("action", action, self.mu.shape)
        distance = ((action - self.mu) / self.sigma).square().sum(-1)
        return -0.5 * distance - self.log_scale - self.mu.shape[-1] * HALF_LOG_TAU

    def entropy(self) -> Tensor:
        """Differential entropy `[...]`, in nats."""
        return self.log_scale + self.mu.shape[-1] * (0.5 + HALF_LOG_TAU)

    def kl(self, other: Gaussian) -> Tensor:
        """KL(self || other) `[...]`."""
        _wanted_shape("the other distribution's mu", other.mu, self.mu.shape)
        spread = self.sigma.square() + (self.mu - other.mu).square()
        terms = spread / other.sigma.square() - 1
        return 0.5 * terms.sum(-1) + other.log_scale - self.log_scale

    def mode(self) -> Tensor:
        """The likeliest action `[..., d]`."""
        return self.mu

    def sample(self) -> Tensor:
        """Random actions `[..., d]` without gradient, from torch's global generator."""
        return torch.normal(self.mu.detach(), self.sigma.detach())


class SquashedGaussian:
    """tanh of d independent normals, in (-1, 1); `mu` and `sigma` (above 0) are the normals', `[..., d]`.

    Haarnoja 2018, appendix C. The correction ``log(1 - tanh(u)^2)`` is computed as ``2 (log 2 - u - softplus(-2 u))``,
    which is exact where the difference is 0 in floating point.
    """

    def __init__(self, mu: Tensor, sigma: Tensor) -> None:
        _wanted_shape("sigma", sigma, mu.shape)
        self.mu, self.sigma = mu, sigma

    def rsample(self, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Actions `[..., d]` and their log-density `[...]`, both with gradient.

        Args:
            noise: standard normal numbers `[..., d]`; None draws them from torch's global generator.
        """
        noise = torch.randn_like(self.mu) if noise is None else noise
        u = torch.addcmul(self.mu, self.sigma, noise)
        return torch.tanh(u), self._log_density(u, noise)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density `[...]` of actions `[..., d]`; those of -1 and 1 are taken for the nearest number inside."""
        _wanted_shape("action", action, self.mu.shape)
        edge = 1 - torch.finfo(action.dtype).eps
        u = torch.atanh(action.clamp(-edge, edge))
        return self._log_density(u, (u - self.mu) / self.sigma)

    def _log_density(self, u: Tensor, noise: Tensor) -> Tensor:
        terms = noise.square() * 0.5 + self.sigma.log() - 2 * (u + F.softplus(-2 * u))
        return -terms.sum(-1) - self.mu.shape[-1] * (HALF_LOG_TAU + 2 * math.log(2))

    def mode(self) -> Tensor:
        """tanh(mu) `[..., d]`, the median; what a deterministic policy does."""
        return torch.tanh(self.mu)


Distribution = Categorical | MultiCategorical | Gaussian


def _log_softmax(logit: Tensor) -> Tensor:
    """Over the last axis; for many rows of few actions with the actions first, where torch's kernel is far faster."""
    if logit.shape[-1] > FEW_ACTIONS or logit.numel() < MANY_NUMBERS or logit.device.type != "cpu":
        return F.log_softmax(logit, -1)
    return F.log_softmax(logit.movedim(-1, 0).contiguous(), 0).movedim(0, -1)


def lost_entropy(logit: Tensor) -> Tensor:
    """How far forbidden actions lower the largest entropy of A actions, ``log A - log n`` with n allowed, `[...]`."""
    allowed = (logit > MASKED / 2).sum(-1).clamp(min=1)
    return -(allowed / logit.shape[-1]).log()


def make_distribution(logit: Any, action_space: str) -> Distribution:
    """The distribution a model's `logit` stands for.

    Args:
        logit: `[..., A]` for 'discrete', a tuple of those for 'multi_discrete', a dictionary with `mu` and
            `sigma` `[..., d]` for 'continuous'.
    """
    if action_space == "discrete":
        return Categorical(logit)
    if action_space == "multi_discrete":
        return MultiCategorical(logit)
    if action_space == "continuous":
        return Gaussian(logit["mu"], logit["sigma"])
    raise ValueError(f"action_space is {action_space!r}; choose one of discrete, multi_discrete, continuous")


def mask_logit(logit: Any, action_mask: Any) -> Any:
    """`logit` with the most negative finite number where `action_mask` is 0.

    Args:
        logit: numpy or torch `[..., A]`, or a tuple of those, one for each part of the action.
        action_mask: bool or 0/1, `[..., A]`; for a tuple the masks of its parts side by side, `[..., sum A]`.
    """
    if not isinstance(logit, tuple):
        return _masked(logit, action_mask)
    sizes = [part.shape[-1] for part in logit]
    _wanted_shape("action_mask", action_mask, (*logit[0].shape[:-1], sum(sizes)))
    ends = np.cumsum(sizes)
    return tuple(_masked(part, action_mask[..., end - size : end]) for part, size, end in zip(logit, sizes, ends))


def _masked(logit: Any, mask: Any) -> Any:
    _wanted_shape("action_mask", mask, logit.shape)
    if isinstance(logit, np.ndarray):
        return np.where(mask, logit, np.finfo(logit.dtype).min)
    return logit.masked_fill(torch.as_tensor(mask, device=logit.device) == 0, torch.finfo(logit.dtype).min)


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _wanted_shape(name: str, value: Any, shape: Sequence[int]) -> None:
    """Shapes must be equal, because `[N, 1]` against `[N]` would broadcast to `[N, N]` unseen."""
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(value.shape)}; wanted {tuple(shape)}")
