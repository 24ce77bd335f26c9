"""Values that live in two places, and keys that mean something in DI-engine but nothing here."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ding_like.config.cfg_dict import CfgDict
from ding_like.config.paths import MISSING, ConfigError, dict_items, get_path, pop_path, set_path, walk
from ding_like.utils import ENV_REGISTRY
from ding_like.utils.log import warn_once

# (alias, source): the source holds the value; whoever reads the alias finds the same.
ALIASES = (
    ("policy.collect.env_num", "env.collector_env_num"),
    ("policy.eval.env_num", "env.evaluator_env_num"),
    ("policy.eval.evaluator.n_episode", "env.n_evaluator_episode"),
    ("policy.eval.evaluator.stop_value", "env.stop_value"),
    ("policy.collect.discount_factor", "policy.discount_factor"),
    ("policy.learn.discount_factor", "policy.discount_factor"),
    ("policy.collect.unroll_len", "policy.unroll_len"),
    ("policy.other.replay_buffer.priority", "policy.priority"),
    ("policy.other.replay_buffer.priority_IS_weight", "policy.priority_IS_weight"),
)
# (name in DI-engine, name here) of values that mean the same.
RENAMED = (
    ("policy.learn.grad_clip_value", "policy.learn.grad_clip_norm"),  # of its grad_clip_type 'clip_norm', the default
    ("policy.learn.grad_norm", "policy.learn.grad_clip_norm"),
    ("policy.other.replay_buffer.priority_power_factor", "policy.other.replay_buffer.alpha"),
    ("policy.other.replay_buffer.IS_weight_power_factor", "policy.other.replay_buffer.beta"),
    ("policy.other.replay_buffer.IS_weight_anneal_train_iter", "policy.other.replay_buffer.anneal_step"),
)


def resolve_aliases(user: Mapping[Any, Any], defaults: Mapping[Any, Any], mistakes: list[str] | None = None) -> CfgDict:
    """Return the user's config with every alias moved to its source, where the defaults have that source.

    Args:
        mistakes: takes the message instead of an error being raised; the source's value stays.

    Raises:
        ConfigError: both places are given and differ; names both.
    """
    told: list[str] = [] if mistakes is None else mistakes
    result = CfgDict(copy.deepcopy(dict(dict_items(user))))
    given_as: dict[str, str] = {}
    for alias, source in ALIASES:
        value = get_path(result, alias)
        if value is MISSING or get_path(defaults, source) is MISSING:
            continue
        other = get_path(result, source)
        pop_path(result, alias)
        if other is not MISSING and other != value:
            name = given_as.get(source, source)
            told.append(f"{alias} is {value!r} but {name} is {other!r}; they are one value, keep one")
            continue
        set_path(result, source, value)
        given_as.setdefault(source, alias if other is MISSING else source)
    _raise_unless(mistakes is not None, told)
    return result


def _raise_unless(collected: bool, told: list[str]) -> None:
    if told and not collected:
        raise ConfigError("\n".join(told))


def fill_aliases(cfg: Mapping[Any, Any]) -> CfgDict:
    """Return a full config with the value of every source written to its aliases, in sections that exist."""
    result = CfgDict(copy.deepcopy(dict(dict_items(cfg))))
    for alias, source in ALIASES:
        value = get_path(result, source)
        if value is not MISSING and isinstance(get_path(result, alias.rpartition(".")[0]), Mapping):
            set_path(result, alias, value)
    return result


def release_aliases(base: CfgDict, overrides: Iterable[Mapping[Any, Any]]) -> None:
    """Drop from `base`, in place, every place of a value that the overrides set in another of its places."""
    groups: dict[str, set[str]] = {}
    for alias, source in ALIASES:
        groups.setdefault(source, {source}).add(alias)
    for override in overrides:
        touched = {path for path, _ in walk(override)}
        for group in groups.values():
            if touched & group:
                for path in group:
                    pop_path(base, path)


class Obsolete(NamedTuple):
    """A key without a meaning here. Values outside `harmless` (None: any will do) are refused."""

    path: str
    says: str
    harmless: tuple[Any, ...] | None = None


_NO_READER = "nothing reads it here"
_SCREEN = "how often a line is printed is the progress line's own matter"
_REUSE = "items leave by age alone; how often one is used follows from update_per_collect and n_sample"
_FLAGS = "each transition knows whether its episode terminated or was truncated by a time limit"
_DDP = "a learner runs on one device here"
_IMPORTS = "name modules of your own in policy.import_names"
_SECTIONS = ("env_manager", "collector", "evaluator", "learner", "replay_buffer")
_SINGLE = "this policy trains on single transitions"
_MANAGER_KEYS = (
    *("episode_num", "max_retry", "retry_type", "retry_waiting_time", "reset_timeout", "reset_inplace", "step_timeout"),
    *("step_wait_timeout", "connect_timeout", "wait_num", "copy_on_get", "context"),
)
_ACT_SCALE = "continuous actions are always scaled: a policy's [-1, 1] is the box of the env"
_ROLLOUT = "an on-policy policy forgets what it has trained on; policy.collect.n_sample is the size of its rollout"
_PRIORITY = (
    *("policy.priority", "policy.priority_IS_weight"),
    *("policy.other.replay_buffer.priority", "policy.other.replay_buffer.priority_IS_weight"),
)
_NO_PRIORITY = "this policy gives no priorities, so it draws uniformly, or each item once"
_ADAM = "the optimiser's other numbers are those of torch"
_STORES = ("replay", "naive", "deque", "advanced")
# Left alone where a registered env, a user's own, may read them.
ENV_FLAGS = (
    Obsolete("env.norm_obs", "observations are normalised by policy.norm_obs.use_norm=True", (False, None)),
    Obsolete(
        "env.norm_reward",
        "rewards are scaled or clipped by 'reward_scale' or 'reward_clip' in env.wrappers",
        (False, None),
    ),
    Obsolete("env.frame_stack", "frames are stacked by env.wrappers=[dict(type='frame_stack', n=4)]", (0, 1, None)),
    Obsolete("env.is_train", "wrappers of training alone are marked train_only=True in env.wrappers"),
    Obsolete("env.use_act_scale", _ACT_SCALE, (True, None)),
    Obsolete("env.act_scale", _ACT_SCALE, (True, None)),
)
OBSOLETE = (
    Obsolete("env.replay_path", "a run records no video", (None,)),
    Obsolete("env.manager.shared_memory", "an env manager chooses by itself how observations travel"),
    Obsolete("env.manager.auto_reset", "the role of a manager says it"),
    *(Obsolete(f"env.manager.{key}", _NO_READER) for key in _MANAGER_KEYS),
    Obsolete("policy.on_policy", "the policy says it itself"),
    Obsolete("policy.command", _NO_READER),
    Obsolete("policy.load_path", "give --load-path, or the argument load_path"),
    Obsolete("policy.unroll_len", _SINGLE, (1,)),
    Obsolete("policy.collect.unroll_len", _SINGLE, (1,)),
    Obsolete("policy.multi_agent", "the env says how many agents it has", (False,)),
    *(Obsolete(path, _NO_PRIORITY, (False, None)) for path in _PRIORITY),
    Obsolete("policy.multi_gpu", _DDP, (False,)),
    Obsolete("policy.bp_update_sync", _DDP, (True, False)),
    Obsolete("policy.learn.multi_gpu", _DDP, (False,)),
    Obsolete("policy.learn.bp_update_sync", _DDP, (True, False)),
    Obsolete("policy.learn.ignore_done", f"{_FLAGS}, and only a termination stops a bootstrap", (False,)),
    Obsolete(
        "policy.learn.grad_clip_type",
        "gradients are clipped by their total norm; policy.learn.grad_clip_norm says where, None does not clip",
        ("clip_norm",),
    ),
    Obsolete(
        "policy.learn.lr_scheduler",
        "policy.learn.lr_schedule=dict(type='linear', end=0.0, decay=100000) lowers the rate over so many env steps",
        (None,),
    ),
    Obsolete("policy.transition_with_policy_data", _NO_READER),
    Obsolete("policy.learn.learner.dataloader", _NO_READER),
    Obsolete("policy.learn.learner.train_iterations", "give the run --train-iter or max_train_iter"),
    Obsolete("policy.learn.learner.log_policy", _NO_READER),
    Obsolete("policy.learn.learner.hook.log_show_after_iter", _SCREEN),
    Obsolete("policy.learn.learner.hook.save_ckpt_after_run", "a run always writes a checkpoint at its end"),
    Obsolete(
        "policy.learn.learner.hook.load_ckpt_before_run", "give --load-path, or the argument load_path", ("", None)
    ),
    Obsolete("policy.collect.collector.type", "there is one collector", ("sample",)),
    Obsolete("policy.collect.collector_logit", "logits are not stored", (False,)),
    Obsolete("policy.collect.collector.collect_print_freq", _SCREEN),
    Obsolete("policy.collect.collector.deepcopy_obs", "stored rows are copies anyway"),
    Obsolete("policy.collect.collector.transform_obs", _NO_READER),
    Obsolete("policy.collect.collector.get_train_sample", "every collector makes train samples"),
    Obsolete("policy.eval.evaluator.render", "evaluation draws no picture here", (False, {})),
    Obsolete("policy.eval.evaluator.figure_path", "evaluation draws no picture here", (None,)),
    Obsolete("policy.other.replay_buffer.type", "the store is named in replay_buffer.type", _STORES),
    Obsolete(
        "policy.other.eps.collect", "epsilon follows start, end and decay; give start and end one value to hold it", ()
    ),
    Obsolete("policy.other.replay_buffer.max_use", _REUSE),
    Obsolete("policy.other.replay_buffer.max_reuse", _REUSE),
    Obsolete("policy.other.replay_buffer.max_staleness", _REUSE),
    Obsolete("policy.other.replay_buffer.deepcopy", "stored rows are copies anyway"),
    Obsolete("policy.other.replay_buffer.enable_track_used_data", _REUSE),
    Obsolete("policy.other.replay_buffer.periodic_thruput_seconds", _SCREEN),
    Obsolete("policy.other.replay_buffer.thruput_controller", _REUSE),
    Obsolete("policy.other.replay_buffer.monitor", _SCREEN),
    Obsolete("policy.other.replay_buffer.priority_max_limit", "priorities have no upper limit"),
    Obsolete("policy.other.commander", "the loop itself evaluates and stops"),
    Obsolete("collector.get_train_sample", "every collector makes train samples"),
    Obsolete("collector.type", "there is one collector", ("sample",)),
    Obsolete("evaluator.type", "there is one evaluator", ("interaction",)),
    Obsolete("learner.type", "there is one learner", ("base",)),
    *(Obsolete(f"{section}.import_names", _IMPORTS) for section in _SECTIONS),
    Obsolete("commander", "the loop itself evaluates and stops"),
)
# Where the store is `rollout` or `phasic`.
ON_POLICY = (
    *(
        Obsolete(f"policy.other.replay_buffer.{key}", _ROLLOUT)
        for key in (
            *("replay_buffer_size", "max_use", "max_reuse", "max_staleness", "alpha", "beta", "anneal_step"),
            *("priority_power_factor", "IS_weight_power_factor", "IS_weight_anneal_train_iter"),
        )
    ),
    Obsolete("policy.recompute_adv", "advantages are computed once a rollout, from the values it was collected with"),
    Obsolete("policy.nstep_return", "policy.collect.gae_lambda says how far returns look ahead", (False,)),
    Obsolete(
        "policy.collect.n_episode",
        "a rollout is policy.collect.n_sample steps, whether or not episodes end in it",
        (None,),
    ),
    Obsolete(
        "policy.learn.ppo_param_init",
        "weights start orthogonal; policy.model.orthogonal_init=False keeps torch's",
        (True,),
    ),
    Obsolete("policy.learn.betas", _ADAM, ((0.9, 0.999), [0.9, 0.999])),
    Obsolete("policy.learn.eps", _ADAM, (1e-8,)),
)


def drop_obsolete(
    user: Mapping[Any, Any], defaults: Mapping[Any, Any] | None = None, mistakes: list[str] | None = None
) -> CfgDict:
    """Return the user's single dict without the keys of `OBSOLETE`, `ENV_FLAGS` and any `cfg_type`, and with those of
    `RENAMED` under their names here; each is said once.

    A key that the defaults know is left alone. The keys of `ON_POLICY` go where `replay_buffer.type` is 'rollout' or
    'phasic'.

    Args:
        mistakes: takes the messages instead of an error being raised.

    Raises:
        ConfigError: a value asks for a behaviour that does not exist here; says what there is instead.
    """
    told: list[str] = [] if mistakes is None else mistakes
    result = CfgDict(copy.deepcopy(dict(dict_items(user))))
    cfg_types = [Obsolete(path, _NO_READER) for path, _ in walk(result) if path.split(".")[-1] == "cfg_type"]
    env_type = get_path(result, "env.type", None)
    own_env = isinstance(env_type, str) and env_type in ENV_REGISTRY
    on_policy = get_path(result, "replay_buffer.type", None) in ("rollout", "phasic")
    more = (*(ON_POLICY if on_policy else ()), *cfg_types, *(() if own_env else ENV_FLAGS))
    for path, says, harmless in (*more, *OBSOLETE):
        if _is_known(path, defaults or {}):
            continue
        value = pop_path(result, path)
        if value is MISSING:
            continue
        if harmless is not None and _asked(value) not in harmless:
            told.append(f"{path}: {value!r} asks for what does not exist here: {says}; remove the key")
            continue
        warn_once(f"obsolete {path}", f"{path}: a key without effect here: {says}; remove it")
    _rename(result, defaults or {}, told)
    _raise_unless(mistakes is not None, told)
    return result


def _rename(user: CfgDict, defaults: Mapping[Any, Any], told: list[str]) -> None:
    """Move the keys of `RENAMED`, in place, where the defaults have the new name and not the old one."""
    for old, new in RENAMED:
        if get_path(defaults, old) is not MISSING or get_path(defaults, new) is MISSING:
            continue
        value = pop_path(user, old)
        if value is MISSING:
            continue
        other = get_path(user, new)
        if other is not MISSING and other != value:
            told.append(f"{old} is {value!r} but {new} is {other!r}; they are one value, keep {new}")
            continue
        warn_once(f"renamed {old}", f"{old}: is called {new} here and taken as that")
        set_path(user, new, value)


def _asked(value: Any) -> Any:
    """The switch of a section such as `norm_obs=dict(use_norm=False)`; any other value as it is."""
    return value["use_norm"] if isinstance(value, Mapping) and "use_norm" in value else value


def _is_known(path: str, defaults: Mapping[Any, Any]) -> bool:
    """Whether the defaults have the path, or its source where it is an alias."""
    return any(get_path(defaults, place) is not MISSING for place in (path, *_sources(path)))


def _sources(path: str) -> list[str]:
    return [source for alias, source in ALIASES if alias == path]
