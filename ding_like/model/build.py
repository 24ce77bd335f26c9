"""From the `policy.model` section to a network."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ding_like.config.merge import check_value
from ding_like.config.paths import ConfigError
from ding_like.utils import MODEL_REGISTRY, suggest


def make_model(
    section: Mapping[str, Any], default: Callable[[], tuple[str, list[str]]], shapes: Mapping[str, Any]
) -> nn.Module:
    """The network a config describes.

    Args:
        section: constructor arguments; `type` and `import_names` replace the default network.
        default: gives the registered name and modules of the network used without them.
        shapes: arguments that follow from the env's spaces; added where the constructor takes them.

    Raises ConfigError naming an argument that the constructor does not take, lacks, or that contradicts the spaces;
    UnknownNameError for an unknown network.
    """
    kwargs = dict(copy.deepcopy(dict(section)))
    name, modules = kwargs.pop("type", None), kwargs.pop("import_names", [])
    if name is None:
        name, modules = default()
    cls = MODEL_REGISTRY.get(name, modules)
    accepted = inspect.signature(cls).parameters
    _check_arguments(name, accepted, kwargs)
    for key, value in shapes.items():
        if key not in accepted:
            continue
        given = kwargs.setdefault(key, value)
        if cls.__module__.startswith("ding_like.") and _plain_shape(given) != _plain_shape(value):
            raise ConfigError(
                f"policy.model.{key} is {given!r}, the env's space gives {value!r}; leave the key out to derive it"
            )
    missing = [k for k, p in accepted.items() if p.default is p.empty and k not in kwargs and p.kind < 2]
    if missing:
        raise ConfigError(f"policy.model lacks {', '.join(missing)}, which model '{name}' needs")
    return cls(**kwargs)


def _check_arguments(name: str, accepted: Mapping[str, inspect.Parameter], kwargs: dict[str, Any]) -> None:
    anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for key, value in kwargs.items():
        if key not in accepted and not anything:
            raise ConfigError(
                f"policy.model.{key}: model '{name}' has no such argument.{suggest(key, accepted)} It takes "
                f"{', '.join(accepted)}."
            )
        if key in accepted and isinstance(accepted[key].default, (bool, int, float)):
            kwargs[key] = check_value(value, accepted[key].default, f"policy.model.{key}")


def _plain_shape(shape: Any) -> Any:
    """`[4]`, `(4,)` and `4` are one shape."""
    if isinstance(shape, (list, tuple)):
        return shape[0] if len(shape) == 1 else list(shape)
    return shape
