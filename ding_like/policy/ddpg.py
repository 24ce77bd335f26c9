"""Deep deterministic policy gradient."""

from __future__ import annotations

from ding_like.config.checks import not_negative
from ding_like.policy.q_value_gradient import QValueGradientPolicy
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("ddpg")
class DDPGPolicy(QValueGradientPolicy):
    """A deterministic actor that climbs the gradient of one critic. Lillicrap 2016."""

    config = dict(
        model=dict(
            actor_head_type="regression",  # the actor gives one action, no distribution
            twin_critic=False,  # one critic
        ),
        collect=dict(
            noise_sigma=0.1,  # deviation of the Gaussian noise on exploring actions, where the box is [-1, 1]
        ),
    )
    config_checks = {"collect.noise_sigma": not_negative}
