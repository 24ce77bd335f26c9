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
        self._plan: list[tuple[nn.Linear, Callable[[np.ndarray], None] | None]] | None = _numpy_plan(layers)
        self._views: list[tuple] = []

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` computes what `forward` does: linear, ReLU or tanh, float32, on the CPU."""
        return self._plan is not None and all(
            p.device.type == "cpu" and p.dtype == torch.float32 for p in self.parameters()
        )

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The forward `[B, in] -> [B, out]` on NumPy views of the parameters; the views follow in-place updates."""
        for params, weight_at, bias_at, _, _, _ in self._views:
            if params["weight"].data_ptr() != weight_at or params["bias"].data_ptr() != bias_at:
                self._views = []
                break
        if not self._views:
            self._views = [_view(linear._parameters, act) for linear, act in self._plan or ()]
        for _, _, _, weight, bias, act in self._views:
            x = x @ weight
            x += bias
            if act is not None:
                act(x)
        return x

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_views": []}  # views are of this object's memory; a copy makes its own


def _view(params: dict, act: Callable | None) -> tuple:
    """A layer's parameter table, where its parameters lie, NumPy views of them, and its activation."""
    weight, bias = params["weight"], params["bias"]
    return params, weight.data_ptr(), bias.data_ptr(), weight.detach().numpy().T, bias.detach().numpy(), act


def _numpy_plan(layers: list[nn.Module]) -> list | None:
    known: dict[type, Callable[[np.ndarray], None]] = {nn.ReLU: _relu, nn.Tanh: _tanh}
    plan: list = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            plan.append((layer, None))
        elif type(layer) in known and plan and plan[-1][1] is None:
            plan[-1] = (plan[-1][0], known[type(layer)])
        else:
            return None
    return plan
