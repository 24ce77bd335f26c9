"""Advantage actor-critic."""

from __future__ import annotations

from typing import Any

from ding_like.data import ArrayDict, Block
from ding_like.policy.actor_critic import ActorCriticPolicy
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.policy_gradient import policy_gradient_loss
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("a2c")
class A2CPolicy(ActorCriticPolicy):
    """Policy gradient with a learned baseline, one step a rollout. Mnih 2016, synchronous."""

    config = dict(
        learn=dict(
            batch_size=64,  # most samples (of a recurrent network: segments) of a step; a whole rollout makes one step
            learning_rate=1e-3,  # step size
        ),
        collect=dict(
            n_sample=64,  # train samples (of a recurrent network: segments) of one rollout; whole rows of all columns
        ),
    )

    def _train_fields(self, data: Block) -> Block:
        items = super()._train_fields(data)
        del items["logit"]
        return items

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on a minibatch `[N]`: obs, action, adv, return_, optional weight."""
        output, data = self._evaluated(data)
        distribution = make_distribution(output["logit"], self._kind)
        log_prob = distribution.log_prob(data["action"])  # [N]
        policy_loss = policy_gradient_loss(log_prob, self._advantage(data))  # [N]
        return self._optimise_losses(data, output, distribution, policy_loss)
