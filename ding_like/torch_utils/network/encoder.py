"""Encoders: an observation of any supported kind becomes one feature vector.

The kind comes as a *spec*, plain data a config can hold: `int` or `[ints]` for a Box, `{key: spec}` for a Dict,
`{'@tuple': [specs]}` for a Tuple, `{'@one_hot': [n, ...]}` for Discrete and MultiDiscrete,
`{'@words': [vocab, length]}` for a text as word numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ding_like.torch_utils.network.image import ConvEncoder, ResidualEncoder
from ding_like.torch_utils.network.mlp import MLP, numpy_ready
from ding_like.torch_utils.network.words import WordEncoder

ONE_HOT, TUPLE, WORDS = "@one_hot", "@tuple", "@words"
ENCODER_TYPES = {"conv": ConvEncoder, "residual": ResidualEncoder}  # of images


def is_image(spec: Any) -> bool:
    """Whether a spec is a rank-3 Box."""
    return isinstance(spec, Sequence) and len(spec) == 3


def children(spec: Any) -> dict[str, Any] | None:
    """The sub-specs of a Dict or Tuple spec by key ('0', '1', ... for a Tuple); None for a leaf."""
    if not isinstance(spec, Mapping) or ONE_HOT in spec or WORDS in spec:
        return None
    if TUPLE in spec:
        return {str(i): sub for i, sub in enumerate(spec[TUPLE])}
    return dict(spec)


def is_words(spec: Any) -> bool:
    """Whether a spec is a text."""
    return isinstance(spec, Mapping) and WORDS in spec


def has_image(spec: Any) -> bool:
    """Whether an image is anywhere in a spec."""
    return is_image(spec) or any(has_image(sub) for sub in (children(spec) or {}).values())


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


class VectorEncoder(nn.Module):
    """An MLP over one vector leaf or one text."""

    def __init__(
        self, spec: Any, hidden_size_list: Sequence[int], activation: Any = "relu", norm_type: str | None = None
    ) -> None:
        super().__init__()
        self.input = WordEncoder(spec[WORDS][0]) if is_words(spec) else VectorInput(spec)
        self.main = MLP([self.input.output_size, *hidden_size_list], activation, norm_type)
        self.output_size = hidden_size_list[-1]
        self._plain = isinstance(spec, int) or (isinstance(spec, Sequence) and len(spec) == 1)

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
    """A Dict or Tuple observation: images through convolutions, all vectors together through an MLP, texts through an
    LSTM, then one layer over all.

    Nested spaces are encoded by an encoder of their own.
    """

    def __init__(
        self,
        spec: Mapping,
        hidden_size_list: Sequence[int],
        activation: Any = "relu",
        norm_type: str | None = None,
        encoder_type: str = "conv",
    ) -> None:
        super().__init__()
        subs = children(spec) or {}
        self.is_tuple = TUPLE in spec
        # Lists, since not every key of an observation may name a submodule ('type', 'a.b').
        self._part_keys = [k for k, sub in subs.items() if children(sub) is not None or is_image(sub) or is_words(sub)]
        self._vector_keys = [k for k in subs if k not in self._part_keys]
        others = hidden_size_list, activation, norm_type, encoder_type
        kinds = [subs[k] for k in self._part_keys]
        parts: list[Any] = [WordEncoder(s[WORDS][0]) if is_words(s) else _encoder(s, *others) for s in kinds]
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
    encoder_type: str = "conv",
) -> nn.Module:
    """The encoder for an observation spec; it has `output_size`, the last of `hidden_size_list`.

    `encoder_type` is that of images: 'conv' or 'residual' (see `ConvEncoder` and `ResidualEncoder`).

    Raises ValueError for an empty `hidden_size_list`, an unknown `encoder_type`, and 'residual' without an image.
    """
    if not hidden_size_list:
        raise ValueError("encoder_hidden_size_list is empty; wanted at least one layer width")
    if encoder_type not in ENCODER_TYPES:
        raise ValueError(f"encoder_type is {encoder_type!r}; wanted one of {list(ENCODER_TYPES)}")
    if encoder_type != "conv" and not has_image(spec):
        raise ValueError(f"encoder_type is {encoder_type!r} and the observation {spec} has no image; leave it out")
    return _encoder(spec, hidden_size_list, activation, norm_type, encoder_type)


def _encoder(spec: Any, hidden_size_list: Sequence[int], activation: Any, norm_type: Any, encoder_type: str) -> Any:
    if children(spec) is not None:
        return DictEncoder(spec, hidden_size_list, activation, norm_type, encoder_type)
    if is_image(spec):
        return ENCODER_TYPES[encoder_type](spec, hidden_size_list, activation)
    return VectorEncoder(spec, hidden_size_list, activation, norm_type)
