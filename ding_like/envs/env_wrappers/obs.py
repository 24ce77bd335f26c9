"""Wrappers that change the observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.spaces import describe_space
from ding_like.rl_utils.previous import FIELDS, OWN, PreviousStep
from ding_like.utils import ENV_WRAPPER_REGISTRY, suggest


def _box(env: gymnasium.Env, name: str) -> spaces.Box:
    space = env.observation_space
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"{name} got the observation space {space}; wanted a Box: pick one entry of a Dict with "
            "select_obs(keep='key') first"
        )
    return space


@ENV_WRAPPER_REGISTRY.register("frame_stack")
class FrameStack(gymnasium.Wrapper):
    """The last `n` observations, oldest first, in their own dtype; a reset fills all `n` with the first one.

    An observation `[H, W]` or `[D]` becomes `[n, H, W]` or `[n, D]`; `[C, H, W]` becomes `[n * C, H, W]`.
    """

    def __init__(self, env: gymnasium.Env, n: int = 4) -> None:
        super().__init__(env)
        space = _box(env, "frame_stack")
        if n < 1:
            raise ValueError(f"frame_stack has n={n}; wanted at least 1")
        joined = len(space.shape) > 2
        self._lead = (1,) if not joined else ()
        self._width = space.shape[0] if joined else 1
        self._frames: np.ndarray | None = None
        repeat = (n, *(1,) * (len(space.shape) - joined))
        low, high = (np.tile(a if joined else a[None], repeat) for a in (space.low, space.high))
        self._n = n
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        obs, info = self.env.reset(**kwargs)
        self._frames = np.concatenate([self._frame(obs)] * self._n)
        return self._frames, info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        assert self._frames is not None
        self._frames = np.concatenate((self._frames[self._width :], self._frame(obs)))
        return self._frames, reward, terminated, truncated, info

    def _frame(self, obs: np.ndarray) -> np.ndarray:
        return obs.reshape(self._lead + obs.shape)


@ENV_WRAPPER_REGISTRY.register("channels_first")
class ChannelsFirst(gymnasium.ObservationWrapper):
    """Images `[H, W, C]` as `[C, H, W]`, the order of torch's convolutions."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = _box(env, "channels_first")
        if len(space.shape) != 3:
            raise ValueError(f"channels_first got observations of shape {space.shape}; wanted [H, W, C]")
        low, high = (a.transpose(2, 0, 1) for a in (space.low, space.high))
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, obs: np.ndarray) -> np.ndarray:
        return obs.transpose(2, 0, 1)


@ENV_WRAPPER_REGISTRY.register("select_obs")
class SelectObs(gymnasium.ObservationWrapper):
    """Some entries of a Dict observation, or some numbers of a vector.

    Args:
        keep: keys to keep, positions of a vector; a single key gives that entry itself instead of a Dict.
        drop: keys or positions to leave out.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        keep: Sequence[str] | Sequence[int] | str | None = None,
        drop: Sequence[str] | Sequence[int] = (),
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict) and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
            raise ValueError(f"select_obs got the observation space {space}; wanted a Dict or a Box of one axis")
        known: list[Any] = list(space.spaces) if isinstance(space, spaces.Dict) else list(range(space.shape[0]))
        if isinstance(drop, str):
            drop = [drop]
        for key in [*([keep] if isinstance(keep, str) else keep or ()), *drop]:
            if key not in known:
                what = "key" if isinstance(space, spaces.Dict) else "position"
                raise ValueError(
                    f"select_obs names the {what} {key!r}; the observation has {known}.{suggest(key, known)}"
                )
        self._only: Any = keep if isinstance(keep, str) else None
        self._keys: list[Any] = [k for k in (known if keep is None else keep) if k not in drop]
        if isinstance(space, spaces.Box):
            self._only = np.array(self._keys, np.int64)
            self.observation_space = spaces.Box(space.low[self._only], space.high[self._only], dtype=space.dtype.type)
        elif self._only is not None:
            self.observation_space = space[self._only]
        else:
            self.observation_space = spaces.Dict({k: space[k] for k in self._keys})

    def observation(self, obs: Any) -> Any:
        return obs[self._only] if self._only is not None else {k: obs[k] for k in self._keys}


@ENV_WRAPPER_REGISTRY.register("previous_step")
class ShowPrevious(gymnasium.Wrapper):
    """The observation with the action and the reward that led to it, in the form of `rl_utils.previous`.

    Runs put it around all other wrappers where the network asks for it (`policy.model.use_prev_action`,
    `use_prev_reward`); by name it may stand elsewhere among them, as beneath `reward_clip`.

    Args:
        fields: some of 'prev_action', 'prev_reward'.
    """

    def __init__(self, env: gymnasium.Env, fields: Sequence[str] = FIELDS) -> None:
        super().__init__(env)
        self._start = getattr(env.action_space, "start", 0)
        self._previous = step = PreviousStep(fields, describe_space(env.action_space, bounds=True))
        parts: dict[str, spaces.Space] = {OWN: env.observation_space}
        for name in step.fields:
            parts[name] = spaces.Box(-np.inf, np.inf, step.shape if name == "prev_action" else (), np.float32)
        if "prev_action" in parts and step.dtype == np.int64:
            parts["prev_action"] = spaces.Box(-1, step.sizes - 1, step.shape, np.int64)
        self.observation_space = spaces.Dict(parts)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        obs, info = self.env.reset(**kwargs)
        return self._previous.none(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._previous.after(obs, action - self._start, reward), reward, terminated, truncated, info
