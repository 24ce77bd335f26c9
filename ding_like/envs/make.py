"""From the `env` section of a config to envs, wrapped and ready for a manager."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium

from ding_like.config.cfg_dict import CfgDict
from ding_like.config.merge import deep_merge_defaults
from ding_like.envs.adapter import wrap_env
from ding_like.envs.env_wrappers import apply_wrappers, wrapper_type
from ding_like.utils import ENV_REGISTRY, UnknownNameError, import_modules, suggest

ENV_CONFIG: dict[str, Any] = dict(
    type=None,  # a registered env, or any Gymnasium id: 'CartPole-v1', 'ALE/Pong-v5', 'module:Env-v0'
    import_names=[],  # modules imported first, for the envs and wrappers they register
    env_id=None,  # the Gymnasium id where `type` is missing or a family name such as 'gym' or 'atari'
    env_kwargs={},  # handed to the env's constructor unchecked
    max_episode_steps=None,  # time limit in steps of the bare env, in place of the id's own; None keeps that
    wrappers=[],  # innermost first: names, or dict(type=name, train_only=bool, and the wrapper's arguments)
    collector_env_num=8,  # env columns that collect
    evaluator_env_num=8,  # env columns that evaluate
    n_evaluator_episode=8,  # episodes an evaluation plays, of each task
    stop_value=None,  # training stops when an evaluation's mean return reaches it; None: at the step limit
    tasks=[],  # several tasks in one run: dicts of what sets each apart; env column b runs task b % len(tasks)
    score=None,  # what eval_value is of several tasks: None the mean return, capped_normalised the mean of their scores
)

# DI-engine names the family in `type` and the id in `env_id`.
FAMILIES = (
    *("gym", "gymnasium", "classic_control", "box2d", "mujoco", "atari", "minatar", "minigrid", "cartpole"),
    *("acrobot", "mountain_car", "pendulum", "lunarlander", "bipedalwalker"),
)
# Id prefix, module that registers it, what pip installs: an extra of setup.py where there is one.
PROVIDERS = (
    ("ALE/", "ale_py", "ding_like[atari]"),
    ("MinAtar/", "minatar.gym", "ding_like[minatar]"),
    ("MiniGrid-", "minigrid", "ding_like[minigrid]"),
    ("BabyAI-", "minigrid", "ding_like[minigrid]"),
    ("popgym-", "popgym", "ding_like[popgym]"),
)


def make_env(
    env_cfg: Mapping[str, Any], role: str = "collect", builder: Callable[[Any], Any] | None = None
) -> gymnasium.Env:
    """One wrapped env.

    Args:
        env_cfg: the `env` section (see `ENV_CONFIG`; every key but `type` or `env_id` may be missing).
        role: 'collect' or 'eval'; wrappers marked `train_only` are left out of the latter.
        builder: `builder(env_cfg) -> env` in place of `type` and `env_id`.

    Raises UnknownNameError with suggestions, ImportError naming what to install.
    """
    if role not in ("collect", "eval"):
        raise ValueError(f"role is {role!r}; wanted 'collect' or 'eval'")
    import_modules(env_cfg.get("import_names") or ())
    env = wrap_env((builder or env_builder(env_cfg))(env_cfg))
    limit = env_cfg.get("max_episode_steps")
    if limit is not None:
        env = gymnasium.wrappers.TimeLimit(env, limit)
    return apply_wrappers(env, env_cfg.get("wrappers") or (), role)


def make_env_fns(
    env_cfg: Mapping[str, Any], num: int, role: str = "collect", env_setting: Any = None
) -> list[Callable[[], gymnasium.Env]]:
    """`num` factories of envs, one a column, that cloudpickle can send to a worker.

    Args:
        env_setting: brings the envs instead of the config: an env class, a factory `fn()` or `fn(cfg)`, an
            env instance (each column gets a deep copy), or DI-engine's triple `(env_fn, collector_cfgs,
            evaluator_cfgs)`.

    Raises UnknownNameError here, not in a worker, when no such env exists.
    """
    if num < 1:
        raise ValueError(f"the number of env columns is {num}; wanted at least 1")
    import_modules(env_cfg.get("import_names") or ())
    sections = task_sections(env_cfg)
    if sections:
        if env_setting is not None:
            raise ValueError("env_setting brings the envs, and env.tasks names others; give one of them")
        parts = [make_env_fns(section, -(-num // len(sections)), role) for section in sections]
        return [parts[b % len(parts)][b // len(parts)] for b in range(num)]
    cfgs: list = [env_cfg] * num
    if env_setting is None:
        env_setting = registered(env_cfg)
    if env_setting is None:
        builder = env_builder(env_cfg)
        return [_factory(env_cfg, role, builder) for _ in range(num)]
    if isinstance(env_setting, (tuple, list)):
        env_setting, cfgs = _unpack_setting(env_setting, num, role)
    elif hasattr(env_setting, "create_collector_env_cfg"):
        cfgs = _column_cfgs(env_setting, env_cfg, num, role)
    fns: list[Callable[[], gymnasium.Env]] = []
    for cfg in cfgs:
        source = env_setting if callable(env_setting) else copy.deepcopy(env_setting)
        fns.append(_factory(env_cfg, role, partial(_build_with, source, cfg=copy.deepcopy(cfg))))
    return fns


def task_sections(env_cfg: Mapping[str, Any]) -> list[CfgDict]:
    """The `env` section of each of `env.tasks`: the task's own keys over those of `env`; empty where there is none."""
    shared = {key: value for key, value in env_cfg.items() if key != "tasks"}
    sections = []
    for task in env_cfg.get("tasks") or ():
        kwargs = {**(shared.get("env_kwargs") or {}), **(task.get("env_kwargs") or {})}
        own = getattr(registered({**shared, **task}), "config", {})
        sections.append(deep_merge_defaults(own, shared, task, {"env_kwargs": kwargs}))
    return sections


def _factory(env_cfg: Mapping[str, Any], role: str, builder: partial) -> Callable[[], gymnasium.Env]:
    fn = partial(make_env, copy.deepcopy(env_cfg), role, builder)
    what = builder.args[0]  # messages name the env before there is one
    name = what if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)
    fn.__name__ = name  # type: ignore[attr-defined]
    return fn


class DingEnvWrapper(gymnasium.Wrapper):
    """DI-engine's form of `make_env`: an env instance, or `cfg.env_id`, in the wrappers of `cfg`; may be subclassed.

    `seed_api` and `is_gymnasium` are found out from the env itself and have no effect.
    """

    def __init__(
        self,
        env: Any = None,
        cfg: Mapping[str, Any] | None = None,
        seed_api: bool = True,
        caller: str = "collector",
        is_gymnasium: bool = True,
    ) -> None:
        if env is None and cfg is None:
            raise ValueError("DingEnvWrapper got neither an env nor a cfg; wanted one of them")
        builder = None if env is None else partial(_build_with, env)
        super().__init__(make_env(cfg or {}, "collect" if caller == "collector" else "eval", builder))


def env_builder(env_cfg: Mapping[str, Any]) -> partial:
    """What makes the bare env of a config: a registered class, or the Gymnasium id.

    Raises ValueError when none is named, UnknownNameError when none is found, with the nearest names.
    """
    own = registered(env_cfg)
    if own is not None:
        return partial(_construct, own)
    kind, env_id = env_cfg.get("type"), env_cfg.get("env_id")
    if kind is None or kind in FAMILIES:
        if env_id is None:
            raise ValueError(f"env.type is {kind!r} and env.env_id is None; name a registered env or a Gymnasium id")
        kind = env_id
    elif env_id is not None and env_id != kind:
        find_spec(kind)
        raise ValueError(f"env.type is '{kind}' but env.env_id is '{env_id}'; give one of them")
    find_spec(kind)
    return partial(_make_gymnasium, kind)


def registered(env_cfg: Mapping[str, Any]) -> Any:
    """The env class registered under `env.type`, or None."""
    name = env_cfg.get("type")
    return ENV_REGISTRY.get(name) if name is not None and name in ENV_REGISTRY else None


def find_spec(env_id: str) -> Any:
    """The Gymnasium spec of an id; the package its prefix belongs to is imported first."""
    for prefix, module, requirement in PROVIDERS:
        if env_id.startswith(prefix) or (module == "ale_py" and "NoFrameskip" in env_id):
            _import_provider(env_id, module, requirement)
    if ":" in env_id:
        module, env_id = env_id.split(":", 1)
        import_modules([module])
    try:
        return gymnasium.spec(env_id)
    except gymnasium.error.Error as err:
        known = [*ENV_REGISTRY.query(), *gymnasium.registry]
        raise UnknownNameError(
            f"no env is called '{env_id}', neither registered here nor in Gymnasium.{suggest(env_id, known)} "
            f"An env of your own needs its module in env.import_names. ({err})"
        ) from err


def _import_provider(env_id: str, module: str, requirement: str) -> None:
    muted = logging.root.manager.disable
    logging.disable(logging.WARNING)  # minatar warns, at import, of packages that only its drawing needs
    try:
        package = importlib.import_module(module)
    except ModuleNotFoundError as err:
        raise ImportError(f"env '{env_id}' needs the package '{module}': pip install '{requirement}'") from err
    finally:
        logging.disable(muted)
    if module == "minatar.gym" and "MinAtar/Breakout-v0" not in gymnasium.registry:
        package.register_envs()


def _make_gymnasium(env_id: str, env_cfg: Mapping[str, Any]) -> gymnasium.Env:
    kwargs = dict(env_cfg.get("env_kwargs") or {})
    spec = find_spec(env_id)
    if spec.id.startswith("ALE/") and "atari" in [wrapper_type(entry) for entry in env_cfg.get("wrappers") or ()]:
        kwargs.setdefault("frameskip", 1)  # the wrapper skips frames itself
    # The managers reset before they step and check what comes back: Gymnasium's guards would do it again.
    changes: dict[str, Any] = {"order_enforce": False}
    if env_cfg.get("max_episode_steps") is not None:
        changes["max_episode_steps"] = None
    kwargs.setdefault("disable_env_checker", True)
    return gymnasium.make(dataclasses.replace(spec, **changes), **kwargs)


def _construct(factory: Callable, env_cfg: Any) -> Any:
    """`factory(cfg)` for DI-engine's shape or a parameter called cfg, else `factory(**env_kwargs)`."""
    kwargs = dict(env_cfg.get("env_kwargs") or {})
    params = list(inspect.signature(factory).parameters.values())
    by_name = bool(params) and params[0].name in ("cfg", "config", "env_cfg")
    required = [p.name for p in params if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    unnamed = not isinstance(factory, type) and len(required) == 1 and required[0] not in kwargs
    if hasattr(factory, "create_collector_env_cfg") or by_name or unnamed:
        return factory(CfgDict(copy.deepcopy(dict(env_cfg))))
    return factory(**kwargs)


def _build_with(source: Any, env_cfg: Any, cfg: Any = None) -> Any:
    """The env that `source` (class, factory or instance) stands for; `cfg` is its column's own config."""
    return _construct(source, env_cfg if cfg is None else cfg) if callable(source) else source


def _unpack_setting(setting: Any, num: int, role: str) -> tuple[Any, list]:
    if len(setting) != 3 or not callable(setting[0]):
        raise TypeError(
            f"env_setting is a {type(setting).__name__} of {len(setting)}; wanted (env_fn, collector_cfgs, "
            "evaluator_cfgs)"
        )
    cfgs = setting[1 if role == "collect" else 2]
    if not cfgs:
        raise ValueError(f"env_setting has no config for role '{role}'; wanted one for each of {num} columns")
    return setting[0], [cfgs[b % len(cfgs)] for b in range(num)]


def _column_cfgs(env_class: Any, env_cfg: Mapping[str, Any], num: int, role: str) -> list:
    key, split = ("collector_env_num", env_class.create_collector_env_cfg)
    if role == "eval":
        key, split = ("evaluator_env_num", env_class.create_evaluator_env_cfg)
    cfgs = split(CfgDict({**copy.deepcopy(dict(env_cfg)), key: num}))
    return [cfgs[b % len(cfgs)] for b in range(num)]
