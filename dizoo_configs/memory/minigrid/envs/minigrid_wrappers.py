"""What a network can read of a MiniGrid observation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.utils import ENV_WRAPPER_REGISTRY

KINDS = (11, 6, 3)  # objects, colours and states that a cell of the image names
DIRECTIONS = 4


@ENV_WRAPPER_REGISTRY.register("minigrid_one_hot")
class MiniGridOneHot(gymnasium.ObservationWrapper):
    """Image and direction as one binary vector; the mission, a text, is left out.

    The image's numbers are names, not sizes: each cell becomes the one-hot of its object, colour and state.
    After the wrapper 'words' the observation is `{'cells': that vector, 'mission': word numbers}`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not {"image", "direction"} <= set(space.spaces):
            raise ValueError(f"minigrid_one_hot got the observation space {space}; wanted MiniGrid's own Dict")
        height, width, _ = space["image"].shape
        self._first = np.cumsum([0, *KINDS[:-1]])  # where each of a cell's three one-hots begins
        self._cells = np.arange(height * width)[:, None] * sum(KINDS)
        self._size = height * width * sum(KINDS)
        cells = spaces.MultiBinary(self._size + DIRECTIONS)
        self._reads = isinstance(space.spaces.get("mission"), spaces.Box)
        self.observation_space = spaces.Dict(cells=cells, mission=space["mission"]) if self._reads else cells

    def observation(self, obs: dict[str, Any]) -> Any:
        out = np.zeros(self._size + DIRECTIONS, np.int8)
        out[obs["image"].reshape(-1, 3) + self._first + self._cells] = 1
        out[self._size + obs["direction"]] = 1
        return {"cells": out, "mission": obs["mission"]} if self._reads else out
