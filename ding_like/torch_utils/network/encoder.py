"""Encoders: an observation of any supported kind becomes one feature vector.

The kind comes as a *spec*, plain data a config can hold: `int` or `[ints]` for a Box, `{key: spec}` for a Dict,
`{'@tuple': [specs]}` for a Tuple, `{'@one_hot': [n, ...]}` for Discrete and MultiDiscrete.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ding_like.torch_utils.network.mlp import MLP, make_activation, numpy_ready

ONE_HOT, TUPLE = "@one_hot", "@tuple"
LARGE_IMAGE = 36  # pixels: from here on the 8/4/3 kernels of Mnih 2015 fit


def is_image(spec: Any) -> bool:
    """Whether a spec is a rank-3 Box."""
    return isinstance(spec, Sequence) and len(spec) == 3


def children(spec: Any) -> dict[str, Any] | None:
    """The sub-specs of a Dict or Tuple spec by key ('0', '1', ... for a Tuple); None for a leaf."""
    if not isinstance(spec, Mapping) or ONE_HOT in spec:
        return None
    if TUPLE in spec:
        return {str(i): sub for i, sub in enumerate(spec[TUPLE])}
    return dict(spec)


class VectorInput(nn.Module):
    """A non-image leaf as float features `[..., size]`: flattened, or one-hot for integer kinds."""

    like: torch.Tensor

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.one_hot = [int(n) for n in spec[ONE_HOT]] if isinstance(spec, Mapping) else None
        self.shape = [] if self.one_hot else [spec] if isinstance(spec, int) else list(spec)
        self.output_size = sum(self.one_hot) if self.one_hot else int(np.prod(self.shape))
        self._warned = False
        self.register_buffer("like", torch.empty(0), persistent=False)  # of the type that `.double()` gives the network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.one_hot is not None:
            parts = x.long() if len(self.one_hot) > 1 else x.long().unsqueeze(-1)
            return torch.cat([F.one_hot(parts[..., i], n) for i, n in enumerate(self.one_hot)], -1).to(self.like.dtype)
        if x.dtype == torch.uint8 and not self._warned:
            self._warned = True
            warnings.warn(
                f"a uint8 observation of shape {self.shape} is no image and enters the network unscaled (0 to 255); "
                "scale it in an env wrapper if that is not wanted",
                stacklevel=2,
            )
        lead = x.dim() - len(self.shape)
        return x.reshape(*x.shape[:lead], -1).to(self.like.dtype)


class ConvEncoder(nn.Module):
    """Convolutions over an image, then one linear layer. Mnih 2015 for large images, 3x3 kernels for small ones.

    uint8 images are divided by 255, here and nowhere else; other types are only cast to float.

    Args:
        obs_shape: `[C, H, W]` or `[H, W, C]`.
        hidden_size_list: channels of each convolution, then the output size.
        channels_last: None takes the smaller outer axis for the channels.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (32, 64, 64, 512),
        activation: str | nn.Module | type = "relu",
        channels_last: bool | None = None,
    ) -> None:
        super().__init__()
        if len(hidden_size_list) < 2:
            raise ValueError(
                f"encoder_hidden_size_list is {list(hidden_size_list)}; an image needs at least one convolution "
                "width and the output size, e.g. [32, 64, 64, 512]"
            )
        self.channels_last = obs_shape[2] < obs_shape[0] if channels_last is None else channels_last
        c, h, w = (obs_shape[2], *obs_shape[:2]) if self.channels_last else obs_shape
        large = min(h, w) >= LARGE_IMAGE
        layers: list[nn.Module] = []
        for i, width in enumerate(hidden_size_list[:-1]):
            kernel, stride = ((8, 4), (4, 2), (3, 1))[min(i, 2)] if large else (3, 1)
            if min(h, w) < kernel:
                raise ValueError(f"an image of {list(obs_shape)} is too small for {i + 1} convolutions")
            layers += [nn.Conv2d(c, width, kernel, stride), make_activation(activation)]
            c, h, w = width, (h - kernel) // stride + 1, (w - kernel) // stride + 1
        self.conv = nn.Sequential(*layers)
        self.fc = nn.Sequential(nn.Linear(c * h * w, hidden_size_list[-1]), make_activation(activation))
        self.output_size = hidden_size_list[-1]
        self._checked = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lead, dtype = x.shape[:-3], next(self.parameters()).dtype
        x = x.reshape(-1, *x.shape[-3:])  # [N, C, H, W] or [N, H, W, C]
        if x.dtype == torch.uint8:
            x = x.to(dtype).div_(255.0)
        elif x.is_floating_point():
            self._check_range(x)
        x = x.to(dtype)
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        return self.fc(self.conv(x).flatten(1)).reshape(*lead, -1)

    def _check_range(self, x: torch.Tensor) -> None:
        if not self._checked:
            self._checked = True
            top = float(x.detach().max()) if x.numel() else 0.0
            if top > 1.0:
                warnings.warn(
                    f"a float image observation reaches {top:g}; only uint8 images are divided by 255",
                    stacklevel=2,
                )


class VectorEncoder(nn.Module):
    """An MLP over one vector leaf."""

    def __init__(
        self, spec: Any, hidden_size_list: Sequence[int], activation: Any = "relu", norm_type: str | None = None
    ) -> None:
        super().__init__()
        self.input = VectorInput(spec)
        self.main = MLP([self.input.output_size, *hidden_size_list], activation, norm_type)
        self.output_size = hidden_size_list[-1]
        self._plain = self.input.one_hot is None and len(self.input.shape) == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        modules: Any = self._modules  # nn.Module's own look-up is slow
        fits = self._plain and x.dtype == modules["input"]._buffers["like"].dtype
        return modules["main"](x if fits else modules["input"](x))

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` may be used: a rank-1 Box."""
        return self._plain and numpy_ready(self.main)

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """`[B, n] -> [B, hidden]` in NumPy."""
        main: Any = self._modules["main"]  # nn.Module's own look-up is slow
        return main.numpy_forward(x)


class DictEncoder(nn.Module):
    """A Dict or Tuple observation: images through convolutions, all vectors together through an MLP, then one layer.

    Nested spaces are encoded by an encoder of their own.
    """

    def __init__(
        self, spec: Mapping, hidden_size_list: Sequence[int], activation: Any = "relu", norm_type: str | None = None
    ) -> None:
        super().__init__()
        subs = children(spec) or {}
        self.is_tuple = TUPLE in spec
        # Lists, since not every key of an observation may name a submodule ('type', 'a.b').
        self._part_keys = [k for k, sub in subs.items() if children(sub) is not None or is_image(sub)]
        self._vector_keys = [k for k in subs if k not in self._part_keys]
        parts: list[Any] = [make_encoder(subs[k], hidden_size_list, activation, norm_type) for k in self._part_keys]
        vectors = [VectorInput(subs[k]) for k in self._vector_keys]
        self.parts, self.vectors = nn.ModuleList(parts), nn.ModuleList(vectors)
        size = sum(part.output_size for part in parts)
        self.mlp = None
        if vectors:
            width = sum(v.output_size for v in vectors)
            self.mlp = MLP([width, *hidden_size_list], activation, norm_type)
            size += hidden_size_list[-1]
        self.output_size = hidden_size_list[-1]
        self.join = MLP([size, self.output_size], activation)

    def forward(self, x: Any) -> torch.Tensor:
        field = (lambda k: x[int(k)]) if self.is_tuple else (lambda k: x[k])
        features = [part(field(key)) for key, part in zip(self._part_keys, self.parts)]
        if self.mlp is not None:
            vectors = [v(field(key)) for key, v in zip(self._vector_keys, self.vectors)]
            features.append(self.mlp(torch.cat(vectors, -1)))
        return self.join(torch.cat(features, -1))


def make_encoder(
    spec: Any,
    hidden_size_list: Sequence[int],
    activation: str | nn.Module | type = "relu",
    norm_type: str | None = None,
) -> nn.Module:
    """The encoder for an observation spec; it has `output_size`.

    Raises ValueError for an empty `hidden_size_list`.
    """
    if not hidden_size_list:
        raise ValueError("encoder_hidden_size_list is empty; wanted at least one layer width")
    if children(spec) is not None:
        return DictEncoder(spec, hidden_size_list, activation, norm_type)
    if is_image(spec):
        return ConvEncoder(spec, hidden_size_list, activation)
    return VectorEncoder(spec, hidden_size_list, activation, norm_type)
