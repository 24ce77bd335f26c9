"""Environments: adapters, wrappers, env managers."""

from ding_like.envs.adapter import EnvAdapter, wrap_env
from ding_like.envs.base_env import BaseEnv, BaseEnvTimestep, EnvError, EnvTimestep
from ding_like.envs.check import Finding, check_env
from ding_like.envs.env_manager.base_env_manager import BaseEnvManager
from ding_like.envs.make import ENV_CONFIG, DingEnvWrapper, make_env, make_env_fns
from ding_like.envs.spaces import check_obs, model_shapes

BaseEnvManagerV2 = BaseEnvManager

__all__ = [
    "ENV_CONFIG",
    "BaseEnv",
    "BaseEnvManager",
    "BaseEnvManagerV2",
    "BaseEnvTimestep",
    "DingEnvWrapper",
    "EnvAdapter",
    "EnvError",
    "EnvTimestep",
    "Finding",
    "check_env",
    "check_obs",
    "make_env",
    "make_env_fns",
    "model_shapes",
    "wrap_env",
]
