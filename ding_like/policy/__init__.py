"""Algorithms, one a file, over one base."""

from ding_like.policy.base_policy import Policy
from ding_like.utils.lazy import lazy_names

__all__ = ["A2CPolicy", "DQNPolicy", "PPOPolicy", "Policy", "R2D2Policy", "load_policy"]
__getattr__ = lazy_names(
    __name__,
    {
        "A2CPolicy": "ding_like.policy.a2c",
        "DQNPolicy": "ding_like.policy.dqn",
        "PPOPolicy": "ding_like.policy.ppo",
        "R2D2Policy": "ding_like.policy.r2d2",
        "load_policy": "ding_like.policy.deploy",
    },
)
