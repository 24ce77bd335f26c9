"""Multi-layer perceptron with a NumPy forward for acting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.data import tree_map

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


NUMPY_ACTIVATIONS: dict[type, Callable[[np.ndarray], None]] = {nn.ReLU: _relu, nn.Tanh: _tanh}
VIEWABLE = (torch.float32, torch.float64)


class MLP(nn.Sequential):
    """Linear layers, each followed by an activation (the last too, unless `last_activation=False`).

    Args:
        sizes: input size, hidden sizes, output size.
        norm_type: None or 'LN' (LayerNorm before each activation).
        linear: class of the layers, made from input and output size.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str | nn.Module | type = "relu",
        norm_type: str | None = None,
        last_activation: bool = True,
        linear: Callable[[int, int], nn.Module] = nn.Linear,
    ) -> None:
        if norm_type not in (None, "LN"):
            raise ValueError(f"norm_type is {norm_type!r}; wanted None or 'LN'")
        layers: list[nn.Module] = []
        for i, (size_in, size_out) in enumerate(pairwise(sizes)):
            layers.append(linear(size_in, size_out))
            if i < len(sizes) - 2 or last_activation:
                if norm_type:
                    layers.append(nn.LayerNorm(size_out))
                layers.append(make_activation(activation))
        super().__init__(*layers)
        self.output_size = sizes[-1]
        self._forget()

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` needs no torch: known plain layers in float32 on the CPU."""
        return _numpy_plan(self._modules.values()) is not None and all(
            p.device.type == "cpu" and p.dtype == torch.float32 for p in self.parameters()
        )

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The forward `[B, in] -> [B, out]` on NumPy views of the parameters.

        The views follow in-place updates, moved storage and replaced layers; layers without a NumPy form run in torch.
        """
        stale = self._modules != self._seen  # modules compare by identity
        try:
            for table, weight_at, bias_at in self._places:  # moved: another dtype or device, a flattening optimiser
                if table["weight"].data_ptr() != weight_at or table["bias"].data_ptr() != bias_at:
                    stale = True
                    break
        except (KeyError, AttributeError):  # a parametrization took the parameter away, or it was set to None
            stale = True
        if stale and not self._look():
            return through_torch(self, x)
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

    def _look(self) -> bool:
        """Take NumPy views of every layer, and note where the parameters lie. False where that cannot be."""
        self._forget()
        plan = _numpy_plan(self._modules.values())
        if plan is None or any(p.device.type != "cpu" or p.dtype not in VIEWABLE for p in self.parameters()):
            return False
        self._seen.update(self._modules)
        for linear, norm, act in plan:
            for layer in (linear,) if norm is None else (linear, norm):
                self._places.append((layer._parameters, layer.weight.data_ptr(), layer.bias.data_ptr()))
            scaled = None if norm is None else (norm.weight.detach().numpy(), norm.bias.detach().numpy(), norm.eps)
            self._views.append((linear.weight.detach().numpy().T, linear.bias.detach().numpy(), scaled, act))
        return True

    def _forget(self) -> None:
        self._seen: dict = {}
        self._views: list[tuple] = []
        self._places: list[tuple[dict, int, int]] = []

    def __getstate__(self) -> dict:
        # The views are of this object's memory; a copy makes its own.
        return {**self.__dict__, "_seen": {}, "_views": [], "_places": []}


def _numpy_plan(layers: Iterable[Any]) -> list | None:
    """[linear, norm, activation] for each linear layer; None where some layer has no NumPy form.

    Only the plain classes count: a parametrized layer, or a subclass, may compute something else.
    """
    plan: list = []
    for layer in layers:
        kind = type(layer)
        if kind in (nn.Linear, nn.LayerNorm) and any(layer._parameters.get(n) is None for n in ("weight", "bias")):
            return None
        if kind is nn.Linear:
            plan.append([layer, None, None])
        elif kind is nn.LayerNorm and plan and plan[-1][1:] == [None, None]:
            plan[-1][1] = layer
        elif kind in NUMPY_ACTIVATIONS and plan and plan[-1][2] is None:
            plan[-1][2] = NUMPY_ACTIVATIONS[kind]
        else:
            return None
    return plan


def numpy_ready(module: Any) -> bool:
    """Whether a module has a NumPy forward and says that it may be used."""
    ready = getattr(module, "numpy_ready", None)
    return ready is not None and ready()


def through_torch(module: nn.Module, x: Any, **kwargs: Any) -> Any:
    """`module(x, **kwargs)` without gradients, NumPy in and out; `x` is an array or a tree of such."""
    device = next((p.device for p in module.parameters()), None)
    with torch.inference_mode():
        output = module(tree_map(lambda a: torch.as_tensor(a, device=device), x), **kwargs)
        return tree_map(lambda t: t.cpu().numpy(), output)
