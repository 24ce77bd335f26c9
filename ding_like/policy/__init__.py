"""Algorithms, one a file, over one base."""

from ding_like.policy.base_policy import Policy

__all__ = ["Policy"]
