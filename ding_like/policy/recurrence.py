"""What policies ask about recurrence: whether a network has it, and how it acts then."""

from __future__ import annotations

from typing import Any

from torch import nn

from ding_like.model import model_wrap
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.wrapper.base_wrapper import ModelWrapper


def is_recurrent(model: nn.Module) -> bool:
    """Whether a network keeps a state from step to step, which its `initial_state` tells."""
    network = model.model if isinstance(model, NormalizedModel) else model
    return callable(getattr(network, "initial_state", None))


def acting_model(model: nn.Module, wrapper_name: str, save_prev_state: bool = False, **kwargs: Any) -> ModelWrapper:
    """The network in a sampling wrapper; a recurrent one with its state kept by env column (`hidden_state`)."""
    network: Any = model
    if is_recurrent(model):
        network = model_wrap(network, wrapper_name="hidden_state", save_prev_state=save_prev_state)
    return model_wrap(network, wrapper_name=wrapper_name, **kwargs)
