"""Where training samples live."""

from ding_like.worker.replay_buffer.replay import Replay
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.rollout import Rollout
from ding_like.worker.replay_buffer.sampler import UniformSampler

__all__ = ["Replay", "Ring", "Rollout", "UniformSampler"]
