"""Encoders of images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import nn

from ding_like.torch_utils.network.mlp import make_activation

LARGE_IMAGE = 36  # pixels: from here on the 8/4/3 kernels of Mnih 2015 fit


class ImageEncoder(nn.Module):
    """Base: an image becomes floats, goes through `conv`, which a subclass makes, and through one linear layer, `fc`.

    uint8 images are divided by 255, here and nowhere else; other types are only cast to float. All leading axes are one
    batch.

    Args:
        obs_shape: `[C, H, W]` or `[H, W, C]`.
        hidden_size_list: channels, then the output size.
        channels_last: None takes the smaller outer axis for the channels.
    """

    conv: nn.Module

    def __init__(
        self, obs_shape: Sequence[int], hidden_size_list: Sequence[int], channels_last: bool | None = None
    ) -> None:
        super().__init__()
        if len(hidden_size_list) < 2:
            raise ValueError(
                f"encoder_hidden_size_list is {list(hidden_size_list)}; an image needs at least one convolution "
                "width and the output size, e.g. [32, 64, 64, 512]"
            )
        self.channels_last = obs_shape[2] < obs_shape[0] if channels_last is None else channels_last
        self._chw = (obs_shape[2], *obs_shape[:2]) if self.channels_last else tuple(obs_shape)
        self.output_size = hidden_size_list[-1]
        self._checked = False

    def _end(self, features: int, activation: str | nn.Module | type) -> None:
        self.fc = nn.Sequential(nn.Linear(features, self.output_size), make_activation(activation))

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
        if x.is_cpu:  # an update of the deep network takes 0.63 of the time, of the shallow one 0.56, of small images 1
            x = x.contiguous(memory_format=torch.channels_last)
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


class ConvEncoder(ImageEncoder):
    """Kernels of Mnih 2015 for large images, of 3x3 for small ones.

    `hidden_size_list=[16, 32, 256]` is the shallow network of Mnih 2016 and of Espeholt 2018, figure 3 left.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (32, 64, 64, 512),
        activation: str | nn.Module | type = "relu",
        channels_last: bool | None = None,
    ) -> None:
        super().__init__(obs_shape, hidden_size_list, channels_last)
        c, h, w = self._chw
        large = min(h, w) >= LARGE_IMAGE
        layers: list[nn.Module] = []
        for i, width in enumerate(hidden_size_list[:-1]):
            kernel, stride = ((8, 4), (4, 2), (3, 1))[min(i, 2)] if large else (3, 1)
            if min(h, w) < kernel:
                raise ValueError(f"an image of {list(obs_shape)} is too small for {i + 1} convolutions")
            layers += [nn.Conv2d(c, width, kernel, stride), make_activation(activation)]
            c, h, w = width, (h - kernel) // stride + 1, (w - kernel) // stride + 1
        self.conv = nn.Sequential(*layers)
        self._end(c * h * w, activation)


class ResidualBlock(nn.Module):
    """`x + conv(relu(conv(relu(x))))`, kernels of 3x3. He 2016."""

    def __init__(self, width: int, activation: str | nn.Module | type = "relu") -> None:
        super().__init__()
        convs = [nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        self.main = nn.Sequential(make_activation(activation), convs[0], make_activation(activation), convs[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.main(x)


class ResidualEncoder(ImageEncoder):
    """The deep network of Espeholt 2018, figure 3 right: 15 convolutions with the default widths.

    A section for every width but the last: a 3x3 convolution, max pooling of 3x3 with stride 2, which halves the image
    (odd sides round up), and two residual blocks.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        hidden_size_list: Sequence[int] = (16, 32, 32, 256),
        activation: str | nn.Module | type = "relu",
        channels_last: bool | None = None,
    ) -> None:
        super().__init__(obs_shape, hidden_size_list, channels_last)
        c, h, w = self._chw
        layers: list[nn.Module] = []
        for width in hidden_size_list[:-1]:
            layers += [nn.Conv2d(c, width, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [ResidualBlock(width, activation) for _ in range(2)]
            c, h, w = width, (h + 1) // 2, (w + 1) // 2
        self.conv = nn.Sequential(*layers, make_activation(activation))
        self._end(c * h * w, activation)
