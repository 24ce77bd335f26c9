"""Categorical DQN."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ding_like.config.checks import one_of
from ding_like.policy.q_learning import Errors, Outputs, QLearningPolicy, best_action
from ding_like.rl_utils.distributional import c51_loss
from ding_like.utils import POLICY_REGISTRY


def support_of(policy: Any) -> Tensor:
    """The atoms `[n]` of the distribution that a policy's `model` section describes."""
    model = {**type(policy).default_config().model, **policy._cfg.model}
    return torch.linspace(model["v_min"], model["v_max"], int(model["n_atom"]), device=policy._device)


@POLICY_REGISTRY.register("c51")
class C51Policy(QLearningPolicy):
    """Q-learning of the distribution of returns over fixed atoms; priorities are KL divergences. Bellemare 2017."""

    config = dict(
        model=dict(
            head_type="distribution",  # a distribution for each action
            n_atom=51,  # atoms of the distribution
            v_min=-10.0,  # the lowest of them: returns below count as this
            v_max=10.0,  # the highest: returns above count as this
        ),
    )

    config_checks = {"model.head_type": one_of("distribution")}
    outputs = ("atom_logit", "distribution")

    _support = cached_property(support_of)

    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        best = best_action(target, choice)
        return c51_loss(online["atom_logit"], action, reward, discount, target["distribution"], best, self._support)
