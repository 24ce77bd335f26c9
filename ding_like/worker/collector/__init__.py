"""Stepping envs with a policy."""

from ding_like.worker.collector.evaluator import Evaluator
from ding_like.worker.collector.no_collector import NoCollector
from ding_like.worker.collector.sample_collector import SampleCollector

__all__ = ["Evaluator", "NoCollector", "SampleCollector"]
