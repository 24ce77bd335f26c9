"""Policies over any spaces, as a run makes them, and an env that keeps what it gave and got."""

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.config import CfgDict
from ding_like.data import tree_map
from ding_like.entry.checks import check_spaces
from ding_like.envs import BaseEnvManager
from ding_like.envs.spaces import Words
from ding_like.policy import A2CPolicy, DDPGPolicy, DQNPolicy, PPOPolicy, SACPolicy
from tests.helpers import policy_config

CLASSES = {"dqn": DQNPolicy, "ppo": PPOPolicy, "a2c": A2CPolicy, "ddpg": DDPGPolicy, "sac": SACPolicy}
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "float64": spaces.Box(-9, 9, (2, 2), np.float64),
    "uint8 image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "float image": spaces.Box(0, 1, (3, 12, 12), np.float32),
    "discrete": spaces.Discrete(5, start=3),
    "multi discrete": spaces.MultiDiscrete([2, 3], start=[1, -2]),
    "multi binary": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        a=spaces.Box(-1, 1, (2,), np.float32),
        action=spaces.Discrete(2, start=7),
        b=spaces.Dict(image=spaces.Box(0, 255, (12, 12, 3), np.uint8), d=spaces.Discrete(3)),
    ),
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3, start=-1)]),
    "words": spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), say=Words(9, 4)),
    "mask": spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), action_mask=spaces.MultiBinary(4)),
}
DISCRETE = spaces.Discrete(4, start=2)
ACTIONS = {
    "discrete": DISCRETE,
    "multi discrete": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "multi binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.float32([-2, 0, -np.inf]), np.float32([2, 1, np.inf])),
    "float64 box": spaces.Box(-3, 5, (2, 2), np.float64),
    "whole-number box": spaces.Box(-3, 5, (2,), np.int64),
}
CASES = [
    *(("dqn", obs, "discrete") for obs in OBSERVATIONS),
    *(("a2c", obs, "discrete") for obs in ("vector", "mask")),
    *(("ppo", "vector", action) for action in ACTIONS),
    ("ddpg", "vector", "float64 box"),
    *(("sac", obs, action) for obs, action in (("dict", "box"), ("mask", "discrete"))),
]


class Keeping(gymnasium.Env):
    """Ten steps of samples; `seen` and `got` are the observations given and the actions taken."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.seen, self.got = [], []

    def see(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][len(self.got) % 4] = 1
        self.seen.append(obs)
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.see(), {}

    def step(self, action):
        self.got.append(action)
        return self.see(), 1.0, len(self.got) == 10, False, {}


def _elsewhere(x):
    return 3 * x + 1 if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def made(kind="dqn", obs=VECTOR, action=DISCRETE, model=None, cls=None, net=None, **over):
    """`(policy, manager, env)` of one column; with `use_norm=True` the statistics have moved.

    `model`: a network; `net`: the section `policy.model`.
    """
    env = Keeping(obs, action)
    manager = BaseEnvManager([lambda: env], role="eval", auto_reset=False, seed_every_episode=True)
    section = dict(type=kind, import_names=[], model=net or {"encoder_hidden_size_list": [8, 8]}, **over)
    cls = cls or CLASSES[kind]
    cfg = CfgDict(policy=policy_config(cls, **section), env=dict(type="keeping"))
    policy = cls(cfg.policy, model, seed=0, shapes=check_spaces(cfg, cls, manager))
    if cfg.policy.norm_obs.use_norm:
        for _ in range(50):
            policy._observe(policy.interface.to_batch(tree_map(_elsewhere, env.observation_space.sample())))
    return policy, manager, env
