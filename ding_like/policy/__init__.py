"""Algorithms, one a file, over one base."""

from ding_like.policy.base_policy import Policy
from ding_like.utils.lazy import lazy_names

__all__ = ["DQNPolicy", "Policy"]
__getattr__ = lazy_names(__name__, {"DQNPolicy": "ding_like.policy.dqn"})
