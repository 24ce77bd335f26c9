"""Algorithms, one a file, over one base."""

from ding_like.policy.base_policy import Policy
from ding_like.utils.lazy import lazy_names

__all__ = [
    "A2CPolicy",
    "BehaviouralCloningPolicy",
    "C51Policy",
    "DDPGPolicy",
    "DQNPolicy",
    "IMPALAPolicy",
    "IQNPolicy",
    "PPGPolicy",
    "PPOPolicy",
    "Policy",
    "QLearningPolicy",
    "QRDQNPolicy",
    "R2D2Policy",
    "RainbowPolicy",
    "SACPolicy",
    "SQNPolicy",
    "TD3Policy",
    "load_policy",
]
__getattr__ = lazy_names(
    __name__,
    {
        "A2CPolicy": "ding_like.policy.a2c",
        "BehaviouralCloningPolicy": "ding_like.policy.bc",
        "C51Policy": "ding_like.policy.c51",
        "DDPGPolicy": "ding_like.policy.ddpg",
        "DQNPolicy": "ding_like.policy.dqn",
        "IMPALAPolicy": "ding_like.policy.impala",
        "IQNPolicy": "ding_like.policy.iqn",
        "PPGPolicy": "ding_like.policy.ppg",
        "PPOPolicy": "ding_like.policy.ppo",
        "QLearningPolicy": "ding_like.policy.q_learning",
        "QRDQNPolicy": "ding_like.policy.qrdqn",
        "R2D2Policy": "ding_like.policy.r2d2",
        "RainbowPolicy": "ding_like.policy.rainbow",
        "SACPolicy": "ding_like.policy.sac",
        "SQNPolicy": "ding_like.policy.sqn",
        "TD3Policy": "ding_like.policy.td3",
        "load_policy": "ding_like.policy.deploy",
    },
)
