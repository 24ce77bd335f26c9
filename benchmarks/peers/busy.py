"""An env that costs a given time and nothing else."""

import gymnasium
import numpy as np


class Busy(gymnasium.Env):
    """Counts to `count` in Python in every step; episodes of 200 steps. Ours gives the config's `env` section."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, count):
        self._count = count if isinstance(count, int) else count["env_kwargs"]["count"]
        self._obs, self._steps = np.zeros(4, np.float32), 0

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self._obs, {}

    def step(self, action):
        for _ in range(self._count):
            pass
        self._steps += 1
        return self._obs, 0.0, False, self._steps == 200, {}
