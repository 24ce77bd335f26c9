"""Quantile regression DQN."""

from __future__ import annotations

from torch import Tensor

from ding_like.config.checks import not_negative, one_of
from ding_like.policy.q_learning import Errors, Outputs, QLearningPolicy, best_action
from ding_like.rl_utils.quantile import quantile_td_loss
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("qrdqn")
class QRDQNPolicy(QLearningPolicy):
    """Q-learning of fixed quantiles of the return; priorities are mean sizes of errors. Dabney 2018a."""

    config = dict(
        model=dict(
            head_type="quantile",  # quantiles for each action
            num_quantiles=32,  # how many
        ),
        learn=dict(
            kappa=1.0,  # where the Huber loss of an error turns linear; 0 is plain quantile regression
        ),
    )
    config_checks = {"model.head_type": one_of("quantile"), "learn.kappa": not_negative}
    outputs = ("q", "tau")

    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        best, kappa = best_action(target, choice), float(self._cfg.learn.kappa)
        return quantile_td_loss(online["q"], online["tau"], action, reward, discount, target["q"], best, kappa)
