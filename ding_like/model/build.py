"""From the `policy.model` section to a network."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ding_like.config.checks import mistakes
from ding_like.config.merge import check_value
from ding_like.config.paths import ConfigError
from ding_like.rl_utils.previous import FIELDS
from ding_like.utils import MODEL_REGISTRY, import_modules, suggest

Default = Callable[[], tuple[str, list[str]]]


def make_model(section: Mapping[str, Any], default: Default, shapes: Mapping[str, Any]) -> nn.Module:
    """The network a config describes.

    Args:
        section: constructor arguments; `type` and `import_names` replace the default network. A network class may
            hold `config_checks`, checks of its arguments by name.
        default: gives the registered name and modules of the network used without them.
        shapes: arguments that follow from the env's spaces; added where the constructor takes them.

    Raises ConfigError naming an argument that the constructor does not take, lacks, or that contradicts the spaces;
    UnknownNameError for an unknown network.
    """
    name, cls, kwargs = network_of(section, default)
    told = argument_mistakes(name, cls, kwargs)
    if told:
        raise ConfigError("\n".join(told))
    ours = cls.__module__.startswith("ding_like.")
    accepted = inspect.signature(cls).parameters
    for key, value in shapes.items():
        if key not in accepted:
            continue
        given = kwargs.setdefault(key, value)
        if ours and _plain_shape(given) != _plain_shape(value):
            raise ConfigError(
                f"policy.model.{key} is {given!r}, the env's space gives {value!r}; leave the key out to derive it"
            )
    missing = [k for k, p in accepted.items() if p.default is p.empty and k not in kwargs and p.kind < 2]
    if missing:
        raise ConfigError(f"policy.model lacks {', '.join(missing)}, which model '{name}' needs")
    if not ours:
        return cls(**kwargs)
    try:
        return cls(**kwargs)
    except ValueError as err:
        raise ConfigError(f"policy.model: {err}") from err


def fitting_defaults(section: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Of a policy's default arguments those that the network named in `policy.model` takes; all where none is named."""
    if not defaults or section.get("type") is None:
        return dict(defaults)
    accepted = inspect.signature(network_of(section, lambda: ("", []))[1]).parameters
    return {key: value for key, value in defaults.items() if key in accepted}


def previous_fields(section: Mapping[str, Any]) -> list[str]:
    """What the network of `policy.model` is to see of the step before: some of 'prev_action', 'prev_reward'."""
    return [name for name in FIELDS if section.get(f"use_{name}")]


def network_of(section: Mapping[str, Any], default: Default) -> tuple[str, Any, dict[str, Any]]:
    """Name, class and arguments of the network of `policy.model`. Raises UnknownNameError for an unknown one."""
    kwargs = dict(copy.deepcopy(dict(section)))
    name, modules = kwargs.pop("type", None), kwargs.pop("import_names", [])
    import_modules(modules)  # also where the default network is used: they may register its parts
    if name is None:
        name, modules = default()
    return name, MODEL_REGISTRY.get(name, modules), kwargs


def recurs(cls: Any, kwargs: Mapping[str, Any]) -> bool | None:
    """Whether a network of this class is recurrent; None where only the network itself tells.

    It is with a method `initial_state`. Of a class with a property of that name `lstm_type` tells, where it takes that.
    """
    found = inspect.getattr_static(cls, "initial_state", None)
    if not isinstance(found, property):
        return found is not None if isinstance(cls, type) else None
    lstm_type = inspect.signature(cls).parameters.get("lstm_type")
    return None if lstm_type is None else kwargs.get("lstm_type", lstm_type.default) is not None


def argument_mistakes(name: str, cls: Any, kwargs: dict[str, Any]) -> list[str]:
    """The lines of mistakes; values are turned into the type of their default in place (1e2 into 100)."""
    accepted = inspect.signature(cls).parameters
    defaults = {key: parameter.default for key, parameter in accepted.items()}
    anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    told = []
    for key, value in kwargs.items():
        if key not in accepted and not anything:
            hint = suggest(key, accepted)
            if key.removeprefix("use_") in FIELDS:
                hint = " It is for a recurrent network, such as 'drqn', or 'vac' with lstm_type."
            told.append(
                f"policy.model.{key}: model '{name}' has no such argument.{hint} It takes {', '.join(accepted)}."
            )
        if isinstance(defaults.get(key), (bool, int, float, list, tuple)):
            try:
                kwargs[key] = check_value(value, defaults[key], f"policy.model.{key}")
            except ConfigError as err:
                told.append(str(err))
    wrong = {line.partition(":")[0].partition("[")[0] for line in told}
    checks = {k: c for k, c in getattr(cls, "config_checks", {}).items() if f"policy.model.{k}" not in wrong}
    return told + list(mistakes(kwargs, defaults, checks, "policy.model"))


def _plain_shape(shape: Any) -> Any:
    """`[4]`, `(4,)` and `4` are one shape."""
    if isinstance(shape, (list, tuple)):
        return shape[0] if len(shape) == 1 else list(shape)
    return shape
