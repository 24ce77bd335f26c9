"""The protocol of model wrappers, the innermost one, and the one place where action masks are applied."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from torch import nn

from ding_like.model.normalizer import NormalizedModel
from ding_like.rl_utils.distribution import mask_logit
from ding_like.rl_utils.previous import network_inputs
from ding_like.utils import WRAPPER_REGISTRY


class ModelWrapper:
    """The protocol of a wrapper: `forward`, `reset`, and every other attribute of what it wraps.

    Attributes:
        noise_width: uniform numbers per env column and step that its `forward` wants as `noise [B, width]`.
        keeps_state: whether a `hidden_state` wrapper is in the stack.
    """

    noise_width = 0

    def __init__(self, model: Any) -> None:
        self._model = model
        self.keeps_state: bool = isinstance(model, ModelWrapper) and model.keeps_state
        if isinstance(model, ModelWrapper) and not type(self).noise_width:  # what is inside draws
            self.noise_width = model.noise_width

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

    def run_state_dict(self) -> dict[str, Any]:
        """What the stack keeps between calls beyond the networks; `state_dict` stays the network's."""
        return self._model.run_state_dict() if isinstance(self._model, ModelWrapper) else {}

    def load_run_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `run_state_dict`."""
        if isinstance(self._model, ModelWrapper):
            self._model.load_run_state_dict(state)


@WRAPPER_REGISTRY.register("base")
class BaseModelWrapper(ModelWrapper):
    """The innermost wrapper: calls the network with those keywords its forward accepts, and masks what it says.

    What the observation shows of the step before becomes the network's inputs `prev_action` and `prev_reward`.
    Where the observation has `action_mask` (`[..., A]`, of several actions side by side), the logits of forbidden
    actions become the most negative finite number of their type.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        inner = innermost(model)
        parameters = inspect.signature(inner.forward).parameters.values()
        self._any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._accepts = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        in_numpy = getattr(inner, "numpy_forward", None)
        self._numpy_mode = in_numpy is not None and "mode" in inspect.signature(in_numpy).parameters
        self._numpy_steps = steps_in_numpy(inner)

    def forward(self, data: Any, **kwargs: Any) -> dict:
        if type(data) is np.ndarray or (self._numpy_steps and is_numpy_step(data, kwargs)):
            if self._numpy_mode and "mode" in kwargs:
                return self._model.numpy_forward(data, mode=kwargs["mode"])
            return self._model.numpy_forward(data)
        if kwargs and not self._any:
            kwargs = {k: v for k, v in kwargs.items() if k in self._accepts}
        data = network_inputs(data)
        try:
            output = self._model(data, **kwargs)
        except (IndexError, KeyError, TypeError) as err:
            network = innermost(self._model)
            if not _lacks_state(network, data):
                raise
            raise ValueError(
                f"the network ({type(network).__name__}) failed on an observation alone ({type(err).__name__}: {err}): "
                "it reads 'prev_state' and has no initial_state(B), which makes a policy recurrent; add that method, "
                "which gives the state of B columns before their first step"
            ) from err
        if not isinstance(output, dict):
            raise TypeError(
                f"the network ({type(self._model).__name__}) returned a {type(output).__name__}; wanted a dict, such "
                "as {'logit': ...} (with 'value' for an actor-critic policy)"
            )
        if type(output.get("logit")) is list:  # DI-engine's form of several actions
            output["logit"] = tuple(output["logit"])
        mask = action_mask_of(data)
        if mask is not None and "logit" in output:
            if isinstance(output["logit"], dict):
                raise ValueError("obs has an action_mask, but the actions are continuous: none can be forbidden")
            output["logit"] = mask_logit(output["logit"], mask)
        return output


def innermost(model: Any) -> Any:
    """The network inside a stack of wrappers and a normaliser (both pass keywords on)."""
    while isinstance(model, ModelWrapper):
        model = model._model
    return model.model if isinstance(model, NormalizedModel) else model


def steps_in_numpy(network: Any) -> bool:
    """Whether a network is recurrent and has a `numpy_forward`, then one step, that may be used."""
    names = "initial_state", "numpy_initial_state", "numpy_forward", "numpy_ready"
    return all(callable(getattr(network, name, None)) for name in names) and network.numpy_ready()


def _lacks_state(network: Any, data: Any) -> bool:
    """Whether a network asks for a state that nobody keeps, as it has no `initial_state`."""
    if callable(getattr(network, "initial_state", None)) or (isinstance(data, dict) and "prev_state" in data):
        return False
    methods = [part for cls in type(network).__mro__ for part in vars(cls).values() if inspect.isfunction(part)]
    return any("prev_state" in method.__code__.co_consts for method in methods)


def is_numpy_step(data: Any, kwargs: dict) -> bool:
    """Whether a recurrent network's inputs ask for one step and are arrays."""
    return isinstance(data, dict) and type(data.get("obs")) is np.ndarray and kwargs.get("inference") is True


def action_mask_of(data: Any) -> Any:
    """The `action_mask` in a model's input, an observation or `{'obs': ...}` of a recurrent one; None without one."""
    if not isinstance(data, dict):
        return None
    if "action_mask" in data:
        return data["action_mask"]
    obs = data.get("obs")
    return obs.get("action_mask") if isinstance(obs, dict) else None
