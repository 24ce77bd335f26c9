"""Soft Q-network."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ding_like.config.checks import not_negative, one_of, optional, positive
from ding_like.data import ArrayDict
from ding_like.policy.q_learning import Errors, Outputs, QLearningPolicy, loss_of
from ding_like.rl_utils.distribution import lost_entropy
from ding_like.rl_utils.sac import temperature_loss
from ding_like.rl_utils.soft import soft_entropy, soft_q_loss
from ding_like.rl_utils.td import LOSSES
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY

TARGET_ENTROPY = 0.2  # of that of the uniform policy


@POLICY_REGISTRY.register("sqn")
class SQNPolicy(QLearningPolicy):
    """Soft Q-learning that acts by softmax(Q / alpha); alpha is learned so that the policy has the entropy wanted.

    Haarnoja 2017; the temperature: Haarnoja 2018, eq. 18.
    """

    config = dict(
        double=False,  # the soft value weighs all actions: there is none to choose
        learn=dict(
            loss="huber",  # huber (linear beyond |td| = 1) or mse
            alpha=0.2,  # temperature, in units of the return; where it is learned its start
            auto_alpha=True,  # the temperature is learned: it holds the policy's entropy at target_entropy
            learning_rate_alpha=3e-3,  # step size of its logarithm
            target_entropy=None,  # in nats; None: 0.2 log A of A allowed actions
        ),
        other=dict(
            eps=None,  # the softmax explores
        ),
    )
    config_checks = {
        "double": one_of(False),
        "learn.loss": one_of(*LOSSES),
        "learn.alpha": positive,
        "learn.learning_rate_alpha": positive,
        "learn.target_entropy": optional(not_negative),
        "other.eps": one_of(None),
        **dict.fromkeys(("other.eps.type", "other.eps.start", "other.eps.end", "other.eps.decay")),
    }
    learn_parts = {**QLearningPolicy.learn_parts, "alpha_optimizer": "_alpha_optimizer"}
    sampler = "multinomial_sample"
    uniform = dict(alpha=1e30)

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._loss = loss_of(self._cfg)
        if learn.auto_alpha:
            self._alpha_optimizer = FlatOptimizer([self._log_alpha], "adam", learn.learning_rate_alpha)

    @cached_property
    def _log_alpha(self) -> torch.nn.Parameter:
        """The logarithm of the temperature; a policy that only acts has it too."""
        start = torch.tensor(math.log(self._cfg.learn.alpha), device=self._device)
        return torch.nn.Parameter(start, requires_grad=bool(self._cfg.learn.auto_alpha))

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        info = super()._forward_learn(data)
        if self._log_alpha.requires_grad:
            self._alpha_optimizer.zero_grad()
            temperature_loss(self._log_alpha, self._entropy, self._wanted_entropy).backward()
            self._alpha_optimizer.step()
        return {**info, "alpha": self._log_alpha.detach().exp(), "entropy": self._entropy}

    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        alpha = self._log_alpha.detach().exp()
        self._entropy = soft_entropy(online["logit"].detach(), alpha).mean()
        self._wanted_entropy = self._target_entropy(online["logit"].detach())
        values = online["logit"], action, reward, discount, target["logit"]
        return soft_q_loss(*values, alpha, self._loss)

    def _target_entropy(self, logit: Tensor) -> Any:
        wanted = self._cfg.learn.target_entropy
        if wanted is not None:
            return float(wanted)
        return TARGET_ENTROPY * math.log(logit.shape[-1]) - TARGET_ENTROPY * lost_entropy(logit).mean()

    def _get_setting_collect(self, envstep: int) -> dict[str, Any]:
        """The temperature, and what the network's noise needs."""
        return {**super()._get_setting_collect(envstep), "alpha": float(self._log_alpha.detach().exp())}

    def _state_dict_collect(self) -> dict[str, Any]:
        return {**super()._state_dict_collect(), "log_alpha": self._log_alpha.detach().clone()}

    def _load_state_dict_collect(self, state: dict[str, Any]) -> None:
        super()._load_state_dict_collect(state)
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])

    def _state_dict_learn(self) -> dict[str, Any]:
        return {**super()._state_dict_learn(), **self._state_dict_collect()}

    def _load_state_dict_learn(self, state: dict[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        self._load_state_dict_collect(state)
