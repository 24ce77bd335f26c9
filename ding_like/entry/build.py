"""From a config to components; the only place that sees the classes of every room."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from ding_like.config import (
    CfgDict,
    ConfigError,
    apply_sets,
    deep_merge_defaults,
    drop_obsolete,
    fill_aliases,
    get_path,
    join_config,
    merge,
    read_config,
    resolve_aliases,
)
from ding_like.distributed.actors import FreeCollector
from ding_like.distributed.evaluation import EvaluationTask, EvaluatorProcess
from ding_like.distributed.group import WorkerGroup
from ding_like.entry.checks import check_hooks, check_spaces, form_mistakes, nullable_keys, value_mistakes
from ding_like.entry.env_managers import eval_manager
from ding_like.entry.sampling import actors_are_free, calibrate, choose_sampler, make_collect_envs, worker_policy
from ding_like.envs import ENV_CONFIG
from ding_like.envs.make import env_builder, task_sections
from ding_like.envs.tasks import Tasks
from ding_like.model.build import fitting_defaults
from ding_like.policy import Policy
from ding_like.utils import (
    BUFFER_REGISTRY,
    ENV_MANAGER_REGISTRY,
    ENV_REGISTRY,
    POLICY_REGISTRY,
    import_modules,
)
from ding_like.utils.log import get_logger
from ding_like.utils.seed import rng_state, set_rng_state
from ding_like.worker import Evaluator, Learner, NoCollector, Replay, SampleCollector

TOP_CONFIG: dict = dict(
    exp_name="experiment",  # folder of the run
    seed=None,  # the run's seed where neither -s nor an argument gives one; total_config.yaml holds the one used
    resume=dict(
        enabled=True,  # write resume points, from which --resume goes on
        every=20.0,  # seconds between them, at least; 0 writes one a round of the loop
        share=0.01,  # largest share of the time for those between start and end; they come less often instead
    ),
    torch_threads=1,  # threads of torch's kernels; small networks are fastest with one
    env_manager=dict(
        type="base",  # base steps the env columns in this process
    ),
    policy=dict(
        type=None,  # the algorithm's registered name
        import_names=[],  # modules that register policies, hooks and model wrappers of your own
    ),
    replay_buffer=dict(
        type=None,  # the store's registered name; None takes the policy's own (replay, or rollout where on-policy)
    ),
)


@dataclass
class Components:
    """What a run is made of."""

    cfg: CfgDict
    seed: int
    policy: Policy
    collector: SampleCollector
    evaluator: Evaluator
    store: Replay
    managers: tuple[Any, Any]
    mode: str = "serial"
    lag: int = 0  # rounds of learning that the rows of a block are behind

    def close(self) -> None:
        """Close the envs, all of them; the first error of that is raised at the end."""
        failed: list[Exception] = []
        for manager in self.managers:
            try:
                manager.close()
            except Exception as err:  # of any env
                failed.append(err)
        if failed:
            raise failed[0]

    def close_after(self, error: BaseException) -> None:
        """Close the envs of a run that this error ends; what closing raises becomes a note of it."""
        try:
            self.close()
        except Exception as err:  # of any env
            error.add_note(f"Closing the envs failed too: {type(err).__name__}: {err}")


def full_config(
    input_cfg: Any,
    sets: tuple[str, ...] | list[str] = (),
    exp_name: str | None = None,
    own_model: bool = False,
) -> CfgDict:
    """The complete config of a run: class defaults, then the file, then `sets` (`policy.learn.batch_size=64`).

    Args:
        input_cfg: anything `read_config` takes.
        exp_name: replaces the config's.
        own_model: the network comes as an object, so `policy.model` is not checked.

    Raises ConfigError with a line for every wrong key or value; UnknownNameError for an unknown policy, model, manager
    or store.
    """
    if isinstance(sets, str):
        raise ConfigError(f"sets: got the string {sets!r}, wanted a list of them: [{sets!r}]")
    user = apply_sets(join_config(*read_config(input_cfg)), sets)
    if exp_name is not None:
        user["exp_name"] = os.fspath(exp_name)
    told = list(form_mistakes(user, TOP_CONFIG))
    if told:
        raise ConfigError("\n".join(told))
    policy_cls = policy_class(user)
    _choose_store(user, policy_cls)
    defaults = config_defaults(user, policy_cls)
    mistakes: list[str] = []
    user = drop_obsolete(user, defaults, mistakes)
    user = resolve_aliases(user, defaults, mistakes)
    if user.policy.type.endswith("_command"):
        user.policy.type = user.policy.type.removesuffix("_command")
    _take_network_defaults(user, defaults)
    owners = _owners(user, policy_cls)
    merged = merge(
        defaults,
        user,
        lenient=[path for path, cls in owners.items() if not _ours(cls)],
        firm=[path for path, cls in owners.items() if _ours(cls)],
        elsewhere=_elsewhere,
        rules=lambda cfg: mistakes + value_mistakes(cfg, defaults, policy_cls, own_model),
        nullable=nullable_keys(policy_cls),
    )
    return fill_aliases(merged)


def _take_network_defaults(user: CfgDict, defaults: CfgDict) -> None:
    """Move the policy's arguments of its network, as far as the network takes them, into a config that lacks them: the
    section is of free form, as only the constructor knows its keys.
    """
    section = user.policy.get("model", {})
    if isinstance(section, dict) and "model" in defaults.policy:
        own = fitting_defaults(section, defaults.policy.model)
        user.policy["model"], defaults.policy["model"] = deep_merge_defaults(own, section), CfgDict()


def _choose_store(user: CfgDict, policy_cls: type) -> None:
    """Write the store of the policy into a config that names none.

    Raises ConfigError for one of our stores that the policy cannot train from.
    """
    served = getattr(policy_cls, "stores", Policy.stores)
    served = (served,) if isinstance(served, str) else served
    on_policy = bool(getattr(BUFFER_REGISTRY.get(served[0]), "on_policy", False))
    asked = get_path(user, "policy.on_policy", None)
    if isinstance(asked, bool) and asked != on_policy:
        raise ConfigError(
            f"policy.on_policy: got {asked}, but policy '{user.policy.type}' is {'on' if on_policy else 'off'}-policy; "
            "remove the key"
        )
    section = user.setdefault("replay_buffer", CfgDict())
    name = section.get("type")
    if name is None:
        section["type"] = served[0]
        return
    store = BUFFER_REGISTRY.get(name)
    if _ours(store) and store not in [BUFFER_REGISTRY.get(one) for one in served]:
        raise ConfigError(
            f"replay_buffer.type: got '{name}', wanted {' or '.join(repr(one) for one in served)}, which policy "
            f"'{user.policy.type}' trains from; leave the key out to take it"
        )


def _owners(user: CfgDict, policy_cls: type) -> dict[str, Any]:
    """Section -> the class that reads it, where that may be a user's or lies below one that may."""
    owners = {
        "policy": policy_cls,
        "policy.learn.learner": Learner,
        "policy.collect.collector": SampleCollector,
        "policy.eval.evaluator": Evaluator,
        "policy.other.replay_buffer": BUFFER_REGISTRY.get(_type_of(user, "replay_buffer")),
        "env.manager": ENV_MANAGER_REGISTRY.get(_type_of(user, "env_manager")),
    }
    env_type = get_path(user, "env.type")
    if isinstance(env_type, str) and env_type in ENV_REGISTRY:
        owners["env"] = ENV_REGISTRY.get(env_type)
    return owners


def _type_of(user: Any, section: str) -> str:
    return (user.get(section) or {}).get("type") or TOP_CONFIG[section]["type"]


def choose_seed(cfg: CfgDict, seed: int | None) -> int:
    """The seed of a run, written into `cfg`: the argument, or with None the config's own, or 0."""
    chosen = int(cfg.seed or 0) if seed is None else seed
    if cfg.seed not in (None, chosen):
        get_logger().info(
            f"seed: the run takes {chosen}, which it was called with; the config's {cfg.seed} is not used"
        )
    cfg.seed = chosen
    return chosen


def check_names(cfg: CfgDict) -> None:
    """Look up what a run looks up on its way: hooks, the env and, where Gymnasium makes it, its spaces and wrappers;
    then the policy is made too.

    Raises UnknownNameError with suggestions, ConfigError where spaces, network and policy do not fit, EnvError.
    """
    check_hooks(cfg)
    sections = task_sections(cfg.env) or [cfg.env]
    for section in sections:
        env_builder(section)
    if any(section.type in ENV_REGISTRY for section in sections):
        return
    here = CfgDict({**cfg, "policy": CfgDict({**cfg.policy, "cuda": False})})  # the GPU may be on another machine
    manager = eval_manager(cfg, num=len(sections))
    try:
        build_policy(here, manager, seed=0)
    finally:
        manager.close()


def policy_class(user: Any) -> type[Policy]:
    """The class of `policy.type`; imports what `import_names` of policy and env name.

    Raises ConfigError when the config names no policy.
    """
    section = user.get("policy") or {}
    name = section.get("type")
    if not isinstance(name, str):
        raise ConfigError(f"policy.type is {name!r}; wanted the name of a policy, e.g. 'dqn' (in create_config)")
    env = user.get("env") or {}
    import_modules(env.get("import_names") or [])
    return POLICY_REGISTRY.get(name.removesuffix("_command"), section.get("import_names") or [])


def config_defaults(user: Any, policy_cls: type[Policy]) -> CfgDict:
    """The defaults of every class that this config uses, in one tree."""
    manager_type, store_type = _type_of(user, "env_manager"), _type_of(user, "replay_buffer")
    env_type = (user.get("env") or {}).get("type")
    env_own: dict = {}
    if isinstance(env_type, str) and env_type in ENV_REGISTRY:
        env_own = getattr(ENV_REGISTRY.get(env_type), "config", {})
    policy = deep_merge_defaults(
        policy_cls.default_config() if hasattr(policy_cls, "default_config") else {},
        {
            "learn": {"learner": Learner.config},
            "collect": {"collector": SampleCollector.config},
            "eval": {"evaluator": Evaluator.config},
            "other": {"replay_buffer": BUFFER_REGISTRY.get(store_type).config},
        },
    )
    return deep_merge_defaults(
        TOP_CONFIG,
        {"env": deep_merge_defaults(ENV_CONFIG, {"manager": ENV_MANAGER_REGISTRY.get(manager_type).config}, env_own)},
        {"policy": policy},
    )


def build(
    cfg: CfgDict, seed: int, env_setting: Any = None, model: nn.Module | None = None, mode: str = "serial"
) -> Components:
    """Envs, policy, collector, evaluator and store of a full config.

    Args:
        mode: of the run: serial, parallel or async. The sampler that follows is written into `cfg`.

    Raises ConfigError or TypeError where spaces and policy do not fit, EnvError where an env does not start.
    """
    check_hooks(cfg)
    made: list[Any] = []
    try:
        aside = cfg.policy.eval.evaluator.where == "process"
        if choose_sampler(cfg, mode) == "auto":
            calibrate(cfg, lambda envs, cpu: _trial_policy(cfg, envs, model, cpu), env_setting)
        collect_envs = make_collect_envs(cfg, seed, env_setting, beside=mode == "async")
        made.append(collect_envs)
        if not aside:
            made.insert(0, eval_manager(cfg, env_setting))
        policy = build_policy(cfg, collect_envs, seed, model)
        if isinstance(collect_envs, WorkerGroup):
            shapes = check_spaces(cfg, type(policy), collect_envs)
            make = partial(
                worker_policy, type(policy), cfg.policy, None if model is None else policy.get_model(), shapes
            )
            collect_envs.serve(policy, make)
        offline = getattr(BUFFER_REGISTRY.get(cfg.replay_buffer.type), "offline", False)
        free = actors_are_free(cfg, policy, mode)
        collector = (NoCollector if offline else FreeCollector if free else SampleCollector)(
            cfg.policy.collect, collect_envs, policy.collect_mode, seed, Tasks.of(cfg.env).names
        )
        if aside:  # its envs close with it
            made.insert(0, _evaluator_process(cfg, policy, seed, env_setting, model))
        evaluator = made[0] if aside else build_evaluator(cfg, made[0], policy, seed)
        store = BUFFER_REGISTRY.build(cfg.replay_buffer.type, cfg.policy.other.replay_buffer, seed)
        if offline:
            store.attach(policy.collect_mode, policy.interface)
    except BaseException:
        for manager in made:
            manager.close()
        raise
    lag = int(cfg.policy.collect.collector.lag) if mode == "async" and not free else 0
    return Components(cfg, seed, policy, collector, evaluator, store, (collect_envs, made[0]), mode, lag)


def build_policy(
    cfg: CfgDict, manager: Any, seed: int, model: nn.Module | None = None, fields: list[str] | None = None
) -> Policy:
    """The policy for a manager's spaces. Raises ConfigError naming an action space that it does not serve."""
    cls = policy_class(cfg)
    shapes = {**check_spaces(cfg, cls, manager), "env_num": manager.env_num}
    return cls(cfg.policy, model, fields, seed=seed, shapes=shapes)


def _trial_policy(cfg: CfgDict, manager: Any, model: nn.Module | None, cpu: bool) -> Policy:
    """A policy that only collects, to measure; the global generators stay as they are."""
    state = rng_state()
    try:
        trial = CfgDict({**cfg, "policy": CfgDict({**cfg.policy, "cuda": cfg.policy.cuda and not cpu})})
        return build_policy(trial, manager, 0, deepcopy(model), ["collect"])
    finally:
        set_rng_state(state)


def build_evaluator(cfg: CfgDict, manager: Any, policy: Policy, seed: int) -> Evaluator:
    """The evaluator over a manager of its own."""
    return Evaluator(cfg.policy.eval.evaluator, manager, policy.eval_mode, seed, Tasks.of(cfg.env))


def evaluation(
    cfg: CfgDict, seed: int, env_setting: Any = None, model: nn.Module | None = None
) -> tuple[Any, Policy, Evaluator]:
    """Env manager, policy and evaluator to evaluate weights with; the caller closes the manager."""
    manager = eval_manager(cfg, env_setting)
    try:
        policy = build_policy(cfg, manager, seed, model, ["eval"])
        return manager, policy, build_evaluator(cfg, manager, policy, seed)
    except BaseException:
        manager.close()
        raise


def _evaluator_process(
    cfg: CfgDict, policy: Policy, seed: int, env_setting: Any, model: nn.Module | None
) -> EvaluatorProcess:
    task = EvaluationTask(partial(evaluation, cfg, seed, env_setting, model), seed, int(cfg.torch_threads))
    return EvaluatorProcess(cfg.policy.eval.evaluator, policy, task)


def _ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "ding_like"


def _elsewhere(path: str) -> str | None:
    """A hint for an unknown policy key that another policy has."""
    if not path.startswith("policy."):
        return None
    inner = path.removeprefix("policy.")
    for name in POLICY_REGISTRY.query():
        cls = POLICY_REGISTRY.get(name)
        if _ours(cls) and get_path(cls.default_config(), inner, None) is not None:
            return f"it is a key of policy '{name}'"
    return None
