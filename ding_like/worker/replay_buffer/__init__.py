"""Where training samples live."""

from ding_like.worker.replay_buffer.prioritized import PrioritizedSampler
from ding_like.worker.replay_buffer.replay import Replay
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.rollout import Rollout
from ding_like.worker.replay_buffer.sampler import UniformSampler
from ding_like.worker.replay_buffer.sum_tree import SumTree

__all__ = ["PrioritizedSampler", "Replay", "Ring", "Rollout", "SumTree", "UniformSampler"]
