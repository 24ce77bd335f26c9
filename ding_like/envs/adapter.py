"""One env API inside: `wrap_env` turns whatever a user brings into Gymnasium's five-tuple form."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.spaces import children, to_gymnasium


def wrap_env(env: Any) -> gymnasium.Env:
    """`env` as a Gymnasium env: `reset(seed, options) -> (obs, info)`, five-tuple steps, Gymnasium spaces
    from 0.

    A native Gymnasium env is returned as it is. gym 0.26 envs, older four-tuple envs, envs of DI-engine's
    `BaseEnv` shape and look-alikes go through `EnvAdapter`. Discrete spaces that start above 0 are shifted to
    start at 0.

    Raises TypeError when `env` has no `reset` and `step`.
    """
    if isinstance(env, type) or not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
        what = f"the class {env.__name__}" if isinstance(env, type) else f"a {type(env).__name__}"
        raise TypeError(f"the env is {what}; wanted an env instance with reset() and step(action)")
    if not _is_native(env):
        env = EnvAdapter(env)
    if has_start(env.observation_space) or has_start(env.action_space):
        env = ZeroStart(env)
    return env


def _is_native(env: Any) -> bool:
    if not isinstance(env, gymnasium.Env) or not _accepts(env.reset, "seed"):
        return False
    pair = (getattr(env, "observation_space", None), getattr(env, "action_space", None))
    return all(isinstance(space, spaces.Space) for space in pair)


def _accepts(fn: Any, keyword: str) -> bool:
    params = inspect.signature(fn).parameters
    return keyword in params or any(p.kind is p.VAR_KEYWORD for p in params.values())


def env_name(env: gymnasium.Env) -> str:
    """What messages call an env: its Gymnasium id, else its class."""
    bare = env.unwrapped
    return env.spec.id if env.spec else type(bare.env if isinstance(bare, EnvAdapter) else bare).__name__


class EnvAdapter(gymnasium.Env):
    """A foreign env behind Gymnasium's API. What it is is read from what it returns, never from its class.

    - A step of four values, or a timestep object with `obs, reward, done, info`: truncated is
      `info['TimeLimit.truncated']`, terminated is `done and not truncated`.
    - A reset may return the observation alone.
    - `env.seed(seed)` is used where it exists. A `seed` that takes `dynamic_seed` restarts at one state for
    ever after, so
      each reset gets a fresh number from this adapter's own generator.
    - Spaces may be set as late as in the first reset.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.spec = getattr(env, "spec", None)
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = getattr(env, "metadata", None) or {}
        seeder = getattr(env, "seed", None)
        self._seeder = seeder if callable(seeder) else None
        self._reseeds = self._seeder is not None and _accepts(self._seeder, "dynamic_seed")
        self._wants_array = self._reseeds or hasattr(env, "create_collector_env_cfg")
        self._rng = np.random.default_rng()
        self.observation_space = to_gymnasium(self._space("observation_space"), "observation_space")
        self.action_space = to_gymnasium(self._space("action_space"), "action_space")

    def _space(self, name: str) -> Any:
        space = getattr(self.env, name, None)
        if space is None:
            self.env.reset()
            space = getattr(self.env, name, None)
        if space is None:
            raise TypeError(f"env {type(self.env).__name__} has no {name}, even after reset(); set it in __init__")
        return space

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        if self._reseeds:
            self.env.seed(int(self._rng.integers(2**31)) if seed is None else seed, dynamic_seed=False)
            seed = None
        kwargs = {} if seed is None else self._seed(seed)
        if options is not None and _accepts(self.env.reset, "options"):
            kwargs["options"] = options
        return self._split(self.env.reset(**kwargs))

    def _seed(self, seed: int) -> dict[str, Any]:
        """Seed by the env's own means; the keywords `reset` is to be called with."""
        if self._seeder is not None:
            self._seeder(seed)
        elif _accepts(self.env.reset, "seed"):
            return {"seed": seed}
        elif isinstance(self.env, gymnasium.Env):
            gymnasium.Env.reset(self.env, seed=seed)
        else:
            warnings.warn(
                f"env {type(self.env).__name__} cannot be seeded: its reset takes no seed and it has no "
                "seed(); runs with it may not repeat",
                stacklevel=2,
            )
        return {}

    def _split(self, result: Any) -> tuple[Any, dict]:
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        if pair and not (isinstance(self.observation_space, spaces.Tuple) and self.observation_space.contains(result)):
            return result
        return result, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if np.ndim(action) == 0:
            action = np.asarray(action) if self._wants_array else int(action)
        result = self.env.step(action)
        if hasattr(result, "obs") and hasattr(result, "done"):
            if getattr(result, "terminated", None) is None:
                result = (result.obs, result.reward, result.done, result.info)
            else:
                result = (result.obs, result.reward, result.terminated, result.truncated, result.info)
        if not isinstance(result, tuple) or len(result) != 4:
            obs, reward, terminated, truncated, info = step_parts(result)
            return obs, _number(reward), bool(terminated), bool(truncated), info
        obs, reward, done, info = result
        if not isinstance(info, dict):
            raise TypeError(
                f"step() returned 4 values, the last a {type(info).__name__}; wanted (obs, reward, done, info) with a "
                "dict, or (obs, reward, terminated, truncated, info)"
            )
        truncated = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return obs, _number(reward), bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if callable(getattr(self.env, "close", None)):
            self.env.close()

    def __str__(self) -> str:
        return f"<EnvAdapter of {type(self.env).__name__}>"


def reset_parts(result: Any) -> tuple[Any, Any]:
    """What a Gymnasium env's reset returned, `(obs, info)`. Raises TypeError where it is something else."""
    if type(result) is tuple and len(result) == 2:
        return result
    alone = ": an observation alone is the form of old gym" if not isinstance(result, tuple) else ""
    raise TypeError(f"reset() returned {_describe(result)}; wanted (obs, info){alone}; end it with `return obs, {{}}`")


def step_parts(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What a Gymnasium env's step returned, five values. Raises TypeError where it is something else."""
    mistake = step_mistake(result)
    if mistake is not None:
        raise mistake
    return result


def step_mistake(result: Any) -> TypeError | None:
    """What is wrong with the form of what a Gymnasium env's step returned."""
    if isinstance(result, tuple) and len(result) == 5:
        return None
    old = isinstance(result, tuple) and len(result) == 4
    advice = (
        "; four are the form of old gym: in place of done return terminated (the task ended) and truncated (a time "
        "limit cut it off)"
    )
    return TypeError(
        f"step() returned {_describe(result)}; wanted (obs, reward, terminated, truncated, info){advice * old}"
    )


def _describe(result: Any) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"


def _number(reward: Any) -> float:
    if np.size(reward) != 1:
        raise TypeError(f"the reward has shape {np.shape(reward)}; wanted one number")
    return float(np.asarray(reward).reshape(()))


def has_start(space: spaces.Space) -> bool:
    """Whether a Discrete or MultiDiscrete part of it starts elsewhere than at 0."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return any(has_start(s) for _, s in children(space))
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and bool(np.any(space.start))


class ZeroStart(gymnasium.Wrapper):
    """Discrete and MultiDiscrete spaces with a `start`, seen as starting at 0 in actions and observations."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._add = getattr(env.action_space, "start", 0)
        self._shifts_obs = has_start(env.observation_space)
        self.action_space = _from_zero(env.action_space)
        self.observation_space = _from_zero(env.observation_space)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        obs, info = self.env.reset(**kwargs)
        return self._obs(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        obs, *rest = self.env.step(action + self._add)
        return self._obs(obs), *rest  # type: ignore[return-value]

    def _obs(self, obs: Any) -> Any:
        return _shift(self.env.observation_space, obs) if self._shifts_obs else obs


def _from_zero(space: spaces.Space) -> spaces.Space:
    if not has_start(space):
        return space
    if isinstance(space, spaces.Dict):
        return spaces.Dict({k: _from_zero(s) for k, s in children(space)})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_from_zero(s) for _, s in children(space)])
    assert isinstance(space, (spaces.Discrete, spaces.MultiDiscrete))
    made: Any
    if isinstance(space, spaces.Discrete):
        made = spaces.Discrete(int(space.n))
    else:
        made = spaces.MultiDiscrete(space.nvec, dtype=space.dtype)  # type: ignore[arg-type]
    made.moved_from = space.start  # for `describe_space`
    return made


def _shift(space: spaces.Space, obs: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {k: _shift(s, obs[k]) for k, s in children(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_shift(s, obs[k]) for k, s in children(space))
    start = getattr(space, "start", None)
    return obs if start is None else obs - start
