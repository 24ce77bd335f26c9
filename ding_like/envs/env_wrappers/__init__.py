"""Env wrappers by name; `apply_wrappers` stacks those a config lists."""

from ding_like.envs.env_wrappers.atari import EpisodicLife, FireReset, FullActions, atari_preprocessing
from ding_like.envs.env_wrappers.compose import apply_wrappers, wrapper_type
from ding_like.envs.env_wrappers.obs import ChannelsFirst, FrameStack, SelectObs, ShowPrevious
from ding_like.envs.env_wrappers.reward import EpisodeStatistics, RewardClip, RewardScale
from ding_like.envs.env_wrappers.words import WordNumbers

__all__ = [
    "ChannelsFirst",
    "EpisodeStatistics",
    "EpisodicLife",
    "FireReset",
    "FrameStack",
    "FullActions",
    "RewardClip",
    "RewardScale",
    "SelectObs",
    "ShowPrevious",
    "WordNumbers",
    "apply_wrappers",
    "atari_preprocessing",
    "wrapper_type",
]
