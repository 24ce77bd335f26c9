"""Where training samples live."""

from ding_like.worker.replay_buffer.dataset import Dataset, load_dataset, save_dataset
from ding_like.worker.replay_buffer.phasic import PhasicRollout
from ding_like.worker.replay_buffer.prioritized import PrioritizedSampler
from ding_like.worker.replay_buffer.queue import Queue
from ding_like.worker.replay_buffer.replay import Replay
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.rollout import Rollout
from ding_like.worker.replay_buffer.sampler import UniformSampler
from ding_like.worker.replay_buffer.sum_tree import SumTree

__all__ = [
    "Dataset",
    "PhasicRollout",
    "PrioritizedSampler",
    "Queue",
    "Replay",
    "Ring",
    "Rollout",
    "SumTree",
    "UniformSampler",
    "load_dataset",
    "save_dataset",
]
