"""Noisy layers, and who their noise is drawn for."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.utils.seed import generator

SIGMA = 0.5  # initial size of the noise. Fortunato 2018, section 3.2


class NoisyLinear(nn.Module):
    """A linear layer with learned noise: weight + weight_sigma * (f(e_out) f(e_in)^T), bias + bias_sigma * f(e_out),
    f(x) = sgn(x) sqrt|x|, e normal. Fortunato 2018, eq. 9 to 11.

    The noise is that of the last `redraw`; a new layer, and one that `quiet` was called of, has none.
    """

    weight_noise: Tensor
    bias_noise: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), SIGMA * bound))
        # No part of a state: it is drawn anew by everyone who needs some.
        self.register_buffer("weight_noise", torch.zeros(out_features, in_features), persistent=False)
        self.register_buffer("bias_noise", torch.zeros(out_features), persistent=False)
        self.noisy = False

    @property
    def noise_size(self) -> int:
        """How many normal numbers `redraw` takes."""
        return self.in_features + self.out_features

    def redraw(self, normal: Tensor) -> None:
        """Take new noise from normal numbers `[noise_size]`."""
        scaled = normal.sign() * normal.abs().sqrt()
        torch.outer(scaled[self.in_features :], scaled[: self.in_features], out=self.weight_noise)
        self.bias_noise.copy_(scaled[self.in_features :])
        self.noisy = True

    def quiet(self) -> None:
        """Compute with the mean weights."""
        self.noisy = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.noisy:
            return F.linear(x, self.weight, self.bias)
        weight = torch.addcmul(self.weight, self.weight_sigma, self.weight_noise)
        return F.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, self.bias_noise))


class NetworkNoise:
    """Who the noise in some networks is drawn for: a gradient step, a block of collected rows, nobody (evaluation).

    A gradient step draws from torch's global generator, which exact resume restores, for every network on its own. The
    noise of a block is a function of (seed, key) alone: all env columns of all workers act with the same, and nothing
    is to be restored.

    Args:
        seed: of the noise of blocks.
        networks: the one that acts, then others that learning calls. Modules with `sampling` (see
            `ImplicitQuantileHead`) sample in gradient steps only.

    Attributes:
        noisy: whether there is a `NoisyLinear`.
    """

    def __init__(self, seed: int, *networks: nn.Module) -> None:
        modules = [module for network in networks for module in network.modules()]
        self._layers = [module for module in modules if isinstance(module, NoisyLinear)]
        self._acting = [module for module in networks[0].modules() if isinstance(module, NoisyLinear)]
        self._samplers: list[Any] = [module for module in modules if hasattr(module, "sampling")]
        self.noisy = bool(self._layers)
        self._seed, self._for = seed, None if self.noisy or self._samplers else _NOTHING

    def step(self) -> None:
        """For a gradient step: new noise every time."""
        if self._turn("step", sampling=True):
            for layer in self._layers:
                layer.redraw(torch.randn(layer.noise_size, dtype=layer.weight.dtype, device=layer.weight.device))

    def block(self, key: int) -> None:
        """For a block of rows: the noise of this key."""
        if self._turn(("block", key), sampling=False):
            rng = generator(self._seed, "noise/weights", key)
            for layer in self._acting:
                normal = torch.as_tensor(rng.standard_normal(layer.noise_size))
                layer.redraw(normal.to(device=layer.weight.device, dtype=layer.weight.dtype))

    def off(self) -> None:
        """For an evaluation: the mean weights."""
        if self._turn("nobody", sampling=False):
            for layer in self._acting:
                layer.quiet()

    def _turn(self, who: Any, sampling: bool) -> bool:
        """Whether there is something to draw."""
        if self._for is _NOTHING or (who == self._for and who != "step"):
            return False
        self._for = who
        for module in self._samplers:
            module.sampling = sampling
        return self.noisy


_NOTHING = object()
