"""Deep Q-learning."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ding_like.config.checks import one_of
from ding_like.policy.q_learning import Errors, Outputs, QLearningPolicy, loss_of
from ding_like.rl_utils.td import LOSSES, q_learning_loss
from ding_like.utils import POLICY_REGISTRY


def td_loss_of(policy: Any) -> Callable[..., Errors]:
    """`q_learning_loss` as `learn.loss` and `learn.value_rescale` say."""
    return partial(q_learning_loss, loss=loss_of(policy._cfg), rescale=bool(policy._cfg.learn.value_rescale))


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(QLearningPolicy):
    """Q-learning with replay and a target network. Mnih 2015; double: van Hasselt 2016; dueling: Wang 2016 (model)."""

    config = dict(
        learn=dict(
            value_rescale=False,  # of a recurrent network: learn values through h(x), which makes large ones smaller
            loss="huber",  # huber (linear beyond |td| = 1) or mse
        ),
    )
    config_checks = {"learn.loss": one_of(*LOSSES)}

    def _init_learn(self) -> None:
        super()._init_learn()
        self._td_loss = td_loss_of(self)

    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        return self._td_loss(online["logit"], action, reward, discount, target["logit"], choice)

    def _mean_errors(self, weight: Tensor | None, *steps: Any) -> Errors:
        if weight is not None:
            return super()._mean_errors(weight, *steps)
        online, target, choice, action, reward, discount = steps  # the mean loss as one operation: half the graph
        return self._td_loss(online["logit"], action, reward, discount, target["logit"], choice, reduction="mean")
