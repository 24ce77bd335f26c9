"""Soft actor-critic."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ding_like.config.checks import finite, not_negative, one_of, optional, positive
from ding_like.policy.q_value_gradient import QValueGradientPolicy
from ding_like.policy.recurrence import acting_model
from ding_like.rl_utils.distribution import Categorical, SquashedGaussian, lost_entropy
from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.sac import (
    DISCRETE_SHARE,
    default_target_entropy,
    expected_soft_state_value,
    soft_state_value,
    temperature_loss,
)
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("discrete_sac")
@POLICY_REGISTRY.register("sac_discrete")
@POLICY_REGISTRY.register("sac")
class SACPolicy(QValueGradientPolicy):
    """A stochastic actor that climbs the smaller of two critics and its own entropy. Haarnoja 2018.

    Of continuous actions a squashed Gaussian, of discrete ones exact expectations over all. Christodoulou 2019.
    """

    config = dict(
        action_space=None,  # discrete or continuous; None: the env's, which it must agree with
        learn=dict(
            learning_rate=3e-4,  # step size of the critics
            auto_alpha=True,  # the temperature is learned: it holds the policy's entropy at target_entropy
            alpha=0.2,  # the temperature: weight of the entropy; where it is learned, its start
            learning_rate_alpha=None,  # step size of its logarithm; None takes learning_rate
            target_entropy=None,  # in nats; None: -d of d dimensions in [-1, 1], 0.98 log A of A allowed actions
        ),
    )
    config_checks = {
        "action_space": optional(one_of("discrete", "continuous")),
        "learn.alpha": not_negative,
        "learn.learning_rate_alpha": optional(positive),
        "learn.target_entropy": optional(finite),
        "model.actor_head_type": one_of("reparameterization"),
    }
    action_spaces = ("Discrete", "Box")
    learn_parts = {
        **QValueGradientPolicy.learn_parts,
        "temperature": "_temperature",
        "optimizer_alpha": "_optimizer_alpha",
    }

    @classmethod
    def network_mistakes(cls, cfg: Any, recurrent: bool, network: type[nn.Module]) -> list[str]:
        told, learn = super().network_mistakes(cfg, recurrent, network), cfg.learn
        if learn.auto_alpha and not learn.alpha:
            told.append(
                "policy.learn.alpha: got 0, wanted a number above 0 to start from where policy.learn.auto_alpha is True"
            )
        return told

    @property
    def _discrete(self) -> bool:
        return (self._shapes.get("action_space") or self._cfg.action_space or "continuous") == "discrete"

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        wanted = learn.target_entropy
        self._target_entropy = default_target_entropy(self._action_size, self._discrete) if wanted is None else wanted
        self._fixed_alpha = None if learn.auto_alpha else float(learn.alpha)
        if learn.auto_alpha:
            start = torch.full((), math.log(learn.alpha), device=self._critics[0].device)
            self._temperature = nn.ParameterDict({"log_alpha": start})
            rate = learn.learning_rate_alpha or learn.learning_rate
            self._share_alpha = float(rate) / float(learn.learning_rate)
            self._optimizer_alpha = FlatOptimizer(self._temperature.values(), learn.optimizer, rate)

    @property
    def _alpha(self) -> Any:
        return self._temperature["log_alpha"].detach().exp() if self._fixed_alpha is None else self._fixed_alpha

    def _next_value(self, steps: Any) -> Tensor:
        logit = steps.next_logit(target=False)
        if self._discrete:
            return expected_soft_state_value(steps.next_q(None), Categorical(logit).log_probs, self._alpha)
        action, log_prob = SquashedGaussian(logit["mu"], logit["sigma"]).rsample()
        return soft_state_value(steps.next_q(action), log_prob, self._alpha)

    def _policy_loss(self, steps: Any) -> tuple[Tensor, dict[str, Tensor]]:
        logit, told = steps.logit(), {}
        if self._discrete:
            policy = Categorical(logit)
            with torch.no_grad():
                q_value = steps.q(None)
            value, entropy = expected_soft_state_value(q_value, policy.log_probs, self._alpha), policy.entropy()
            if self._cfg.learn.target_entropy is None:
                lost = masked_mean(lost_entropy(policy.log_probs), steps.mask)
                told["target_entropy"] = self._target_entropy - DISCRETE_SHARE * lost
        else:
            action, log_prob = SquashedGaussian(logit["mu"], logit["sigma"]).rsample()
            value, entropy = soft_state_value(steps.q(action), log_prob, self._alpha), -log_prob
        return -value, {**told, "entropy": masked_mean(entropy.detach(), steps.mask)}

    def _improve(self, steps: Any) -> dict[str, Tensor]:
        info = super()._improve(steps)
        if self._fixed_alpha is None:
            wanted = info.get("target_entropy", self._target_entropy)
            loss = temperature_loss(self._temperature["log_alpha"], info["entropy"], wanted)
            self._optimise(self._optimizer_alpha, loss, self._share_alpha)
        return {**info, "alpha": self._alpha}

    # ------------------------------------------------------------------ acting
    def _sampler(self) -> tuple[str, dict[str, Any]]:
        if self._discrete:
            return "multinomial_sample", {}
        return "reparam_sample", {"width": 2 * self._action_size, "squash": True}

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "deterministic_sample", squash=True)
