"""Which sampler a run collects with, and how it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ding_like.config import CfgDict, ConfigError, get_path
from ding_like.data import tree_index
from ding_like.distributed.group import WorkerGroup
from ding_like.entry.env_managers import env_section
from ding_like.envs.env_manager.base_env_manager import BaseEnvManager
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager
from ding_like.envs.make import make_env_fns
from ding_like.policy import Policy
from ding_like.utils import BUFFER_REGISTRY, ENV_MANAGER_REGISTRY
from ding_like.utils.cores import usable_cores
from ding_like.utils.log import get_logger
from ding_like.worker.attribute import attribute_of

MODES = ("serial", "parallel", "async")
HAND_OFF_S = 60e-6  # a message to every worker and their answers; benchmarks/samplers.py: 42 to 67 us with two
MEASURE_S = 0.15  # seconds that each measurement of `auto` takes at most
CLEARLY = 1.15  # times slower than the best that `serial` may be to be taken: measurements differ by that much
WORKER_KEYS = ("num_workers", "on_worker_death", "step_timeout", "max_restarts")


def choose_sampler(cfg: CfgDict, mode: str) -> str:
    """The sampler of a run in this mode: what the config says, `serial` under serial, `local` under async.

    An env manager of workers (`subprocess`) means `server`. Writes what was chosen into `cfg`.
    Raises ConfigError where mode, sampler and env manager do not go together.
    """
    section = cfg.policy.collect.collector
    if getattr(BUFFER_REGISTRY.get(cfg.replay_buffer.type), "offline", False):
        mode = "serial"  # nothing is collected
    workers = issubclass(ENV_MANAGER_REGISTRY.get(cfg.env_manager.type), SubprocessEnvManager)
    if workers:
        given = {key: cfg.env.manager[key] for key in WORKER_KEYS}
        section.update({key: value for key, value in given.items() if value != SubprocessEnvManager.config[key]})
        cfg.env_manager.type, cfg.env.manager = "base", CfgDict()
        if mode == "serial":
            get_logger().info(
                "env_manager.type: subprocess is sampler 'server' of -m parallel; -m serial steps the envs here"
            )
    if mode == "serial":
        section.sampler = "serial"
    elif section.sampler == "auto":
        section.sampler = "server" if workers and mode == "parallel" else "local" if mode == "async" else "auto"
    if mode == "async" and section.sampler != "local":
        raise ConfigError(
            f"policy.collect.collector.sampler: got '{section.sampler}', wanted 'local' (or 'auto') with -m async, "
            "where workers collect while this process learns"
        )
    if section.barrier is False and (mode != "async" or section.lag == 0):
        raise ConfigError(
            "policy.collect.collector.barrier: got False, wanted None or True but with -m async (and lag=1): elsewhere "
            "the learner waits for all workers"
        )
    native = getattr(ENV_MANAGER_REGISTRY.get(cfg.env_manager.type), "native", False)
    if native and section.sampler in ("server", "alternating"):
        raise ConfigError(
            f"policy.collect.collector.sampler: got '{section.sampler}' with env_manager.type "
            f"'{cfg.env_manager.type}', whose columns one call steps; wanted 'serial' or 'local'"
        )
    if native and section.sampler == "auto":
        section.sampler = "serial"
    return str(section.sampler)


def actors_are_free(cfg: CfgDict, policy: Policy, mode: str) -> bool:
    """Whether workers wait neither for each other nor for the learner, as config or policy say.

    Raises ConfigError where the policy would mix what rounds keep apart.
    """
    section = cfg.policy.collect.collector
    if mode != "async" or section.lag == 0 or section.barrier:
        return False
    if section.barrier is None and not attribute_of(policy.collect_mode, "free_actors", False):
        return False
    if get_path(cfg, "policy.learn.value_norm", False):
        raise ConfigError(
            "policy.learn.value_norm: got True, wanted False with policy.collect.collector.barrier=False: values of "
            "blocks that were begun at different times are in different units"
        )
    return True


def workers_of(cfg: CfgDict, beside: bool = False) -> int:
    """Worker processes: what the config says, or one for each usable core (`beside`: but the learner's); no more than
    there are env columns.
    """
    wanted = cfg.policy.collect.collector.num_workers
    found = max(1, usable_cores() - beside) if wanted is None else int(wanted)
    return min(found, int(cfg.env.collector_env_num))


def make_collect_envs(cfg: CfgDict, seed: int, env_setting: Any = None, beside: bool = False) -> Any:
    """What the collector's rows come from: an env manager, or the workers of the `local` sampler.

    Args:
        beside: workers collect while this process learns: it has a core for itself, unless the config says how many.
    """
    section, num, env = cfg.policy.collect.collector, int(cfg.env.collector_env_num), env_section(cfg)
    cls: Any = ENV_MANAGER_REGISTRY.get(cfg.env_manager.type)
    native = getattr(cls, "native", False)
    if section.sampler == "local":
        fns: list[Any] = []
        if native:
            make: Callable[..., Any] = partial(_native_columns, cls, env, cfg.env.manager, env_setting)
        else:
            fns = make_env_fns(env, num, "collect", env_setting)
            make = partial(_columns, cls, fns, cfg.env.manager)
        settings = {name: section[name] for name in WORKER_KEYS[1:]}
        return WorkerGroup(make, num, workers_of(cfg, beside), seed, functions=fns, **settings)
    if native:
        return cls.from_config(env, cfg.env.manager, num, "collect", env_setting)
    fns = make_env_fns(env, num, "collect", env_setting)
    if section.sampler in ("server", "alternating"):
        alternate = 2 if section.sampler == "alternating" else 1
        settings = {**{name: section[name] for name in WORKER_KEYS}, "num_workers": workers_of(cfg)}
        if settings["num_workers"] < alternate:
            raise ConfigError(
                f"policy.collect.collector.sampler: 'alternating' wants two workers or more, got {workers_of(cfg)}: "
                "raise num_workers or env.collector_env_num"
            )
        manager: Any = SubprocessEnvManager(fns, CfgDict(settings))
        manager.alternate = alternate
        return manager
    return cls(fns, cfg.env.manager, role="collect")


def _columns(cls: Any, fns: list[Any], manager_cfg: Any, first: int, end: int) -> Any:
    return cls(fns[first:end], manager_cfg, role="collect", first_column=first)


def _native_columns(cls: Any, env: Any, manager_cfg: Any, env_setting: Any, first: int, end: int) -> Any:
    return cls.from_config(env, manager_cfg, end - first, "collect", env_setting)


def worker_policy(
    cls: type[Policy], cfg: Any, model: Any, shapes: dict[str, Any], columns: tuple[int, int], total: int, seed: int
) -> Policy:
    """The policy of a worker that acts for the columns `[first, end)` of all; on the CPU."""
    cfg = deepcopy(cfg)
    cfg.cuda = False
    return cls(
        cfg, model, ["collect"], seed=seed, shapes={**shapes, "columns": list(range(*columns)), "env_num": total}
    )


# ---------------------------------------------------------------------- auto
@dataclass
class Costs:
    """Seconds: of one env step, of the policy for all columns, for half of them, and for one worker's on the CPU."""

    env: float
    act: float
    act_half: float
    act_part: float

    def predict(self, columns: int, workers: int, cores: int, rows: int) -> dict[str, float]:
        """Seconds of one row of all columns by each sampler."""
        part = -(-columns // workers)
        turns = -(-workers // max(1, min(cores, workers)))  # workers that take turns on a core
        stepping = part * self.env * turns
        found = {
            "serial": columns * self.env + self.act,
            "server": stepping + self.act + HAND_OFF_S * (1 + 0.2 * workers),
            "local": stepping + self.act_part * turns + HAND_OFF_S / rows,
        }
        if workers >= 2:  # each half is stepped while this process acts for the other, as far as there are cores
            here, one = 2 * self.act_half, self.act_half + part * self.env
            all_cores = (here + columns * self.env) / min(cores, workers + 1)
            found["alternating"] = max(here, one, all_cores) + 2 * HAND_OFF_S
        return found


def calibrate(cfg: CfgDict, make_policy: Callable[[Any, bool], Policy], env_setting: Any) -> str:
    """Measure env and policy, take the sampler with the lowest predicted time, say why. Writes it into `cfg`.

    Args:
        make_policy: `make_policy(manager, cpu)`: a policy for a manager's spaces, on the CPU or where the config says.
    """
    columns, workers, cores = int(cfg.env.collector_env_num), workers_of(cfg), usable_cores()
    collect = cfg.policy.collect
    rows = max(1, -(-int(collect.get("n_step") or collect.n_sample) // columns))
    fns = make_env_fns(env_section(cfg), columns, "collect", env_setting)
    manager = BaseEnvManager(fns[: min(columns, 4)], role="calibrate")
    try:
        manager.launch(0)
        policy = make_policy(manager, False)
        there, obs = policy if not cfg.policy.cuda else make_policy(manager, True), manager.ready_obs
        env, act, half = _env_cost(manager), _act_cost(policy, obs, columns), _act_cost(policy, obs, -(-columns // 2))
        costs = Costs(env, act, half, _act_cost(there, obs, -(-columns // workers)))
    finally:
        manager.close()
    predicted = costs.predict(columns, workers, cores, rows)
    chosen = min(predicted, key=lambda name: predicted[name])
    if predicted["serial"] < CLEARLY * predicted[chosen]:  # what is about as good as workers needs none
        chosen = "serial"
    told = ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in predicted.items())
    get_logger().info(
        f"sampler auto: '{chosen}'. One env step takes {costs.env * 1e6:.0f} us, the policy {costs.act * 1e6:.0f} us "
        f"for {columns} columns; predicted us a row with {workers} workers on {cores} cores: {told}"
    )
    collect.collector.sampler = chosen
    return chosen


def _env_cost(manager: BaseEnvManager) -> float:
    space = manager.action_space
    space.seed(0)

    def step() -> None:
        manager.step(np.stack([np.asarray(space.sample()) for _ in range(manager.env_num)]))

    return _seconds(step) / manager.env_num


def _act_cost(policy: Policy, obs: Any, rows: int) -> float:
    seen, mode = tree_index(obs, np.zeros(rows, np.int64)), policy.collect_mode
    mode.reset()
    setting = mode.get_setting(0)
    with torch.no_grad():
        return _seconds(lambda: mode.forward(seen, **setting))


def _seconds(call: Callable[[], Any]) -> float:
    """Median seconds of a call, over as many as fit."""
    call()
    times: list[float] = []
    end = time.perf_counter() + MEASURE_S
    while not times or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
