"""What a full config must hold beyond known keys and right types, and what a run would look up on its way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from gymnasium import spaces

from ding_like.config import CfgDict, ConfigError, get_path
from ding_like.config.checks import (
    Check,
    at_least,
    below_one,
    fraction,
    mistakes,
    not_negative,
    number,
    one_of,
    optional,
    positive,
    positive_fraction,
)
from ding_like.envs.spaces import action_spec, describe_space, model_shapes
from ding_like.envs.tasks import task_mistakes
from ding_like.model.build import argument_mistakes, network_of, previous_fields, recurs
from ding_like.policy import Policy
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.rl_utils.previous import FIELDS, own_obs, shows_previous
from ding_like.utils import BUFFER_REGISTRY, ENV_MANAGER_REGISTRY, HOOK_REGISTRY, import_modules, suggest
from ding_like.worker.learner.hooks import POSITIONS

# Of every class but policies and models, which hold theirs in `config_checks`.
CHECKS: dict[str, Check] = {
    "seed": optional(at_least(0)),
    "torch_threads": at_least(1),
    "resume.every": not_negative,
    "resume.share": positive_fraction,
    "env.max_episode_steps": optional(at_least(1)),
    "env.collector_env_num": at_least(1),
    "env.evaluator_env_num": at_least(1),
    "env.n_evaluator_episode": at_least(1),
    "env.stop_value": optional(number),
    "env.score": optional(one_of("capped_normalised")),
    "policy.learn.learner.hook.log_show_after_iter": at_least(1),
    "policy.learn.learner.hook.save_ckpt_after_iter": at_least(1),
    "policy.collect.collector.sampler": one_of("auto", "serial", "local", "server", "alternating"),
    "policy.collect.collector.num_workers": optional(at_least(1)),
    "policy.collect.collector.on_worker_death": one_of("raise", "restart", "shrink"),
    "policy.collect.collector.step_timeout": optional(positive),
    "policy.collect.collector.max_restarts": at_least(0),
    "policy.collect.collector.lag": one_of(0, 1),
    "policy.collect.collector.barrier": one_of(None, True, False),
    "policy.collect.collector.slots": at_least(1),
    "policy.eval.evaluator.eval_freq": at_least(1),
    "policy.eval.evaluator.n_episode": optional(at_least(1)),
    "policy.eval.evaluator.stop_value": optional(number),
    "policy.eval.evaluator.where": one_of("here", "process"),
    "policy.eval.evaluator.timeout": optional(positive),
    "policy.other.replay_buffer.replay_buffer_size": at_least(1),
    "policy.other.replay_buffer.frame_stack": optional(at_least(2)),
    "policy.other.replay_buffer.alpha": fraction,
    "policy.other.replay_buffer.alpha_end": optional(fraction),
    "policy.other.replay_buffer.beta": fraction,
    "policy.other.replay_buffer.anneal_step": at_least(1),
    "policy.other.replay_buffer.priority_eps": not_negative,
    "policy.other.replay_buffer.replay_share": below_one,
}


ACTION_KINDS = {
    "Discrete": "discrete",
    "MultiDiscrete": "multi_discrete",
    "MultiBinary": "multi_discrete",
    "Box": "continuous",
}
_EXAMPLES = {"env": "CartPole-v1", "env_manager": "base", "policy": "dqn", "replay_buffer": "replay"}


def form_mistakes(user: CfgDict, top: dict) -> Iterator[str]:
    """A line for everything of a wrong form that is read before classes, and with them defaults, are known."""
    for name in ("env", *(key for key, value in top.items() if isinstance(value, dict))):
        section = user.get(name)
        if section is not None and not isinstance(section, dict):
            wanted = f", such as dict(type='{section}')" if isinstance(section, str) else ""
            yield f"{name}: got {section!r}, wanted a section{wanted}"
    for path in (
        "env.type",
        "env.env_id",
        "env_manager.type",
        "policy.type",
        "policy.model.type",
        "replay_buffer.type",
    ):
        value = get_path(user, path, None)
        if value is not None and not isinstance(value, str):
            yield f"{path}: got {value!r}, wanted a name, such as {_EXAMPLES[path.split('.')[0]]!r}"
    for path in ("env.import_names", "policy.import_names", "policy.model.import_names"):
        names = get_path(user, path, None)
        if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)):
            wanted = repr([names] if isinstance(names, str) else ["my_module"])
            yield f"{path}: got {names!r}, wanted a list of module names, such as {wanted}"
    exp_name = user.get("exp_name", "")
    if isinstance(exp_name, str) and "\0" in exp_name:
        yield f"exp_name: got {exp_name!r}, wanted the path of a folder; it holds a NUL character, which no path may"


def checks_of(policy_cls: type) -> dict[str, Check | None]:
    """The checks of a policy's keys, by path below `policy`: those of its parents with its own in their place."""
    found: dict[str, Check | None] = {}
    for cls in reversed(policy_cls.__mro__):
        found |= vars(cls).get("config_checks", {})
    return found


def nullable_keys(policy_cls: type) -> list[str]:
    """Paths at which None is a value, whatever the default is."""
    return [f"policy.{key}" for key, check in checks_of(policy_cls).items() if check is not None and check.fine(None)]


def value_mistakes(cfg: CfgDict, defaults: CfgDict, policy_cls: type, own_model: bool) -> list[str]:
    """A line for every value outside its range, for numbers that do not fit each other, and for wrong arguments of the
    network (unless it is the user's own object).
    """
    told = [*mistakes(cfg, defaults, CHECKS), *mistakes(cfg.policy, defaults.policy, checks_of(policy_cls), "policy")]
    network = None if own_model else _network(cfg, policy_cls)
    if not told:
        ours = policy_cls.__module__.startswith("ding_like.")  # how another uses a network it tells itself, once built
        recurrent = recurs(network[1], network[2]) if network is not None and ours else None
        told += [*_store_mistakes(cfg, recurrent), *task_mistakes(cfg.env), *_native_mistakes(cfg)]
        if network is not None and recurrent is not None and hasattr(policy_cls, "network_mistakes"):
            told += policy_cls.network_mistakes(cfg.policy, recurrent, network[1])
    return told if network is None else told + argument_mistakes(*network)


def _store_mistakes(cfg: CfgDict, recurrent: bool | None) -> Iterator[str]:
    """A store smaller than a batch never trains; smaller than a collect, it drops samples unseen. A rollout is what one
    collect gives, so no minibatch is larger.
    """
    steps = get_path(cfg, "policy.collect.n_step", None)
    key = "policy.collect.n_sample" if steps is None else "policy.collect.n_step"
    store = BUFFER_REGISTRY.get(cfg.replay_buffer.type)
    if getattr(store, "on_policy", False):
        yield from _rollout_mistakes(cfg, key, recurrent)
    if cfg.policy.get("priority_IS_weight") and not cfg.policy.get("priority"):
        yield (
            "policy.priority_IS_weight: got True, wanted None or False where policy.priority is False: the weights "
            "correct for drawing by priority, and items are drawn uniformly"
        )
    path = "policy.other.replay_buffer.replay_buffer_size"
    size = get_path(cfg, path, None) if getattr(store, "holds_batches", True) else None
    given = [("policy.learn.batch_size", "a batch")]
    if steps is None or recurrent is False:  # else how many samples so many steps give is not known
        given.append((key, "what one collect gives"))
    for key, what in given:
        value = get_path(cfg, key, None)
        if isinstance(size, int) and isinstance(value, int) and size < value:
            yield f"{path}: got {size}, wanted at least {value}, as {key} says: the store must hold {what}"


def _rollout_mistakes(cfg: CfgDict, key: str, recurrent: bool | None) -> Iterator[str]:
    """What `key`, n_sample or n_step, gives in whole rows of all env columns must be whole segments, and a batch."""
    columns, steps = cfg.env.collector_env_num, get_path(cfg, "policy.collect.n_step", None)
    length = get_path(cfg, "policy.learn_unroll_len", 1) if recurrent else 1
    if steps is not None and recurrent is None:
        return
    rows = -(-(cfg.policy.collect.n_sample * length if steps is None else int(steps)) // columns)
    unit, what = (columns, "segments") if steps is None else (columns * length, "env steps")
    if length > 1 and get_path(cfg, key) % unit:
        yield (
            f"{key}: got {get_path(cfg, key)}, wanted a multiple of {unit}, so that the {what} of a rollout are "
            f"whole segments of policy.learn_unroll_len={length} steps in each of the env.collector_env_num={columns} "
            "columns"
        )
    size, batch_size = rows * columns // length, cfg.policy.learn.batch_size
    if batch_size > size:
        yield (
            f"policy.learn.batch_size: got {batch_size}, wanted at most {size}, what {key} gives in whole rows of all "
            "env columns: a minibatch is part of one rollout"
        )


def _native_mistakes(cfg: CfgDict) -> Iterator[str]:
    """The step before is shown by a wrapper around single envs, and tasks are single envs too."""
    manager = cfg.env_manager.type
    if not getattr(ENV_MANAGER_REGISTRY.get(manager), "native", False):
        return
    for name in previous_fields(cfg.policy.get("model", {})):
        yield (
            f"policy.model.use_{name}: got True, wanted False with env_manager.type='{manager}': "
            "natively batched envs do not show the step before; use env_manager.type='base'"
        )
    if cfg.env.tasks:
        yield (f"env_manager.type: got '{manager}', wanted 'base' with env.tasks: natively batched envs are of one env")


def _network(cfg: CfgDict, policy_cls: type) -> tuple[str, Any, dict[str, Any]] | None:
    """Name, class and arguments of the network; None where that is known only once the policy is built."""
    if not issubclass(policy_cls, Policy):
        return None
    unbuilt = object.__new__(policy_cls)  # `default_model` is a method, but at most asks for the config
    unbuilt._cfg = cfg.policy
    try:
        return network_of(cfg.policy.model, unbuilt.default_model)
    except (NotImplementedError, AttributeError):  # it asks for what a built policy has: building it will tell
        return None


def check_spaces(cfg: CfgDict, policy_cls: type, manager: Any) -> dict[str, Any]:
    """What follows from a manager's spaces: the model arguments `obs_shape`, `action_shape`, `action_space`, what
    the env itself gives and takes (`interface`), and of a Box how actions are scaled (`action_scale`).

    Raises ConfigError naming an action space that the policy does not serve.
    """
    space = type(manager.action_space).__name__
    served = getattr(policy_cls, "action_spaces", None)
    if served is not None and space not in served:
        raise ConfigError(
            f"policy '{cfg.policy.type}' serves {' and '.join(served)} actions; env '{_env_name(cfg, manager)}' "
            f"has {manager.action_space}. Choose another policy or another env."
        )
    kind = ACTION_KINDS.get(space)
    wanted = cfg.policy.get("action_space")
    if wanted is not None and wanted != kind:
        raise ConfigError(
            f"policy.action_space is '{wanted}'; env '{_env_name(cfg, manager)}' has {manager.action_space}, which is "
            f"'{kind}'. Leave the key out to derive it, or choose another env."
        )
    own = own_obs(manager.observation_space)
    obs_shape, action_shape = model_shapes(_without_mask(own, manager.action_space), manager.action_space)
    shapes: dict[str, Any] = {"obs_shape": obs_shape, "action_shape": action_shape, "action_space": kind}
    shapes["interface"] = {
        "obs": describe_space(own),
        "action": describe_space(manager.action_space, bounds=True),
        **_previous(cfg, manager),
    }
    if kind == "continuous":
        box = manager.action_space
        shapes["action_scale"] = ActionScale(box.low, box.high, box.dtype)
    return shapes


def _previous(cfg: CfgDict, manager: Any) -> dict[str, list[str]]:
    """`{'previous': fields}` where observations show the step before.

    Raises ConfigError where they show something else than the network is to see.
    """
    space = manager.observation_space
    shown = [name for name in FIELDS if name in space.keys()] if shows_previous(space) else []  # noqa: SIM118
    wanted = previous_fields(cfg.policy.get("model", {}))
    if shown != wanted:
        keys = [f"policy.model.use_{name}" for name in FIELDS if (name in shown) != (name in wanted)]
        raise ConfigError(
            f"{' and '.join(keys)}: the network is to see {wanted} of the step before and the env shows {shown}; set "
            "these keys to what it shows, or leave env.wrappers and env_setting without 'previous_step': then the run "
            "makes the env show what the network takes"
        )
    return {"previous": shown} if shown else {}


def _without_mask(space: Any, actions: Any) -> Any:
    """The observation space as the network sees it: without `action_mask`, which is applied to its logits.

    Raises ConfigError where the mask does not have one entry an action.
    """
    if not (isinstance(space, spaces.Dict) and "action_mask" in space.spaces):
        return space
    sizes = None if isinstance(actions, spaces.Box) else action_spec(actions)
    wanted = sum(sizes) if isinstance(sizes, list) else sizes
    found = space["action_mask"].shape
    if wanted is None or found != (wanted,):
        raise ConfigError(
            f"obs['action_mask'] has shape {found}; wanted {'none at all' if wanted is None else (wanted,)} for the "
            f"action space {actions}: one entry an action, 0 where it is forbidden. Rename the key if it is no mask."
        )
    rest = {k: s for k, s in space.spaces.items() if k != "action_mask"}
    if not rest:
        raise ConfigError("the observation holds nothing but action_mask; a policy needs something to see")
    return spaces.Dict(rest)


def _env_name(cfg: CfgDict, manager: Any) -> str:
    """The name of the env that runs, which need not be the config's (`env_setting`)."""
    return getattr(manager, "env_name", None) or cfg.env.type or cfg.env.env_id  # a user's manager may not tell


def check_hooks(cfg: CfgDict) -> None:
    """Look up the hooks of a config and their arguments.

    Raises ConfigError for an entry that is no hook or has an argument that it does not take (of our own hooks: out of
    range), UnknownNameError with suggestions.
    """
    for index, entry in enumerate(cfg.policy.learn.learner.hooks):
        path = f"policy.learn.learner.hooks[{index}]"
        if not isinstance(entry, dict) or "type" not in entry:
            raise ConfigError(f"{path}: got {entry!r}, wanted a dict with 'type', the hook's registered name")
        kwargs = {key: value for key, value in entry.items() if key not in ("type", "import_names")}
        try:
            import_modules(entry.get("import_names") or [])
        except (ImportError, TypeError) as err:
            raise (TypeError if isinstance(err, TypeError) else ImportError)(f"{path}: {err}") from err
        hook = HOOK_REGISTRY.get(entry["type"])
        takes = inspect.signature(hook)
        try:
            takes.bind(**kwargs)
        except TypeError as err:
            raise ConfigError(f"{path}: hook '{entry['type']}': {_misfit(takes, kwargs, err)}") from err
        if getattr(hook, "position", POSITIONS[0]) not in POSITIONS:
            raise ConfigError(
                f"{path}: hook '{entry['type']}' has position {hook.position!r}; wanted one of {POSITIONS}"
            )
        if hook.__module__.startswith("ding_like."):  # making one has no effect but its checks
            hook(**kwargs)
        if entry["type"] == "lr_schedule" and get_path(cfg, "policy.learn.lr_schedule.type", None) is not None:
            raise ConfigError(f"{path}: policy.learn.lr_schedule.type sets a learning rate too; leave one of them out")


def _misfit(takes: inspect.Signature, kwargs: dict[str, Any], err: TypeError) -> str:
    """Which arguments a hook does not take, with suggestions; else what Python says of them."""
    if not takes.parameters:
        return f"got the arguments {list(kwargs)}, wanted none"
    unknown = [key for key in kwargs if key not in takes.parameters]
    if not unknown:
        return f"{err}; it takes {', '.join(takes.parameters)}"
    told = [f"it has no argument {key!r}.{suggest(key, takes.parameters)}" for key in unknown]
    return f"{' '.join(told)} It takes {', '.join(takes.parameters)}."
