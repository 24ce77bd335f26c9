"""Env wrappers by name; `apply_wrappers` stacks those a config lists."""

from ding_like.envs.env_wrappers.atari import EpisodicLife, FireReset, atari_preprocessing
from ding_like.envs.env_wrappers.compose import apply_wrappers, wrapper_type
from ding_like.envs.env_wrappers.obs import ChannelsFirst, FrameStack, SelectObs, ShowPrevious
from ding_like.envs.env_wrappers.reward import EpisodeStatistics, RewardClip, RewardScale

__all__ = [
    "ChannelsFirst",
    "EpisodeStatistics",
    "EpisodicLife",
    "FireReset",
    "FrameStack",
    "RewardClip",
    "RewardScale",
    "SelectObs",
    "ShowPrevious",
    "apply_wrappers",
    "atari_preprocessing",
    "wrapper_type",
]
