"""Wrappers that change the reward, and the one that keeps the raw return beneath them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ding_like.utils import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("episode_statistics")
class EpisodeStatistics(gymnasium.Wrapper):
    """`info['episode'] = {'r': return, 'l': length}` at an episode's end, of the rewards beneath it."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        self._return, self._length = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        self._length += 1
        if terminated or truncated:
            info = {**info, "episode": {"r": self._return, "l": self._length}}
        return obs, reward, terminated, truncated, info


@ENV_WRAPPER_REGISTRY.register("reward_clip")
class RewardClip(gymnasium.RewardWrapper):
    """The sign of the reward (Mnih et al. 2015), or the reward clipped to `[low, high]` where given."""

    def __init__(self, env: gymnasium.Env, low: float | None = None, high: float | None = None) -> None:
        super().__init__(env)
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_clip: low {low} is above high {high}")
        self._sign = low is None and high is None
        self._low = -np.inf if low is None else low
        self._high = np.inf if high is None else high

    def reward(self, reward: Any) -> float:
        value = float(reward)
        return float(np.sign(value)) if self._sign else min(max(value, self._low), self._high)


@ENV_WRAPPER_REGISTRY.register("reward_scale")
class RewardScale(gymnasium.RewardWrapper):
    """The reward times `scale`."""

    def __init__(self, env: gymnasium.Env, scale: float) -> None:
        super().__init__(env)
        self._scale = scale

    def reward(self, reward: Any) -> float:
        return float(reward) * self._scale
