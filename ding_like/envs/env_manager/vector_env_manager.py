"""Natively batched envs: B columns that one call steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ding_like.data import ArrayDict, tree_index, tree_leaves, tree_map
from ding_like.envs.adapter import has_start
from ding_like.envs.base_env import EnvError, EnvTimestep, episode_entry
from ding_like.envs.snapshot import NoSnapshot, restore, taken
from ding_like.envs.spaces import LeafBatch, obs_batch
from ding_like.envs.vector import LazyInfos, eval_env_fns, make_vec_fn, seeded_reset
from ding_like.utils import ENV_MANAGER_REGISTRY
from ding_like.utils.seed import episode_seed

NO_COLUMN = np.zeros(0, np.int64)


class Episodes(Sequence):
    """Ended episodes, booked as arrays and made into dicts when somebody looks.

    Args:
        over: for each step at which episodes ended: columns, lengths, returns `[K]`, and their infos or None.
    """

    def __init__(self, over: list[tuple]) -> None:
        self._over = over
        self._ends = np.cumsum([len(columns) for columns, *_ in over]) if over else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self._episode(i) for i in range(*key.indices(len(self)))]
        index = range(len(self))[key]
        return self._episode(index)

    def _episode(self, index: int) -> dict:
        at = int(np.searchsorted(self._ends, index, side="right"))
        columns, lengths, returns, infos = self._over[at]
        j = index - (int(self._ends[at]) - len(columns))
        return episode_entry(columns[j], lengths[j], returns[j], {} if infos is None else infos[j])


@ENV_MANAGER_REGISTRY.register("vector")
class VectorEnvManager:
    """A Gymnasium `VectorEnv` behind the managers' API. Every array it returns is fresh: a caller may keep it.

    What happens at an episode's end follows the env's own autoreset mode:

    - next step: the ended column ignores its next action and resets; that row is no transition (`idle`).
    - same step: the true final observation comes from `info['final_obs']`, and the episode goes on from the reset one.
    - disabled: the manager resets the ended columns by `reset(options={'reset_mask': ...})`.

    Args:
        make_vec: `make_vec(num, seeds) -> VectorEnv`; seeds are those of the first episodes, None before `launch`.
        env_num: columns.
        role: part of every seed.

    Attributes:
        idle: columns that the last step only reset: it was no transition of theirs.
        may_idle: whether there are steps that are none.
        not_exact: why the last `load_state_dict` had to start new episodes, else None.
        ready_obs: tree `[B, ...]` to act on next; the last `timestep.obs` itself unless an episode ended.

    Raises EnvError where the env raises, or returns what its spaces do not describe.
    """

    config: dict = {}
    native = True
    auto_reset = True
    backend = "gymnasium"

    @classmethod
    def from_config(cls, env_cfg: Any, cfg: Any, num: int, role: str, env_setting: Any = None) -> VectorEnvManager:
        """The manager of a config's `env` section."""
        return cls(make_vec_fn(env_cfg, env_setting, cls.backend), num, cfg, role)

    @classmethod
    def eval_env_fns(cls, env_cfg: Any, num: int, env_setting: Any = None) -> list[Callable[[], gymnasium.Env]]:
        """Factories of the same envs one by one, for whole episodes in a base manager."""
        return eval_env_fns(env_cfg, num, env_setting, cls.backend)

    def __init__(
        self,
        make_vec: Callable[[int, list[int] | None], VectorEnv],
        env_num: int,
        cfg: Any = None,
        role: str = "collect",
    ) -> None:
        self.env_num, self.role = env_num, role
        self.idle = NO_COLUMN
        self.ready_obs: Any = None
        self.not_exact: str | None = None
        self._seed = self._restarts = 0
        self._over: list[tuple] = []
        self._make_vec = make_vec
        self._running = self._closed = False
        self.env_name = getattr(make_vec, "__name__", "vector env")
        self._vec = self._make(None)
        self.observation_space = self._vec.single_observation_space
        self.action_space = self._vec.single_action_space
        self._check_starts()
        self._mode = self._autoreset_mode()
        self.may_idle = self._mode is AutoresetMode.NEXT_STEP
        self._batch = obs_batch(self.observation_space)
        leaf = self._batch if isinstance(self._batch, LeafBatch) else None
        self._leaf_shape = None if leaf is None else (env_num, *leaf.shape)
        self._leaf_dtype = None if leaf is None else leaf.dtype
        self._action_dtype = self.action_space.dtype
        self._action_shape = (env_num, *(self.action_space.shape or ()))
        self._ended = NO_COLUMN  # columns whose episode ended in the last step
        self._returns, self._lengths = np.zeros(env_num), np.zeros(env_num, np.int64)

    def _make(self, seeds: list[int] | None) -> VectorEnv:
        try:
            vec = self._make_vec(self.env_num, seeds)
        except (EnvError, ValueError, TypeError, ImportError):
            raise
        except Exception as err:
            raise self._error("making it", err) from err
        if vec.num_envs != self.env_num:
            raise EnvError(f"vector env '{self.env_name}' has {vec.num_envs} columns; wanted {self.env_num}")
        return vec

    def _autoreset_mode(self) -> AutoresetMode:
        mode = (self._vec.metadata or {}).get("autoreset_mode")
        try:
            return AutoresetMode(mode)
        except ValueError as err:
            raise EnvError(
                f"vector env '{self.env_name}' has the metadata 'autoreset_mode' {mode!r}; wanted a "
                "gymnasium.vector.AutoresetMode: which rows are transitions depends on it"
            ) from err

    def _check_starts(self) -> None:
        for space in (self.observation_space, self.action_space):
            if has_start(space):
                raise EnvError(
                    f"vector env '{self.env_name}' has the space {space}, which does not start at 0; shift it in the "
                    "env, or use env_manager.type='base', which does"
                )

    # ------------------------------------------------------------------ episodes
    def launch(self, seed: int) -> Any:
        """Reset every column with the seed of its first episode; returns `ready_obs`."""
        if self._closed:
            raise EnvError("the env manager is closed; make a new one")
        self._seed, self._restarts, self._over = seed, 0, []
        return self._launch([episode_seed(seed, self.role, b, 0) for b in range(self.env_num)])

    def _launch(self, seeds: list[int]) -> Any:
        if getattr(self._vec, "seeds_at_construction", False):
            self._vec.close()
            self._vec = self._make(seeds)
        return self._reset(seeds)

    def reset(self, columns: Sequence[int] | None = None) -> Any:
        """Start a new episode in every column; returns `ready_obs`. Raises EnvError for a part of the columns."""
        self._check_running()
        if columns is not None and len(columns) != self.env_num:
            raise EnvError("a natively batched env resets all of its columns or none; use env_manager.type='base'")
        return self._reset(None)

    def _reset(self, seeds: list[int] | None) -> Any:
        try:
            obs, _ = seeded_reset(self._vec, seeds)
        except Exception as err:
            raise self._error("reset()", err) from err
        self.ready_obs = self._kept(obs)
        self._running, self.idle, self._ended = True, NO_COLUMN, NO_COLUMN
        self._returns[:], self._lengths[:] = 0, 0
        return self.ready_obs

    def step(self, action: Any, columns: Sequence[int] | None = None) -> Any:
        """One step of every column.

        Returns:
            EnvTimestep of `[B]` fields; the row of a column in `idle` has reward 0 and no flag.
        """
        self._check_running()
        if columns is not None:
            raise EnvError("a natively batched env steps all of its columns or none; use env_manager.type='base'")
        idle = self._ended if self.may_idle else NO_COLUMN
        actions = self._actions(action)
        try:
            raw, reward, terminated, truncated, info = self._vec.step(actions)
        except Exception as err:
            raise self._error("step()", err) from err
        obs = self._kept(raw)
        reward = np.array(reward, np.float32)
        self._check_rows(reward, terminated, truncated)
        if not isinstance(info, dict):
            raise self._error("step()", TypeError(f"info is a {type(info).__name__}; wanted a dict of arrays"))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        self._lengths += 1
        self.idle = idle
        if len(idle):
            reward[idle], terminated[idle], truncated[idle] = 0, False, False
            self._lengths[idle], self._returns[idle] = 0, 0
        self._returns += reward
        done = terminated | truncated
        self._ended = done.nonzero()[0]
        self.ready_obs = obs
        if len(self._ended):
            obs = self._end(obs, done, info)
        return EnvTimestep(obs, reward, done, LazyInfos(info, self.env_num), terminated, truncated)

    def _end(self, obs: Any, done: np.ndarray, info: dict) -> Any:
        """Book the ended episodes and set `ready_obs`; returns the true next observations."""
        columns = self._ended
        infos = LazyInfos(info, self.env_num)[columns] if info else None
        self._over.append((columns, self._lengths[columns], self._returns[columns], infos))
        if self.may_idle:
            self.ready_obs = self._shown(obs)
            return obs
        self._returns[columns], self._lengths[columns] = 0, 0
        if self._mode is AutoresetMode.SAME_STEP:
            final = self._finals(obs, info)
            self.ready_obs = obs
            return final
        self.ready_obs = self._reset_ended(obs, done)
        return obs

    def _shown(self, obs: Any) -> Any:
        """The same observations as another object; an ended column's action is ignored, so its mask allows all."""
        if not (isinstance(obs, dict) and "action_mask" in obs):
            return tree_map(np.ndarray.view, obs)
        shown = ArrayDict({k: tree_map(np.ndarray.view, v) for k, v in obs.items()})
        shown["action_mask"] = obs["action_mask"].copy()
        shown["action_mask"][self._ended] = 1
        return shown

    def _finals(self, obs: Any, info: dict) -> Any:
        found = info.get("final_obs")
        if found is None:
            raise EnvError(
                f"vector env '{self.env_name}' resets in the same step and its info has no 'final_obs', so the last "
                "observation of an episode is lost; use its next-step autoreset, or env_manager.type='base'"
            )
        final = tree_map(np.copy, obs)
        for b in self._ended.tolist():
            one = found[b] if isinstance(found, np.ndarray) and found.dtype == object else tree_index(found, b)
            try:
                self._batch.check(one)
            except (ValueError, TypeError) as err:
                raise self._error(f"reading info['final_obs'] of column {b}", err) from err
            self._batch.write(final, b, one)
        return final

    def _reset_ended(self, obs: Any, done: np.ndarray) -> Any:
        try:
            raw, _ = self._vec.reset(options={"reset_mask": done})
        except Exception as err:
            raise self._error("reset(reset_mask)", err) from err
        ready = self._kept(raw)
        for now, before in zip(tree_leaves(ready), tree_leaves(obs)):
            if not np.array_equal(now[~done], before[~done], equal_nan=now.dtype.kind == "f"):
                raise EnvError(
                    f"vector env '{self.env_name}' resets columns that reset_mask does not name; use its own autoreset"
                )
        return ready

    def take_finished(self) -> Episodes:
        """The episodes that ended since it was called last."""
        taken, self._over = self._over, []
        return Episodes(taken)

    def state_dict(self) -> dict:
        """The env and its open episodes; `envs` is None where no snapshot can be had, `not_exact` then says why."""
        return {
            "seed": self._seed,
            "restarts": self._restarts,
            "running": self._running,
            "returns": self._returns,
            "lengths": self._lengths,
            "ended": self._ended,
            "ready_obs": self.ready_obs,
            **taken([self._vec]),
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict` was taken. Without a snapshot of the env every column starts a new episode, with a
        seed that it did not have before, and `not_exact` says why.

        Raises ValueError for another number of columns.
        """
        if len(state["returns"]) != self.env_num:
            raise ValueError(f"the saved run has {len(state['returns'])} env columns, this one {self.env_num}")
        self._seed, self._restarts, self._running = state["seed"], state["restarts"], state["running"]
        self._returns[:], self._lengths[:], self._ended = state["returns"], state["lengths"], state["ended"]
        self.ready_obs, self.idle, self._over = state["ready_obs"], NO_COLUMN, []
        self.not_exact = state["not_exact"]
        if state["envs"] is not None:
            try:
                self._vec = restore([self._vec], state["envs"])[0]
            except NoSnapshot as err:
                self.not_exact = str(err)
        if self.not_exact is not None and self._running:
            self._restarts += 1
            role = f"{self.role}/restart"
            self._launch([episode_seed(self._seed, role, b, self._restarts) for b in range(self.env_num)])

    def close(self) -> None:
        """Close the env. Idempotent."""
        if not self._closed:
            self._running, self._closed = False, True
            try:
                self._vec.close()
            except Exception as err:
                raise self._error("close()", err) from err

    # ------------------------------------------------------------------ arrays
    def _kept(self, obs: Any) -> Any:
        """A contiguous copy of our own in the dtypes observations are kept in. Raises EnvError for another shape."""
        if type(obs) is np.ndarray and obs.shape == self._leaf_shape and obs.dtype == self._leaf_dtype:
            return obs.copy()  # in C order
        out = self._batch.empty(self.env_num)
        try:
            _fill(out, obs, self._batch)
        except (ValueError, TypeError, KeyError, IndexError) as err:
            raise self._error("reading its observations", err) from err
        return out

    def _actions(self, action: Any) -> Any:
        if self.action_space.shape is None:
            return action
        action = np.asarray(action)
        if action.shape != self._action_shape:
            raise ValueError(f"actions have shape {action.shape}; wanted {self._action_shape}")
        return action if action.dtype == self._action_dtype else action.astype(self._action_dtype)

    def _check_rows(self, *rows: Any) -> None:
        for name, row in zip(("the reward", "terminated", "truncated"), rows):
            if getattr(row, "shape", None) != (self.env_num,):
                raise self._error("step()", ValueError(f"{name} has shape {np.shape(row)}; wanted ({self.env_num},)"))

    def _check_running(self) -> None:
        if not self._running:
            told = "is closed; make a new one" if self._closed else "has no running episodes; call launch(seed) first"
            raise EnvError(f"the env manager {told}")

    def _error(self, call: str, cause: Exception) -> EnvError:
        return EnvError(f"vector env '{self.env_name}' ({self.role}): {call} raised {type(cause).__name__}: {cause}")


def _fill(out: Any, obs: Any, batch: Any) -> None:
    """Write a batched observation tree into `out`. Raises for other shapes and kinds of numbers."""
    if isinstance(out, np.ndarray):
        obs = np.asarray(obs)
        if obs.shape != out.shape:
            raise ValueError(f"{batch.path} has shape {obs.shape}; wanted {out.shape}: [columns, ...]")
        if not np.can_cast(obs.dtype, out.dtype, "same_kind"):
            raise TypeError(f"{batch.path} has dtype {obs.dtype}; wanted {batch.space.dtype}, as its space says")
        out[...] = obs
        return
    for key, part in batch.parts.items():
        _fill(out[key], obs[key], part)


@ENV_MANAGER_REGISTRY.register("env_pool")
class PoolEnvManager(VectorEnvManager):
    """Envs of EnvPool, by EnvPool's names: batched in C++ threads, reset in the step after an end."""

    backend = "envpool"


for _alias, _cls in (("gym_vector", VectorEnvManager), ("envpool", PoolEnvManager)):
    ENV_MANAGER_REGISTRY.register(_alias, _cls)
