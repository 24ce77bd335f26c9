"""The in-process env manager: B env columns stepped one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.data import Infos, tree_index, tree_map, tree_write
from ding_like.envs.adapter import EnvAdapter, env_name, reset_parts, step_mistake, wrap_env
from ding_like.envs.base_env import EnvError, EnvTimestep, episode_entry
from ding_like.envs.env_manager.checks import check_columns, check_not_waiting, checked_actions, compare_spaces
from ding_like.envs.snapshot import NoSnapshot, restore, taken
from ding_like.envs.spaces import LeafBatch, obs_batch
from ding_like.utils import ENV_MANAGER_REGISTRY
from ding_like.utils.seed import episode_seed

NUMBERS = "biuf"  # kinds of dtypes: bool, integers, floats


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager:
    """B envs in this process behind one batched API. Every array it returns is fresh: a caller may keep it.

    Args:
        env_fns: one factory an env column; what it returns goes through `wrap_env`.
        cfg: the manager's section of the config (this manager has no settings).
        role: 'collect' or 'eval'; part of every seed.
        auto_reset: reset an ended column in the same step; otherwise the caller resets it. `timestep.obs` is
            the true next observation either way.
        seed_every_episode: seed the k-th reset of a column by `episode_seed(seed, role, column, k)`; without
            it only the first reset is seeded and the env's own generator goes on.
        first_column: what the first column is called in seeds, messages and `finished`: a worker process holds some of
            the columns. Arguments of methods count from 0.

    Attributes:
        ready_obs: tree `[B, ...]` to act on next; the last `timestep.obs` itself when nothing was reset.
        empty_obs: `empty_obs(n)`, where the observations of a step of n columns are written.
        finished: episodes ended since `take_finished`: dicts of `column, length, return_, return_raw, info`.
        not_exact: why the last `load_state_dict` had to start new episodes, else None.

    Raises EnvError when an env raises or returns what its spaces do not describe.
    """

    config: dict = {}
    may_idle = False  # every row is a transition

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        cfg: Any = None,
        role: str = "collect",
        auto_reset: bool = True,
        seed_every_episode: bool = False,
        first_column: int = 0,
    ) -> None:
        if not env_fns:
            raise ValueError("env_fns is empty; wanted one env factory for each column")
        self.role, self.auto_reset, self.seed_every_episode = role, auto_reset, seed_every_episode
        self.env_num, self.first_column = len(env_fns), first_column
        self.finished: list[dict] = []
        self.ready_obs: Any = None
        self.not_exact: str | None = None
        self._seed = self._restarts = 0
        self._running = self._closed = False
        self._envs: list[gymnasium.Env] = []
        self._names = [getattr(fn, "__name__", type(fn).__name__) for fn in env_fns]
        self._columns = range(self.env_num)
        self._resets = [0] * self.env_num
        self._returns = np.zeros(self.env_num)
        self._lengths = np.zeros(self.env_num, np.int64)
        self._waiting: set[int] = set()
        self._make(env_fns)
        self.env_name = self._names[0]
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._action_shape = self.action_space.shape
        self._discrete = isinstance(self.action_space, spaces.Discrete)
        self.empty_obs: Callable[[int], Any] = self._obs.empty
        self._steps = [env.step for env in self._envs]

    def _make(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        try:
            for b, make in enumerate(env_fns):
                try:
                    self._envs.append(wrap_env(make()))
                except Exception as err:
                    raise self._error(b, "making it", err) from err
                self._names[b] = env_name(self._envs[b])
                self._compare_spaces(b)
            self._obs = obs_batch(self._envs[0].observation_space)
        except (EnvError, TypeError):
            self.close()
            raise

    def _compare_spaces(self, b: int) -> None:
        mine, column = _innermost(self._envs[b]), self.first_column + b
        if any(_innermost(env) is mine for env in self._envs[:b]):
            raise EnvError(
                f"env column {column} ({self._names[b]}) is the very object of an earlier column; the factory must "
                "make a new env at each call"
            )
        first, other = ((env.observation_space, env.action_space) for env in (self._envs[0], self._envs[b]))
        compare_spaces((column, self._names[b], *other), (self.first_column, self._names[0], *first))

    def launch(self, seed: int) -> Any:
        """Reset every column with the seed of its episode 0; returns `ready_obs`."""
        self._seed, self._running = seed, not self._closed
        self._resets = [0] * self.env_num
        self._restarts = 0
        self.finished = []
        return self.reset()

    def reset(self, columns: Sequence[int] | None = None) -> Any:
        """Start a new episode in `columns` (all by default), dropping open ones; returns `ready_obs`."""
        if not self._running:
            self._check_running(columns)
        first = self.ready_obs is None
        self.ready_obs = self._obs.empty(self.env_num) if first else _copy(self.ready_obs)
        self._reset_into(self.ready_obs, self._columns if columns is None else columns)
        return self.ready_obs

    def _reset_into(self, ready: Any, columns: Sequence[int], seeds: list[int] | None = None) -> None:
        for b in columns:
            episode = self._resets[b]
            seed = None if seeds is None else seeds[b]
            if seeds is None and (episode == 0 or self.seed_every_episode):
                seed = episode_seed(self._seed, self.role, self.first_column + b, episode)
            self._lengths[b] = 0
            try:
                obs, _ = reset_parts(self._envs[b].reset(seed=seed))
                self._obs.check(obs)
            except Exception as err:
                raise self._error(b, "reset()", err) from err
            self._obs.write(ready, b, obs)
            self._resets[b] += 1
            self._returns[b] = 0
            self._waiting.discard(b)

    def step(self, action: Any, columns: Sequence[int] | None = None) -> Any:
        """One step in every column, or in `columns` only.

        Args:
            action: array `[b, ...]`, one row a stepped column.
        Returns:
            EnvTimestep of `[b]` fields: reward float32, flags bool, `info` an `Infos` of b dicts.
        """
        if not self._running or self._waiting:
            self._check_running(columns)
        every = self._columns if columns is None else [int(b) for b in columns]
        obs, rewards, terminated, truncated, infos = self._step_all(every, self._action_rows(action, len(every)))
        reward = self._reward(every, rewards)
        if columns is None:
            self._returns += reward
            self._lengths += 1
            self.ready_obs = obs
        else:
            self._returns[every] += reward
            self._lengths[every] += 1
            self.ready_obs = _copy(self.ready_obs)
            tree_write(self.ready_obs, every, obs)
        n = len(every)
        try:
            going_on = terminated.count(False) == truncated.count(False) == n
        except ValueError:  # an array of several flags
            going_on = False
        if going_on:
            done, flags = np.zeros(n, bool), (np.zeros(n, bool), np.zeros(n, bool))
        else:
            flags = self._flags(every, "terminated", terminated), self._flags(every, "truncated", truncated)
            done = flags[0] | flags[1]
            self._end(every, done, infos)
        return EnvTimestep(obs, reward.astype(np.float32), done, Infos(infos), *flags)

    def _step_all(self, columns: Sequence[int], actions: Sequence) -> tuple[Any, list, list, list, list]:
        """Step env by env. An observation is copied before the next env runs: envs may share their arrays."""
        n = len(columns)
        obs = self.empty_obs(n)
        rewards: list[Any] = [None] * n
        terminated, truncated, infos = rewards.copy(), rewards.copy(), rewards.copy()
        write, array = self._obs.write, np.ndarray
        shape, dtype = (self._obs.shape, self._obs.kind_dtype) if isinstance(self._obs, LeafBatch) else (None, None)
        steps = self._steps if columns is self._columns else [self._steps[b] for b in columns]
        j = 0
        result: Any = (None,) * 5  # what the last step returned
        try:
            for j, step in enumerate(steps):
                result = o, rewards[j], terminated[j], truncated[j], infos[j] = step(actions[j])
                if type(o) is array and o.dtype is dtype and o.shape == shape:
                    obs[j] = o  # `write` without the call
                else:
                    write(obs, j, o)
        except Exception as err:
            raise self._error(columns[j], f"step({actions[j]!r})", step_mistake(result) or err) from err
        return obs, rewards, terminated, truncated, infos

    def _action_rows(self, action: Any, n: int) -> Sequence:
        """One action a column, in the form the space's own `sample` has."""
        shape = self._action_shape
        if shape is None:
            return [tree_index(action, j) for j in range(n)]
        action = checked_actions(action, n, self.action_space)
        return action.tolist() if self._discrete else list(np.array(action, self.action_space.dtype))

    def _end(self, columns: Sequence[int], done: np.ndarray, infos: list) -> None:
        ended = []
        for j in done.nonzero()[0].tolist():
            ended.append(columns[j])
            self.finished.append(self._episode(columns[j], infos[j]))
        if not self.auto_reset:
            self._waiting.update(ended)
            return
        self.ready_obs = _copy(self.ready_obs)
        self._reset_into(self.ready_obs, ended)

    def _episode(self, b: int, info: dict) -> dict:
        if not isinstance(info, dict):
            raise self._error(b, "step()", TypeError(f"info is a {type(info).__name__}; wanted a dict"))
        try:
            return episode_entry(self.first_column + b, self._lengths[b], self._returns[b], info)
        except (TypeError, ValueError) as err:
            raise self._error(b, "reading the return in its info", err) from err

    def take_finished(self) -> list[dict]:
        """The episodes in `finished`, which is emptied."""
        taken, self.finished = self.finished, []
        return taken

    def state_dict(self, apart: bool = False) -> dict:
        """The envs and their open episodes; `envs` is None where no snapshot can be had, `not_exact` then says why.

        With `apart` it is a list of snapshots, one for each column, and what the envs share with each other is lost.
        """
        return {
            "seed": self._seed,
            "restarts": self._restarts,
            "running": self._running,
            "resets": list(self._resets),
            "returns": self._returns,
            "lengths": self._lengths,
            "waiting": sorted(self._waiting),
            "ready_obs": self.ready_obs,
            **(_taken_apart(self._envs) if apart else taken(self._envs)),
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict` was taken. Without a snapshot of the envs every column starts a new episode, with a
        seed that it did not have before, and `not_exact` says why.

        Raises ValueError for another number of columns.
        """
        if self.go_on(state) is not None and self._running:
            self.begin_anew(self._seed, self._restarts + 1)

    def go_on(self, state: dict) -> str | None:
        """Go on where `state_dict` was taken; returns `not_exact`: why the envs cannot (they are left as they are)."""
        check_columns(len(state["resets"]), self.env_num)
        self._seed, self._restarts, self._running = state["seed"], state["restarts"], state["running"]
        self._resets, self._waiting = list(state["resets"]), set(state["waiting"])
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self.ready_obs, self.finished = state["ready_obs"], []
        self.not_exact = state["not_exact"]
        if state["envs"] is not None:
            try:
                self._envs = self._restored(state["envs"])
                self._steps = [env.step for env in self._envs]
            except NoSnapshot as err:
                self.not_exact = str(err)
        return self.not_exact

    def _restored(self, envs: Any) -> list[gymnasium.Env]:
        if isinstance(envs, list):
            return [restore([env], one)[0] for env, one in zip(self._envs, envs, strict=True)]
        return restore(self._envs, envs)

    def begin_anew(self, seed: int, restarts: int) -> Any:
        """Start a new episode in every column, with seeds that no other number of `restarts` gives; returns
        `ready_obs`.
        """
        self._seed, self._restarts, self._running = seed, restarts, not self._closed
        role = f"{self.role}/restart"
        seeds = [episode_seed(seed, role, self.first_column + b, restarts) for b in self._columns]
        self.ready_obs = self._obs.empty(self.env_num)
        self._reset_into(self.ready_obs, self._columns, seeds)
        return self.ready_obs

    def close(self) -> None:
        """Close every env, also when one of them raises; the first error is raised at the end. Idempotent."""
        self._running, self._closed = False, True
        envs, self._envs = self._envs, []
        failed: list[tuple[int, Exception]] = []
        for b, env in enumerate(envs):
            try:
                env.close()
            except Exception as err:
                failed.append((b, err))
        if failed:
            b, cause = failed[0]
            raise self._error(b, "close()", cause) from cause

    def _check_running(self, columns: Sequence[int] | None) -> None:
        if self._closed:
            raise EnvError("the env manager is closed; make a new one")
        if not self._running:
            raise EnvError("the env manager has no running episodes; call launch(seed) first")
        check_not_waiting(self._waiting, columns)

    def _reward(self, columns: Sequence[int], rewards: list) -> np.ndarray:
        """The rewards as numbers `[b]`. Raises EnvError naming the column of one that is none."""
        try:
            reward = np.array(rewards)
            if reward.dtype.kind in NUMBERS and reward.shape == (len(columns),):
                return reward
        except (TypeError, ValueError):  # shapes that do not fit together
            pass
        for b, one in zip(columns, rewards):
            self._check_number(b, "the reward", one)
        return np.array(rewards, np.float64)

    def _flags(self, columns: Sequence[int], name: str, flags: list) -> np.ndarray:
        """One flag of every column as bools `[b]`. Raises EnvError naming the column of one that is none."""
        for b, flag in zip(columns, flags):
            if flag is not True and flag is not False:
                self._check_number(b, name, flag)
        return np.array(flags, bool)

    def _check_number(self, b: int, what: str, value: Any) -> None:
        array = np.asarray(value)
        if array.dtype.kind not in NUMBERS or array.shape != ():
            found = f"has shape {array.shape}" if array.shape else f"is {value!r}"
            raise self._error(b, "step()", TypeError(f"{what} {found}; wanted one number or bool"))

    def _error(self, b: int, call: str, cause: Exception) -> EnvError:
        at = f" after {self._lengths[b]} steps of its episode" if self._running else ""
        return EnvError(
            f"env '{self._names[b]}', column {self.first_column + b} ({self.role}): {call} raised "
            f"{type(cause).__name__}{at}: {cause}"
        )


def _innermost(env: gymnasium.Env) -> Any:
    bare = env.unwrapped
    return bare.env if isinstance(bare, EnvAdapter) else bare


def _taken_apart(envs: Sequence[gymnasium.Env]) -> dict[str, Any]:
    """What `taken` gives, of each env alone: `envs` is a list."""
    each = [taken([env]) for env in envs]
    found = [one["envs"] for one in each]
    return {
        "envs": None if None in found else found,
        "not_exact": next((one["not_exact"] for one in each if one["not_exact"]), None),
    }


def _copy(tree: Any) -> Any:
    return tree.copy() if isinstance(tree, np.ndarray) else tree_map(np.copy, tree)


ENV_MANAGER_REGISTRY.register("base_v2", BaseEnvManager)
