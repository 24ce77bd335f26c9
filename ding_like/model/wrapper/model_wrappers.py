"""Model wrappers: how a network's output becomes an action, and how a target network follows.

`model_wrap(model, wrapper_name='eps_greedy_sample')` puts a wrapper around a model (or around another wrapper). The
innermost one is always `base`. A wrapper follows its input's kind: NumPy observations give NumPy actions through the
model's `numpy_forward`, tensors give tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ding_like.model.wrapper.base_wrapper import BaseModelWrapper, ModelWrapper
from ding_like.model.wrapper.hidden_state import HiddenStateWrapper
from ding_like.model.wrapper.sample_wrappers import (
    ActionNoiseWrapper,
    ArgmaxSampleWrapper,
    CriticMemoryWrapper,
    DeterministicSampleWrapper,
    EpsGreedySampleWrapper,
    MultinomialSampleWrapper,
    ReparamSampleWrapper,
)
from ding_like.utils import WRAPPER_REGISTRY

__all__ = [
    "ActionNoiseWrapper",
    "ArgmaxSampleWrapper",
    "BaseModelWrapper",
    "CriticMemoryWrapper",
    "DeterministicSampleWrapper",
    "EpsGreedySampleWrapper",
    "HiddenStateWrapper",
    "ModelWrapper",
    "MultinomialSampleWrapper",
    "ReparamSampleWrapper",
    "TargetNetworkWrapper",
    "model_wrap",
    "register_wrapper",
]


@WRAPPER_REGISTRY.register("target")
class TargetNetworkWrapper(ModelWrapper):
    """A network that follows another, in eval mode: dropout and batch-norm make no noise in what it says.

    Args:
        update_type: 'assign' copies everything every `freq`-th `update`; 'momentum' moves parameters by
            `p <- (1 - theta) p + theta q` at each `update` and copies buffers.
        update_kwargs: `{'freq': int}` or `{'theta': float}`.
    """

    def __init__(self, model: Any, update_type: str = "assign", update_kwargs: dict | None = None) -> None:
        super().__init__(model)
        wanted = {"assign": "freq", "momentum": "theta"}
        if update_type not in wanted:
            raise ValueError(f"update_type is {update_type!r}; wanted one of {list(wanted)}")
        kwargs = dict(update_kwargs or {})
        if list(kwargs) != [wanted[update_type]]:
            raise ValueError(
                f"update_kwargs is {kwargs}; update_type '{update_type}' takes '{wanted[update_type]}' alone"
            )
        self._type = update_type
        self._freq, self._theta = int(kwargs.get("freq", 1)), float(kwargs.get("theta", 1.0))
        if self._freq < 1:
            raise ValueError(f"freq is {kwargs['freq']}; wanted at least 1")
        if not 0.0 < self._theta <= 1.0:
            raise ValueError(f"theta is {kwargs['theta']}; wanted more than 0 and at most 1")
        self._count = 0
        net = self._network().eval()
        for p in net.parameters():
            p.requires_grad_(False)
        self._parameters = dict(net.named_parameters())
        self._followed: tuple[Any, ...] | None = None

    def _network(self) -> nn.Module:
        net = self._model
        while isinstance(net, ModelWrapper):
            net = net._model
        return net

    def update(self, source: nn.Module | dict, direct: bool = False) -> None:
        """Follow `source` (a module or its state dict); `direct` copies now whatever the kind and count."""
        self._count += 1
        if direct or (self._type == "assign" and self._count % self._freq == 0):
            self._network().load_state_dict(source.state_dict() if isinstance(source, nn.Module) else source)
        elif self._type == "momentum":
            if self._followed is None or self._followed[0] is not source:
                self._followed = source, *self._pairs(source)
            self._follow(*self._followed[1:])

    def _pairs(self, source: nn.Module | dict) -> tuple[list, list, list]:
        """Own parameters, those to follow, and pairs of buffers; looked up once, as a state dict takes its time."""
        if isinstance(source, nn.Module):
            source = {**dict(source.named_parameters()), **dict(source.named_buffers())}
        buffers = [(own, source[name]) for name, own in self._network().named_buffers() if name in source]
        return list(self._parameters.values()), [source[name] for name in self._parameters], buffers

    @torch.no_grad()
    def _follow(self, own: list, others: list, buffers: list) -> None:
        torch._foreach_lerp_([p.data for p in own], [p.detach() for p in others], self._theta)
        for buffer, other in buffers:
            buffer.copy_(other)

    def train(self, mode: bool = True) -> TargetNetworkWrapper:
        """Nothing: it stays in eval mode where a policy puts all its networks into train mode."""
        return self

    def state_dict(self) -> dict:
        """A copy of the network's state and the update count; later updates do not change it."""
        state = {k: v.detach().clone() for k, v in self._network().state_dict().items()}
        return {"model": state, "count": self._count}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._network().load_state_dict(state["model"])
        self._count = int(state["count"])

    def reset(self, data_id: Any = None, target_update_count: int | None = None, **kwargs: Any) -> None:
        if target_update_count is not None:
            self._count = target_update_count
        super().reset(data_id=data_id, **kwargs)


def model_wrap(model: Any, wrapper_name: str = "base", **kwargs: Any) -> Any:
    """`model` (a module or a wrapper) in the wrapper of that name.

    Raises UnknownNameError with suggestions for an unknown name.
    """
    wrapper = WRAPPER_REGISTRY.get(wrapper_name)
    if not isinstance(model, ModelWrapper):
        model = BaseModelWrapper(model)
    return model if wrapper is BaseModelWrapper else wrapper(model, **kwargs)


def register_wrapper(name: str, wrapper_type: type) -> None:
    """File a wrapper class of your own under `name` for `model_wrap`.

    Raises TypeError for a class without the wrapper protocol.
    """
    if not (isinstance(wrapper_type, type) and issubclass(wrapper_type, ModelWrapper)):
        raise TypeError(f"wrapper '{name}' is {wrapper_type!r}; wanted a subclass of ModelWrapper")
    WRAPPER_REGISTRY.register(name, wrapper_type)
