"""What actor-critic policies share: how they act, what a step stores, the step on their losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.config.checks import Check, at_least, finite, not_negative, one_of, optional
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict
from ding_like.model import model_wrap
from ding_like.model.wrapper.base_wrapper import ModelWrapper
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.rows import acted_row

SAMPLERS = {
    "discrete": "multinomial_sample",
    "multi_discrete": "multinomial_sample",
    "continuous": "reparam_sample",
}

ACTOR_CHECKS: dict[str, Check | None] = {
    "learn_unroll_len": at_least(1),
    "action_space": optional(one_of(*SAMPLERS)),
    "nstep": one_of(1),
    "random_collect_size": one_of(0),
    "collect.traj_len_inf": one_of(False),
    "learn.update_per_collect": one_of(1),
    "learn.value_weight": not_negative,
    "learn.entropy_weight": finite,
}
"""Ranges of settings that policies with a value, which store what they acted by, have in common."""


def action_kind(policy: Any) -> str:
    """Of the policy's actions, 'discrete', 'multi_discrete' or 'continuous': the env's, or what its config says."""
    return policy._shapes.get("action_space") or policy._cfg.get("action_space") or "discrete"


def sampling_model(model: nn.Module, kind: str, shape: Any) -> ModelWrapper:
    """The network in a wrapper that draws actions, of this kind and shape, from what it says."""
    width = 1 if kind == "discrete" else len(shape) if isinstance(shape, (list, tuple)) else int(shape)
    if kind == "continuous":
        width = 2 * int(np.prod(shape))  # two uniforms make one normal number
    return acting_model(model, SAMPLERS[kind], save_prev_state=True, width=width)


def learning_model(model: nn.Module) -> ModelWrapper:
    """The network as a learner calls it; a recurrent one with `hidden_state`."""
    wrapped = model_wrap(model, wrapper_name="base")
    return model_wrap(wrapped, wrapper_name="hidden_state") if is_recurrent(model) else wrapped


def check_value(output: Any, lead: tuple[int, ...], model: nn.Module) -> None:
    """Raises ConfigError where the output of a network has no `value` of the shape `lead`."""
    value = output.get("value")
    if value is None or tuple(value.shape) != lead:
        found = "no `value`" if value is None else f"a `value` of shape {tuple(value.shape)}"
        raise ConfigError(
            f"policy.model: the network ({type(model).__name__}) gives {found}; an actor-critic policy wants "
            f"one number an observation, {lead}"
            f"{': squeeze(-1) it' if value is not None else ', beside `logit`'}"
        )


def stored_step(obs: Any, output: ArrayDict, timestep: Any) -> dict[str, Any]:
    """What a step stores of a policy that learns from how it acted."""
    return {**acted_row(obs, output, timestep), "logit": output["logit"]}


def learn_losses(
    policy: Any, policy_loss: torch.Tensor, value_loss: torch.Tensor, entropy: torch.Tensor
) -> dict[str, Any]:
    """One step of the policy's optimiser on the three means, as its config weighs them. Returns what to log."""
    learn, optimizer = policy._cfg.learn, policy._optimizer
    loss = policy_loss + float(learn.value_weight) * value_loss - float(learn.entropy_weight) * entropy
    grad_norm = policy._optimise(optimizer, loss)
    return {
        "total_loss": loss.detach(),
        "policy_loss": policy_loss.detach(),
        "value_loss": value_loss.detach(),
        "entropy": entropy.detach(),
        "grad_norm": grad_norm,
        "cur_lr": optimizer.param_groups[0]["lr"],
    }
