"""What the project calls an env step, and the `BaseEnv` shape that DI-engine users write."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

import numpy as np

from ding_like.data import namedarraytuple

EnvTimestep = namedarraytuple("EnvTimestep", ["obs", "reward", "done", "info", "terminated", "truncated"])
BaseEnvTimestep = namedtuple("BaseEnvTimestep", ["obs", "reward", "done", "info"])


class EnvError(RuntimeError):
    """An env raised or broke its contract. The message names env, column, call and episode step."""


class BaseEnv:
    """The env shape of DI-engine: configured by one `cfg`, steps return a `BaseEnvTimestep`.

    A subclass writes `reset`, `step`, `seed`, `close` and sets `_observation_space` and `_action_space` (in
    `__init__` or in the first `reset`). A time limit is told by `info['TimeLimit.truncated'] = True`; the
    score of an episode may be told by `info['eval_episode_return']`. A plain Gymnasium env needs none of
    this: name its id in `env.type`.
    """

    config: dict = {}

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def reset(self) -> Any:
        """Start an episode; the first observation."""
        raise NotImplementedError(f"{type(self).__name__} has no reset()")

    def step(self, action: Any) -> BaseEnvTimestep:
        """One step. `action` is an array of the action space's shape: 0-dim for Discrete."""
        raise NotImplementedError(f"{type(self).__name__} has no step(action)")

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the following resets (`dynamic_seed=False`: each of them starts from this very seed)."""
        raise NotImplementedError(f"{type(self).__name__} has no seed(seed, dynamic_seed)")

    def close(self) -> None:
        """Release what the env holds."""

    def random_action(self) -> Any:
        """An action drawn from the action space."""
        return self.action_space.sample()

    @property
    def observation_space(self) -> Any:
        """The space of `reset` and `step` observations."""
        return self._observation_space  # type: ignore[attr-defined]

    @property
    def action_space(self) -> Any:
        """The space of actions."""
        return self._action_space  # type: ignore[attr-defined]

    @classmethod
    def default_config(cls) -> dict:
        """A copy of the class's `config`."""
        return copy.deepcopy(cls.config)

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> list:
        """One config per collecting column, `is_train=True` in each."""
        return _column_cfgs(cfg, "collector_env_num", is_train=True)

    @staticmethod
    def create_evaluator_env_cfg(cfg: Any) -> list:
        """One config per evaluating column, `is_train=False` in each."""
        return _column_cfgs(cfg, "evaluator_env_num", is_train=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _column_cfgs(cfg: Any, count_key: str, is_train: bool) -> list:
    cfgs = []
    for _ in range(cfg[count_key]):
        cfg_b = copy.deepcopy(cfg)
        cfg_b["is_train"] = is_train
        cfgs.append(cfg_b)
    return cfgs


def episode_entry(column: int, length: int, total: float, info: dict) -> dict:
    """What a manager tells of an ended episode: `column, length, return_, return_raw`, and numbers of its last info.

    `return_raw` is what RecordEpisodeStatistics or DI-engine's envs write into the info, else `return_`. Raises
    TypeError or ValueError where that is no number.
    """
    statistics = info.get("episode")  # may also be a name of the env's own
    raw = info.get("eval_episode_return", total)
    if isinstance(statistics, dict) and "r" in statistics:
        raw = statistics["r"]
    return {
        "column": int(column),
        "length": int(length),
        "return_": float(total),
        "return_raw": float(np.asarray(raw).reshape(())),
        "info": {k: float(v) for k, v in info.items() if isinstance(v, (bool, int, float, np.number, np.bool_))},
    }
