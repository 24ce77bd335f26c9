"""Collector, evaluator, learner and stores."""

from ding_like.worker.collector import Evaluator, NoCollector, SampleCollector
from ding_like.worker.learner import Learner, LearnerHook
from ding_like.worker.replay_buffer import Replay, Rollout

__all__ = ["Evaluator", "Learner", "LearnerHook", "NoCollector", "Replay", "Rollout", "SampleCollector"]
