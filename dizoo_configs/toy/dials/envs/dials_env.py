"""Dials: a toy with several discrete actions at once (MultiDiscrete)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.utils import ENV_REGISTRY


@ENV_REGISTRY.register("dials")
class Dials(gymnasium.Env):
    """Turn every dial to the position shown: `action[i]` equal to target i pays `1 / dials`; new targets each step.

    The observation is the targets, each as its position in [0, 1]. The best return is `length`, the random one about
    `length * mean(1 / positions)`.

    Args:
        positions: number of positions of each dial.
        length: steps of an episode.
    """

    def __init__(self, positions: tuple[int, ...] = (3, 4, 5), length: int = 20) -> None:
        self.positions, self.length = np.asarray(positions), length
        self.observation_space = spaces.Box(0.0, 1.0, (len(positions),), np.float32)
        self.action_space = spaces.MultiDiscrete(self.positions)
        self._targets = np.zeros(len(positions), np.int64)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._t = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = float(np.mean(np.asarray(action) == self._targets))
        self._t += 1
        return self._show(), reward, False, self._t == self.length, {}

    def _show(self) -> np.ndarray:
        self._targets = self.np_random.integers(0, self.positions)
        return (self._targets / (self.positions - 1)).astype(np.float32)
