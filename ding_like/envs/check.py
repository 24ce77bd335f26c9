"""`check_env`: what about an env would break or spoil training, found by stepping it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data import tree_leaves
from ding_like.envs.adapter import reset_parts, step_parts
from ding_like.envs.make import make_env_fns
from ding_like.envs.spaces import check_obs, children, model_shapes


@dataclass(frozen=True)
class Finding:
    """One finding of `check_env`: severity 'ok', 'warning' or 'error', what is so, what to do about it."""

    severity: str
    what: str
    todo: str = ""

    def __str__(self) -> str:
        return f"{self.severity:<8} {self.what}" + (f" -> {self.todo}" if self.todo else "")


def check_env(
    env: Any,
    import_names: Sequence[str] = (),
    env_kwargs: Mapping[str, Any] | None = None,
    steps: int = 1000,
    seed: int = 0,
) -> list[Finding]:
    """Make an env and step it with random actions.

    Args:
        env: a registered name or Gymnasium id, or an env instance, class or factory.
        steps: steps of each of two rollouts; an episode should end within them.

    Returns the findings in the order of the checks; an exception in the env is the last one. Raises
    UnknownNameError for an id that does not exist.
    """
    cfg = {
        "type": env if isinstance(env, str) else None,
        "import_names": list(import_names),
        "env_kwargs": env_kwargs,
    }
    (make,) = make_env_fns(cfg, 1, env_setting=None if isinstance(env, str) else env)
    findings: list[Finding] = []
    try:
        made = make()
    except Exception as err:
        return [_raised("making it", err)]
    try:
        findings += _check_spaces(made)
        if all(f.severity != "error" for f in findings):
            _check_steps(made, steps, seed, findings)
    finally:
        made.close()
    return findings


def _raised(call: str, err: Exception) -> Finding:
    return Finding("error", f"{call} raised {type(err).__name__}: {err}", "fix the env")


def _check_spaces(env: gymnasium.Env) -> list[Finding]:
    try:
        obs_shape, action_shape = model_shapes(env.observation_space, env.action_space)
    except TypeError as err:
        return [Finding("error", str(err), "wrap the env or change its spaces")]
    findings = [Finding("ok", f"a model is told obs_shape={obs_shape}, action_shape={action_shape}")]
    action_space = env.action_space
    if isinstance(action_space, spaces.Box) and not action_space.is_bounded():
        findings.append(Finding("warning", "the action space has no bounds", "give the Box a finite low and high"))
    for path, space in _leaves(env.observation_space, "obs"):
        shape = space.shape or ()
        if isinstance(space, spaces.Box) and len(shape) == 3 and shape[2] < min(shape[:2]):
            todo = "add 'channels_first' to env.wrappers"
            findings.append(Finding("warning", f"{path} is an image {list(shape)} with its channels last", todo))
        if space.dtype == np.float64:
            findings.append(Finding("ok", f"{path} is float64 and will be kept as float32"))
    return findings


def _leaves(space: spaces.Space, path: str) -> list[tuple[str, spaces.Space]]:
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [(path, space)]
    return [leaf for k, s in children(space) for leaf in _leaves(s, f"{path}.{k}")]


def _check_steps(env: gymnasium.Env, steps: int, seed: int, findings: list[Finding]) -> None:
    first, second = _Rollout(env), _Rollout(env)
    for rollout in (first, second):
        error = rollout.play(steps, seed)
        if error is not None:
            findings += [*rollout.findings.values(), error]
            return
    findings += first.findings.values()
    if first.trace == second.trace:
        findings.append(Finding("ok", "the same seed and actions give the same rollout"))
    else:
        todo = "draw only from self.np_random, which reset(seed=seed) of gymnasium.Env seeds"
        findings.append(
            Finding("warning", "the same seed and actions give different rollouts: runs will not repeat", todo)
        )
    if first.ends:
        findings.append(Finding("ok", f"{first.ends} episodes ended within {steps} steps"))
    else:
        findings.append(Finding("warning", f"no episode ended within {steps} steps", "set env.max_episode_steps"))
    findings.append(Finding("ok", f"{steps / second.seconds:,.0f} steps per second, resets and these checks included"))


@dataclass
class _Rollout:
    """One seeded rollout with random actions; findings by what they are about, the first of each kind."""

    env: gymnasium.Env
    findings: dict[str, Finding] = field(default_factory=dict)
    trace: list[bytes] = field(default_factory=list)
    ends: int = 0
    seconds: float = 0.0
    _last: list = field(default_factory=list)

    def play(self, steps: int, seed: int) -> Finding | None:
        """Runs it; the exception that stopped it, as a finding."""
        self.env.action_space.seed(seed)
        call, start = "reset(seed=...)", time.perf_counter()
        try:
            self._see(call, reset_parts(self.env.reset(seed=seed))[0])
            for _ in range(steps):
                call = "step(action)"
                action = self.env.action_space.sample()
                obs, reward, terminated, truncated, info = step_parts(self.env.step(action))
                self._see(call, obs)
                self._see_rest(reward, terminated, truncated, info)
                if terminated or truncated:
                    self.ends += 1
                    call = "reset()"
                    self._see(call, reset_parts(self.env.reset())[0])
        except Exception as err:
            return _raised(call, err)
        self.seconds = time.perf_counter() - start
        return None

    def _note(self, about: str, severity: str, what: str, todo: str = "") -> None:
        self.findings.setdefault(about, Finding(severity, what, todo))

    def _see(self, call: str, obs: Any) -> None:
        check_obs(self.env.observation_space, obs)
        leaves = tree_leaves(obs)
        self.trace += [np.asarray(leaf).tobytes() for leaf in leaves]
        if not all(np.isfinite(leaf).all() for leaf in leaves):
            self._note("finite", "error", f"{call} returned NaN or infinity in the observation", "fix the env")
        elif not self.env.observation_space.contains(obs):
            todo = "widen low and high of the space, or clip"
            self._note("bounds", "warning", f"{call} returned an observation outside the bounds of its space", todo)
        arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
        if any(a is b for a, b in zip(arrays, self._last)):
            self._note("alias", "ok", "the env returns one array object again and again; the env managers copy it")
        self._last = arrays

    def _see_rest(self, reward: Any, terminated: Any, truncated: Any, info: Any) -> None:
        if np.ndim(reward) != 0:
            raise TypeError(f"the reward has shape {np.shape(reward)}; wanted one number")
        self.trace.append(np.asarray([reward, terminated, truncated], float).tobytes())
        if not np.isfinite(reward):
            self._note("reward", "error", f"a reward is {reward}", "return a finite number")
        if not isinstance(info, dict):
            self._note("info", "error", f"info is a {type(info).__name__}", "return a dict")
        if not all(isinstance(flag, (bool, np.bool_)) for flag in (terminated, truncated)):
            kinds = f"{type(terminated).__name__} and {type(truncated).__name__}"
            self._note("flags", "warning", f"terminated and truncated are {kinds}", "return two bools")
        if terminated and truncated:
            self._note("both", "ok", "a step is both terminated and truncated; it counts as terminated")
