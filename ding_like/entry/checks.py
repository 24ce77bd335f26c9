"""What a full config must hold beyond known keys and right types, and what a run would look up on its way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ding_like.config import CfgDict, ConfigError, get_path
from ding_like.config.checks import Check, at_least, mistakes, number, optional
from ding_like.envs.spaces import model_shapes
from ding_like.model.build import model_mistakes
from ding_like.policy import Policy
from ding_like.utils import HOOK_REGISTRY

# Of every class but policies and models, which hold theirs in `config_checks`.
CHECKS: dict[str, Check] = {
    "seed": optional(at_least(0)),
    "torch_threads": at_least(1),
    "env.max_episode_steps": optional(at_least(1)),
    "env.collector_env_num": at_least(1),
    "env.evaluator_env_num": at_least(1),
    "env.n_evaluator_episode": at_least(1),
    "env.stop_value": optional(number),
    "policy.learn.learner.hook.log_show_after_iter": at_least(1),
    "policy.learn.learner.hook.save_ckpt_after_iter": at_least(1),
    "policy.eval.evaluator.eval_freq": at_least(1),
    "policy.eval.evaluator.n_episode": optional(at_least(1)),
    "policy.eval.evaluator.stop_value": optional(number),
    "policy.other.replay_buffer.replay_buffer_size": at_least(1),
}


def value_mistakes(cfg: CfgDict, defaults: CfgDict, policy_cls: type, own_model: bool) -> list[str]:
    """A line for every value outside its range, for numbers that do not fit each other, and for wrong arguments of the
    network (unless it is the user's own object).
    """
    policy_checks: dict[str, Check | None] = {}
    for cls in reversed(policy_cls.__mro__):
        policy_checks |= vars(cls).get("config_checks", {})
    told = [*mistakes(cfg, defaults, CHECKS), *mistakes(cfg.policy, defaults.policy, policy_checks, "policy")]
    if not told:
        told += _store_mistakes(cfg)
    return told if own_model else told + _model_mistakes(cfg, policy_cls)


def _store_mistakes(cfg: CfgDict) -> Iterator[str]:
    """A store smaller than a batch never trains; smaller than a collect, it drops samples unseen."""
    path = "policy.other.replay_buffer.replay_buffer_size"
    size = get_path(cfg, path, None)
    for key, what in (("policy.learn.batch_size", "a batch"), ("policy.collect.n_sample", "what one collect gives")):
        value = get_path(cfg, key, None)
        if isinstance(size, int) and isinstance(value, int) and size < value:
            yield f"{path}: got {size}, wanted at least {value}, as {key} says: the store must hold {what}"


def _model_mistakes(cfg: CfgDict, policy_cls: type) -> list[str]:
    if not issubclass(policy_cls, Policy):
        return []
    unbuilt = object.__new__(policy_cls)  # `default_model` is a method, but at most asks for the config
    unbuilt._cfg = cfg.policy
    try:
        return model_mistakes(cfg.policy.model, unbuilt.default_model)
    except (NotImplementedError, AttributeError):  # known only once the policy is built
        return []


def check_spaces(cfg: CfgDict, policy_cls: type, manager: Any) -> dict[str, Any]:
    """The model arguments that follow from a manager's spaces: `obs_shape`, `action_shape`.

    Raises ConfigError naming an action space that the policy does not serve.
    """
    space = type(manager.action_space).__name__
    served = getattr(policy_cls, "action_spaces", None)
    if served is not None and space not in served:
        raise ConfigError(
            f"policy '{cfg.policy.type}' serves {' and '.join(served)} actions; env '{cfg.env.type or cfg.env.env_id}' "
            f"has {manager.action_space}. Choose another policy or another env."
        )
    obs_shape, action_shape = model_shapes(manager.observation_space, manager.action_space)
    return {"obs_shape": obs_shape, "action_shape": action_shape}


def check_hooks(cfg: CfgDict) -> None:
    """Look up the hooks of the user's own and their arguments.

    Raises ConfigError for an entry that is no hook, UnknownNameError with suggestions.
    """
    for index, entry in enumerate(cfg.policy.learn.learner.hooks):
        path = f"policy.learn.learner.hooks[{index}]"
        if not isinstance(entry, dict) or "type" not in entry:
            raise ConfigError(f"{path}: got {entry!r}, wanted a dict with 'type', the hook's registered name")
        kwargs = {key: value for key, value in entry.items() if key not in ("type", "import_names")}
        hook = HOOK_REGISTRY.get(entry["type"], entry.get("import_names") or [])
        try:
            inspect.signature(hook).bind(**kwargs)
        except TypeError as err:
            raise ConfigError(f"{path}: hook '{entry['type']}' with arguments {kwargs}: {err}") from err
