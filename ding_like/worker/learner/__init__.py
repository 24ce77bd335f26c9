"""Gradient steps and hooks."""

from ding_like.worker.learner.hooks import LearnerHook
from ding_like.worker.learner.learner import Learner
from ding_like.worker.learner.run_hooks import EvaluationHook

__all__ = ["EvaluationHook", "Learner", "LearnerHook"]
