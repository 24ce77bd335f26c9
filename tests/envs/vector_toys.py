"""Batched envs over `Diary` columns, in every autoreset mode, that keep all their steps."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tests.worker.test_sample_collector import Diary

LENGTHS = ([1, 2, 7], [4, 3], [100], [2])


def diaries():
    return [Diary(column, lengths) for column, lengths in enumerate(LENGTHS)]


class VecDiary(VectorEnv):
    """One observation array is written in place and returned by every call."""

    mode = AutoresetMode.NEXT_STEP

    def __init__(self, num_envs=4):
        self.envs, self.num_envs = diaries()[:num_envs], num_envs
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs = np.zeros((num_envs, 3), np.float32)
        self._ended = np.zeros(num_envs, bool)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for b in np.flatnonzero(mask):
            self._obs[b] = self.envs[b].reset()[0]
        self._ended &= ~mask
        return self._obs, {}

    def step(self, action):
        reward, flags = np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool)
        final, ended_before = np.full(self.num_envs, None, object), self._ended
        for b, env in enumerate(self.envs):
            if ended_before[b]:
                assert self.mode is AutoresetMode.NEXT_STEP, "a step after an end without a reset"
                self._obs[b] = env.reset()[0]
                continue
            self._obs[b], reward[b], *flags[:, b], _ = env.step(int(action[b]))
        self._ended = flags[0] | flags[1]
        info = {"t": self._obs[:, 2].copy()}
        if self.mode is AutoresetMode.SAME_STEP and self._ended.any():
            for b in np.flatnonzero(self._ended):
                final[b] = self._obs[b].copy()
                self._obs[b] = self.envs[b].reset()[0]
            info |= {"final_obs": final, "_final_obs": self._ended}
            self._ended = np.zeros(self.num_envs, bool)
        return self._obs, reward, flags[0], flags[1], info


class SameStep(VecDiary):
    mode = AutoresetMode.SAME_STEP


class Disabled(VecDiary):
    mode = AutoresetMode.DISABLED


class DeafToMask(Disabled):
    """Resets every column whatever the mask says, as Gymnasium's CartPole does."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class NoFinal(SameStep):
    """Loses the last observation of an episode."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {k: v for k, v in info.items() if "final" not in k}


def sync(mode):
    """Gymnasium's `SyncVectorEnv` over diaries."""

    def make(num_envs):
        return gymnasium.vector.SyncVectorEnv([lambda b=b: diaries()[b] for b in range(num_envs)], autoreset_mode=mode)

    make.__name__ = f"sync_{mode.name.lower()}"
    return make
