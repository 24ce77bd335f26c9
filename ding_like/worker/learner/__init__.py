"""Gradient steps and hooks."""

from ding_like.worker.learner.hooks import LearnerHook
from ding_like.worker.learner.learner import Learner

__all__ = ["Learner", "LearnerHook"]
