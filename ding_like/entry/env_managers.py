"""From a config to the env managers of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding_like.config import CfgDict
from ding_like.envs.env_manager.base_env_manager import BaseEnvManager
from ding_like.envs.env_wrappers import ShowPrevious, wrapper_type
from ding_like.envs.make import make_env_fns
from ding_like.envs.tasks import each_task
from ding_like.model.build import previous_fields
from ding_like.utils import ENV_MANAGER_REGISTRY


def eval_manager(
    cfg: CfgDict, env_setting: Any = None, num: int | None = None, around: Callable[[Any], Any] | None = None
) -> Any:
    """The evaluator's env manager, in this process; the factory of column 0 is what `around` makes of it."""
    num = int(cfg.env.evaluator_env_num) if num is None else num
    cls: Any = ENV_MANAGER_REGISTRY.get(cfg.env_manager.type)
    if getattr(cls, "native", False):  # whole episodes of single columns, reset by hand
        cls, env_fns, manager_cfg = BaseEnvManager, cls.eval_env_fns(cfg.env, num, env_setting), None
    else:
        env_fns, manager_cfg = make_env_fns(env_section(cfg), num, "eval", env_setting), cfg.env.manager
    if around is not None:
        env_fns = [around(env_fns[0]), *env_fns[1:]]
    return cls(env_fns, manager_cfg, role="eval", auto_reset=False, seed_every_episode=True)


def env_section(cfg: CfgDict) -> CfgDict:
    """`env`, with the step before in its observations where the network takes it; the user's wrapper goes before."""
    fields = previous_fields(cfg.policy.get("model", {}))

    def shown(env: CfgDict) -> CfgDict:
        kinds = [wrapper_type(entry) for entry in env.wrappers]
        if not fields or "previous_step" in kinds or ShowPrevious in kinds:
            return env
        return CfgDict({**env, "wrappers": [*env.wrappers, {"type": "previous_step", "fields": fields}]})

    return each_task(cfg.env, shown)
