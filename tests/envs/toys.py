"""Small envs whose every number is known, in the API of Gymnasium unless said otherwise."""

from collections import namedtuple

import gymnasium
import numpy as np
from gymnasium import spaces


class Count(gymnasium.Env):
    """obs = [t] float32 from [0]; reward 1; the n-th step ends the episode with next obs [n].

    `trunc`: it ends truncated instead of terminated. `both`: both flags. `mutate`: one array object is
    returned every step and written in place.
    """

    def __init__(self, n=3, trunc=False, mutate=False, both=False, reward=1.0):
        self.n, self.trunc, self.mutate, self.both, self.r = n, trunc, mutate, both, reward
        self.observation_space = spaces.Box(0, 1e9, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.t, self.resets, self._obs = 0, 0, np.zeros(1, np.float32)

    def _see(self):
        if not self.mutate:
            self._obs = np.empty(1, np.float32)
        self._obs[0] = self.t
        return self._obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.resets = 0, self.resets + 1
        return self._see(), {}

    def step(self, action):
        self.t += 1
        end = self.t >= self.n
        terminated, truncated = end and (self.both or not self.trunc), end and (self.both or self.trunc)
        return self._see(), self.r, terminated, truncated, {"t": self.t}


class CountDict(Count):
    """`Count` with the observation `{'a': {'b': [t]}, 't': t}`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        box = self.observation_space
        self.observation_space = spaces.Dict({"a": spaces.Dict({"b": box}), "t": spaces.Discrete(1000)})

    def _see(self):
        return {"a": {"b": super()._see()}, "t": self.t}


class Boom(Count):
    """Raises RuntimeError("boom-7") at step 7, or in the call `where`: 'init', 'reset', 'close'."""

    def __init__(self, where="step"):
        super().__init__(100)
        self.where = where
        if where == "init":
            raise RuntimeError("boom-7")

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            raise RuntimeError("boom-7")
        return super().reset(seed=seed)

    def step(self, action):
        if self.where == "step" and self.t == 7:
            raise RuntimeError("boom-7")
        return super().step(action)

    def close(self):
        if self.where == "close":
            raise RuntimeError("boom-7")


class AnySpace(gymnasium.Env):
    """Samples of any observation and action space; episodes of `n` steps; keeps the actions it got."""

    def __init__(self, observation_space, action_space=None, n=3):
        self.observation_space, self.n, self.t, self.actions = observation_space, n, 0, []
        self.action_space = action_space or spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        return self.observation_space.sample(), 0.5, self.t >= self.n, False, {}


class OldCount:
    """`Count` in the API before gym 0.26: four-tuple steps, reset gives obs alone, `seed()`, no base."""

    def __init__(self, n=3, trunc=False):
        self.n, self.trunc, self.seeds, self.t = n, trunc, [], 0
        self.observation_space = spaces.Box(0, 1e9, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def seed(self, seed=None):
        self.seeds.append(seed)

    def reset(self):
        self.t = 0
        return np.array([0.0], np.float32)

    def step(self, action):
        assert type(action) is int
        self.t += 1
        done = self.t >= self.n
        info = {"TimeLimit.truncated": self.trunc} if done else {}
        return np.array([self.t], np.float32), 1, done, info


DITimestep = namedtuple("DITimestep", ["obs", "reward", "done", "info"])


class DICount:
    """`Count` in the shape of DI-engine's `BaseEnv`, without a base class: lazy spaces, reward shape (1,)."""

    def __init__(self, cfg):
        self.cfg, self.seeds, self.t = cfg, [], 0

    def seed(self, seed, dynamic_seed=True):
        self.seeds.append((seed, dynamic_seed))

    def reset(self):
        self.observation_space = spaces.Box(0, 1e9, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.t, self.total = 0, 0.0
        return np.array([0.0], np.float32)

    def step(self, action):
        assert isinstance(action, np.ndarray) and int(action) in (0, 1)
        self.t += 1
        done = self.t >= self.cfg.get("n", 3)
        info = {"eval_episode_return": np.array([10.0 * self.t], np.float32)} if done else {}
        if done and self.cfg.get("trunc", False):
            info["TimeLimit.truncated"] = True
        return DITimestep(np.array([self.t], np.float32), np.array([1.0], np.float32), done, info)

    def close(self):
        pass

    @staticmethod
    def create_collector_env_cfg(cfg):
        num = cfg.pop("collector_env_num")
        return [{**cfg, "is_train": True} for _ in range(num)]

    @staticmethod
    def create_evaluator_env_cfg(cfg):
        num = cfg.pop("evaluator_env_num")
        return [{**cfg, "is_train": False} for _ in range(num)]
