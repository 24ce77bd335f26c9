"""The wrappers of a config, stacked in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from ding_like.envs.env_wrappers.reward import EpisodeStatistics
from ding_like.utils import ENV_WRAPPER_REGISTRY

ENV_WRAPPER_REGISTRY.register("time_limit", gymnasium.wrappers.TimeLimit)


def wrapper_type(entry: Any) -> Any:
    """What a wrapper entry names: a registered name, or a class or function itself."""
    if not isinstance(entry, Mapping):
        return entry
    if "type" not in entry:
        raise ValueError(f"the env wrapper {dict(entry)} has no 'type'; wanted dict(type='frame_stack', n=4), say")
    return entry["type"]


def apply_wrappers(env: gymnasium.Env, entries: Iterable[Any], role: str) -> gymnasium.Env:
    """`env` inside the wrappers of `entries`, the first one innermost.

    An entry is a registered name, a class of `gymnasium.wrappers` by its name, a class or function `f(env,
    **kwargs)`, or a dict of `type`, `train_only` and the wrapper's arguments. With role 'eval' those marked
    `train_only` (by entry or by class) are left out. Episode statistics go beneath the first wrapper that
    changes the reward, so that `info['episode']['r']` is raw.
    """
    counted = False
    for entry in entries:
        kwargs = dict(entry) if isinstance(entry, Mapping) else {}
        kwargs.pop("type", None)
        wrapper = _find(wrapper_type(entry))
        train_only = kwargs.pop("train_only", getattr(wrapper, "train_only", False))
        counted = counted or wrapper is EpisodeStatistics
        if role == "eval" and train_only:
            continue
        if not counted and _changes_reward(wrapper):
            env, counted = EpisodeStatistics(env), True
        try:
            env = wrapper(env, **kwargs)
        except TypeError as err:
            raise TypeError(f"env wrapper {_name(entry)} with arguments {kwargs}: {err}") from err
    return env


def _find(kind: Any) -> Any:
    if not isinstance(kind, str):
        return kind
    if kind not in ENV_WRAPPER_REGISTRY and kind in gymnasium.wrappers.__all__:
        return getattr(gymnasium.wrappers, kind)
    return ENV_WRAPPER_REGISTRY.get(kind)


def _changes_reward(wrapper: Any) -> bool:
    reshapes = isinstance(wrapper, type) and issubclass(wrapper, gymnasium.RewardWrapper)
    return reshapes or getattr(wrapper, "changes_reward", False)


def _name(entry: Any) -> str:
    kind = wrapper_type(entry)
    return f"'{kind}'" if isinstance(kind, str) else getattr(kind, "__name__", repr(kind))
