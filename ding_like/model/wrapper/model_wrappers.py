"""Model wrappers: how a network's output becomes an action, and how a target network follows.

`model_wrap(model, wrapper_name='eps_greedy_sample')` puts a wrapper around a model (or around another wrapper). The
innermost one is always `base`. A wrapper follows its input's kind: NumPy observations give NumPy actions through the
model's `numpy_forward`, tensors give tensors.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.model.normalizer import NormalizedModel
from ding_like.utils import WRAPPER_REGISTRY


class ModelWrapper:
    """The protocol of a wrapper: `forward`, `reset`, and every other attribute of what it wraps.

    Attributes:
        noise_width: uniform numbers per env column and step that its `forward` wants as `noise [B, width]`.
    """

    noise_width = 0

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, key: str) -> Any:
        if key == "_model":  # not there yet, as while unpickling
            raise AttributeError(key)
        return getattr(self._model, key)

    def forward(self, data: Any, **kwargs: Any) -> dict:
        """The wrapped forward; `data` is an observation tree `[B, ...]` or the model's input dictionary."""
        return self._model.forward(data, **kwargs)

    def reset(self, data_id: Any = None, **kwargs: Any) -> None:
        """Forget the state of env columns `data_id` (all for None). Passed inwards through any stack of wrappers."""
        if isinstance(self._model, ModelWrapper):
            self._model.reset(data_id=data_id, **kwargs)


@WRAPPER_REGISTRY.register("base")
class BaseModelWrapper(ModelWrapper):
    """The innermost wrapper: calls the network with those keywords its forward accepts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        inner: Any = model.model if isinstance(model, NormalizedModel) else model  # it passes all keywords on
        parameters = inspect.signature(inner.forward).parameters.values()
        self._any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._accepts = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}

    def forward(self, data: Any, **kwargs: Any) -> dict:
        if type(data) is np.ndarray:
            return self._model.numpy_forward(data)
        if kwargs and not self._any:
            kwargs = {k: v for k, v in kwargs.items() if k in self._accepts}
        return self._model(data, **kwargs)


@WRAPPER_REGISTRY.register("argmax_sample")
class ArgmaxSampleWrapper(ModelWrapper):
    """`action` is the best one: `argmax(logit)`."""

    def forward(self, data: Any, **kwargs: Any) -> dict:
        output = self._model.forward(data, **kwargs)
        output["action"] = output["logit"].argmax(-1)  # [B]
        return output


@WRAPPER_REGISTRY.register("eps_greedy_sample")
class EpsGreedySampleWrapper(ModelWrapper):
    """With probability `eps` a uniform action, else the best; every env column decides for itself."""

    noise_width = 2

    def forward(self, data: Any, eps: float | np.ndarray = 0.0, noise: np.ndarray | None = None, **kwargs: Any) -> dict:
        """Adds `action [B]`.

        Args:
            eps: one number, or one a column `[B]`.
            noise: uniforms `[B, 2]`; None draws them from NumPy's global generator.
        """
        output = self._model.forward(data, **kwargs)
        logit = output["logit"]  # [B, A]
        if noise is None:
            noise = np.random.random((logit.shape[0], 2))
        explore = noise[:, 0] < eps
        if type(logit) is np.ndarray:
            action = logit.argmax(-1)
            if np.count_nonzero(explore):
                action = np.where(explore, (noise[:, 1] * logit.shape[-1]).astype(np.int64), action)
        else:
            uniform = (noise[:, 1] * logit.shape[-1]).astype(np.int64)
            chosen = torch.where(
                torch.as_tensor(explore, device=logit.device),
                torch.as_tensor(uniform, device=logit.device),
                logit.argmax(-1),
            )
            action = chosen
        output["action"] = action
        return output


@WRAPPER_REGISTRY.register("multinomial_sample")
class MultinomialSampleWrapper(ModelWrapper):
    """`action` drawn from softmax(logit / alpha) by inverting the distribution function."""

    noise_width = 1

    def forward(self, data: Any, alpha: float = 1.0, noise: np.ndarray | None = None, **kwargs: Any) -> dict:
        """Adds `action [B]`.

        Args:
            alpha: temperature.
            noise: uniforms `[B, 1]`; None draws them from NumPy's global generator.
        """
        output = self._model.forward(data, **kwargs)
        logit = output["logit"]  # [B, A]
        is_numpy = type(logit) is np.ndarray
        z = logit if is_numpy else logit.detach().double().cpu().numpy()
        if noise is None:
            noise = np.random.random((z.shape[0], 1))
        z = (z - z.max(-1, keepdims=True)) / alpha
        cdf = np.exp(z, dtype=np.float64).cumsum(-1)  # [B, A]
        action = (cdf <= noise[:, :1] * cdf[:, -1:]).sum(-1).clip(max=z.shape[-1] - 1)  # [B]
        output["action"] = action if is_numpy else torch.as_tensor(action, device=logit.device)
        return output


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
            self._follow(source.state_dict() if isinstance(source, nn.Module) else source)

    @torch.no_grad()
    def _follow(self, state: dict) -> None:
        names = list(self._parameters)
        torch._foreach_lerp_([self._parameters[n].data for n in names], [state[n].detach() for n in names], self._theta)
        for name, buffer in self._network().named_buffers():
            if name in state:
                buffer.copy_(state[name])

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
