"""Multi-layer perceptron with a NumPy forward for acting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
}


def make_activation(activation: str | nn.Module | type) -> nn.Module:
    """An activation from its name, a module class or a module. Raises ValueError for an unknown name."""
    if isinstance(activation, nn.Module):
        return activation
    if isinstance(activation, type):
        return activation()
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; wanted one of {sorted(ACTIVATIONS)} or a torch module")
    return ACTIVATIONS[activation]()


def _relu(x: np.ndarray) -> None:
    np.maximum(x, 0.0, out=x)


def _tanh(x: np.ndarray) -> None:
    np.tanh(x, out=x)


class MLP(nn.Sequential):
    """Linear layers, each followed by an activation (the last too, unless `last_activation=False`).

    Args:
        sizes: input size, hidden sizes, output size.
        norm_type: None or 'LN' (LayerNorm before each activation).
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str | nn.Module | type = "relu",
        norm_type: str | None = None,
        last_activation: bool = True,
    ) -> None:
        if norm_type not in (None, "LN"):
            raise ValueError(f"norm_type is {norm_type!r}; wanted None or 'LN'")
        layers: list[nn.Module] = []
        for i, (size_in, size_out) in enumerate(pairwise(sizes)):
            layers.append(nn.Linear(size_in, size_out))
            if i < len(sizes) - 2 or last_activation:
                if norm_type:
                    layers.append(nn.LayerNorm(size_out))
                layers.append(make_activation(activation))
        super().__init__(*layers)
        self.output_size = sizes[-1]
        self._plan = _numpy_plan(layers)
        self._views: list[tuple] = []
        self._owners: list[tuple[dict, str, int]] = []

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` computes what `forward` does: known layers in float32 on the CPU."""
        return self._plan is not None and all(
            p.device.type == "cpu" and p.dtype == torch.float32 for p in self.parameters()
        )

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The forward `[B, in] -> [B, out]` on NumPy views of the parameters; the views follow in-place updates."""
        for table, name, at in self._owners:
            if table[name].data_ptr() != at:  # storage moved: another dtype or device, an optimiser that flattened it
                self._views = []
                break
        if not self._views:
            self._look()
        for weight, bias, norm, act in self._views:
            x = x @ weight
            x += bias
            if norm is not None:
                scale, shift, eps = norm
                x -= x.mean(-1, keepdims=True)
                x /= np.sqrt(np.einsum("bi,bi->b", x, x)[:, None] / x.shape[1] + eps)
                x *= scale
                x += shift
            if act is not None:
                act(x)
        return x

    def _look(self) -> None:
        """Take NumPy views of every layer, and note where the parameters lie."""
        self._views, self._owners = [], []
        for linear, norm, act in self._plan or ():
            tables = [linear._parameters] + ([norm._parameters] if norm is not None else [])
            self._owners += [(t, name, t[name].data_ptr()) for t in tables for name in ("weight", "bias")]
            scaled = None if norm is None else (norm.weight.detach().numpy(), norm.bias.detach().numpy(), norm.eps)
            self._views.append((linear.weight.detach().numpy().T, linear.bias.detach().numpy(), scaled, act))

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_views": [], "_owners": []}  # views are of this object's memory; a copy makes its own


def _numpy_plan(layers: list[nn.Module]) -> list | None:
    """(linear, norm, activation) for each linear layer; None where some layer has no NumPy form."""
    known: dict[type, Callable[[np.ndarray], None]] = {nn.ReLU: _relu, nn.Tanh: _tanh}
    plan: list = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            plan.append([layer, None, None])
        elif isinstance(layer, nn.LayerNorm) and plan and plan[-1][1:] == [None, None]:
            plan[-1][1] = layer
        elif type(layer) in known and plan and plan[-1][2] is None:
            plan[-1][2] = known[type(layer)]
        else:
            return None
    return plan
