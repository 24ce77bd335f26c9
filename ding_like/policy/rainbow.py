"""Rainbow."""

from __future__ import annotations

from torch import Tensor

from ding_like.config.checks import one_of
from ding_like.policy.c51 import support_of
from ding_like.policy.q_learning import Errors, Outputs, QLearningPolicy, best_action
from ding_like.rl_utils.distributional import c51_loss
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("rainbow")
class RainbowPolicy(QLearningPolicy):
    """C51 with double and dueling Q-learning, n-step returns, prioritised replay and noisy layers. Hessel 2018.

    Each has its switch: `model.noisy=False` is Rainbow without noisy layers, which explores by `other.eps`.
    """

    config = dict(
        priority=True,  # prioritised replay, by KL divergences
        nstep=3,  # rewards summed before the bootstrap
        model=dict(
            head_type="distribution",  # a distribution for each action
            n_atom=51,  # atoms of the distribution
            v_min=-10.0,  # the lowest of them: returns below count as this
            v_max=10.0,  # the highest: returns above count as this
            dueling=True,  # separate value and advantage streams
            noisy=True,  # noisy layers explore, and there is no epsilon
        ),
    )

    config_checks = {"model.head_type": one_of("distribution")}
    outputs = ("atom_logit", "distribution")

    def _init_learn(self) -> None:
        super()._init_learn()
        self._atoms = support_of(self)

    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        distribution, best = target["distribution"], best_action(target, choice)
        return c51_loss(online["atom_logit"], action, reward, discount, distribution, best, self._atoms)
