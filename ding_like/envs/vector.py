"""Natively batched envs: how a config's env becomes a `VectorEnv`, and one of its columns a single env."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from ding_like.data import Infos, tree_index, tree_map
from ding_like.envs.make import env_builder, find_spec, make_env_fns, registered
from ding_like.utils import import_modules

MakeVec = Callable[[int, "list[int] | None"], Any]


class LazyInfos(Infos):
    """The infos of B columns, made when somebody looks: dicts of what a batched info (arrays by name) says of each.

    An entry `name` counts for the columns that `_name` marks, where there is such an entry. Where a column was reset in
    the same step, its info is that of its last step (`final_info`), not of the reset.
    """

    _info: dict
    _num: int

    def __new__(cls, info: dict, num: int) -> LazyInfos:
        made = super().__new__(cls)
        made._info, made._num = info, num
        return made

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Any:
        return (self[b] for b in range(self._num))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            one = _column(self._info, int(key) % self._num, self._num)
            final = one.get("final_info")
            return final if isinstance(final, dict) else one
        return Infos(self[int(b)] for b in np.arange(self._num)[key])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple:
        return Infos, (list(self),)


def _column(info: dict, b: int, num: int) -> dict:
    found = {}
    for name, value in info.items():
        told = info.get(f"_{name}")
        if name.startswith("_") or (isinstance(told, np.ndarray) and told.dtype == bool and not told[b]):
            continue
        if isinstance(value, dict):
            found[name] = _column(value, b, num)
        elif isinstance(value, np.ndarray) and value.ndim and len(value) == num:
            found[name] = value[b]
    return found


class VectorColumn(gymnasium.Env):
    """A vector env of one column as a single env; it is reset as a whole, whatever its autoreset mode.

    Args:
        make_vec: as of a `VectorEnvManager`.
    """

    def __init__(self, make_vec: MakeVec) -> None:
        self._make_vec = make_vec
        self._vec = make_vec(1, None)
        if self._vec.num_envs != 1:
            raise ValueError(f"the vector env has {self._vec.num_envs} columns; wanted 1: see its `num_envs`")
        self.observation_space = self._vec.single_observation_space
        self.action_space = self._vec.single_action_space

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if seed is not None and getattr(self._vec, "seeds_at_construction", False):
            self._vec.close()
            self._vec = self._make_vec(1, [seed])
            seed = None
        obs, info = seeded_reset(self._vec, None if seed is None else [seed])
        return tree_map(np.copy, tree_index(obs, 0)), LazyInfos(info, 1)[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        batch = np.asarray(action, self.action_space.dtype)[None]
        obs, reward, terminated, truncated, info = self._vec.step(batch)
        first = tree_map(np.copy, tree_index(obs, 0))
        final = _column(info, 0, 1).get("final_obs") if terminated[0] or truncated[0] else None
        if final is not None:  # same-step autoreset: what stands in obs is of the next episode
            first = final
        return first, float(reward[0]), bool(terminated[0]), bool(truncated[0]), LazyInfos(info, 1)[0]

    def close(self) -> None:
        self._vec.close()


def seeded_reset(vec: Any, seeds: list[int] | None) -> tuple[Any, dict]:
    """Reset all columns, each with its own seed; an env with one generator for all columns takes the first."""
    if seeds is None:
        return vec.reset()
    try:
        return vec.reset(seed=seeds)
    except (gymnasium.error.Error, TypeError, ValueError):  # Gymnasium's own batched envs take a number alone
        return vec.reset(seed=seeds[0])


class PoolEnv:
    """An EnvPool behind Gymnasium's vector API. It is seeded when it is made and resets in the step after an end."""

    seeds_at_construction = True

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.num_envs = len(pool)
        self.single_observation_space, self.single_action_space = pool.observation_space, pool.action_space
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def reset(self, seed: Any = None, options: dict | None = None) -> tuple[Any, dict]:
        """All columns anew; the seed was given when the pool was made."""
        return self._pool.reset()

    def step(self, action: Any) -> tuple:
        """Gymnasium's five values, batched."""
        return self._pool.step(action)

    def close(self) -> None:
        """Stop the pool's threads."""
        self._pool.close()


def make_vec_fn(env_cfg: Mapping[str, Any], env_setting: Any = None, backend: str = "gymnasium") -> MakeVec:
    """`make_vec(num, seeds) -> vector env` of a config's `env` section.

    Args:
        env_setting: a `VectorEnv` class or factory (called with `num_envs`) in place of the config's env.
        backend: 'gymnasium' or 'envpool'.

    Raises ValueError where the env has no natively batched form, ImportError naming what to install.
    """
    import_modules(env_cfg.get("import_names") or ())
    if env_cfg.get("wrappers"):
        raise ValueError(
            f"env.wrappers: {list(env_cfg['wrappers'])} wrap single envs, which a natively batched env does not have; "
            "use env_manager.type='base', or remove them"
        )
    if backend == "envpool":
        return _pool_maker(env_cfg)
    own = env_setting if env_setting is not None else registered(env_cfg)
    if own is not None:
        if env_cfg.get("max_episode_steps") is not None:
            raise ValueError(
                f"env.max_episode_steps is {env_cfg['max_episode_steps']}, but a natively batched env of your own "
                "counts its steps itself; give the limit in env.env_kwargs, or use env_manager.type='base'"
            )
        return _named(lambda num, seeds: _own_vec(own, env_cfg, num), getattr(own, "__name__", type(own).__name__))
    env_builder(env_cfg)  # raises for a name nobody knows
    env_id = env_cfg["type"] if env_cfg.get("env_id") is None else env_cfg["env_id"]
    spec = find_spec(env_id)
    if spec.vector_entry_point is None:
        raise ValueError(
            f"env '{env_id}' has no natively batched form in Gymnasium (no vector_entry_point); use "
            "env_manager.type='base', or 'env_pool' where EnvPool has it"
        )
    kwargs = dict(env_cfg.get("env_kwargs") or {})
    limit = env_cfg.get("max_episode_steps")
    if limit is not None:
        kwargs["max_episode_steps"] = limit

    def make(num: int, seeds: Any) -> Any:
        return gymnasium.make_vec(spec, num, vectorization_mode="vector_entry_point", **copy.deepcopy(kwargs))

    return _named(make, spec.id)


def eval_env_fns(
    env_cfg: Mapping[str, Any], num: int, env_setting: Any = None, backend: str = "gymnasium"
) -> list[Callable[[], gymnasium.Env]]:
    """`num` factories of the same env alone: Gymnasium's single form if there is one, else one column of the batch."""
    make_vec = make_vec_fn(env_cfg, env_setting, backend)
    if backend == "gymnasium" and env_setting is None and registered(env_cfg) is None:
        fns = make_env_fns(env_cfg, num, "eval")
        if _same_observations(make_vec, fns[0]):
            return fns
    return [_named(lambda: VectorColumn(make_vec), make_vec.__name__)] * num


def _same_observations(make_vec: MakeVec, make_single: Callable[[], gymnasium.Env]) -> bool:
    """Whether both forms of an env show the same: some batched ones preprocess (Atari's stack and scale frames)."""
    vec, single = make_vec(1, None), make_single()
    same = vec.single_observation_space == single.observation_space
    vec.close()
    single.close()
    return same


def _own_vec(own: Any, env_cfg: Mapping[str, Any], num: int) -> VectorEnv:
    if not callable(own):
        raise ValueError(
            f"env_setting is a {type(own).__name__} object; wanted its class or a factory that takes num_envs, as "
            "collecting and evaluation need envs of their own"
        )
    made = own(num_envs=num, **dict(env_cfg.get("env_kwargs") or {}))
    if not isinstance(made, VectorEnv):
        raise ValueError(
            f"{getattr(own, '__name__', own)} made a {type(made).__name__}; env_manager.type='vector' wants a "
            "gymnasium.vector.VectorEnv: use env_manager.type='base' for single envs"
        )
    return made


def _pool_maker(env_cfg: Mapping[str, Any]) -> MakeVec:
    try:
        import envpool
    except ImportError as err:
        raise ImportError("env_manager.type='env_pool' needs EnvPool: pip install 'ding_like[envpool]'") from err
    name = env_cfg["type"] if env_cfg.get("env_id") is None else env_cfg["env_id"]
    if name not in envpool.list_all_envs():
        raise ValueError(f"EnvPool has no env '{name}'; envpool.list_all_envs() names those it has")
    kwargs = dict(env_cfg.get("env_kwargs") or {})
    if env_cfg.get("max_episode_steps") is not None:
        kwargs["max_episode_steps"] = env_cfg["max_episode_steps"]

    def make(num: int, seeds: list[int] | None) -> PoolEnv:
        return PoolEnv(envpool.make(name, env_type="gymnasium", num_envs=num, seed=seeds or 0, **kwargs))

    return _named(make, name)


def _named(fn: Callable, name: str) -> Any:
    fn.__name__ = name
    return fn
