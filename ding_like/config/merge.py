"""Merging a user's config into the defaults, with every key and type checked; inputs stay unchanged."""

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from ding_like.config.cfg_dict import CfgDict
from ding_like.config.paths import ConfigError, dict_items, join, nearest, set_path, walk
from ding_like.config.translate import release_aliases
from ding_like.config.yaml_io import parse_yaml
from ding_like.utils.log import warn_once


def deep_merge_defaults(*layers: Mapping[Any, Any]) -> CfgDict:
    """Return the deep merge of dicts, a later one winning.

    Raises:
        ConfigError: one layer has a section where another has a value (an empty section, None and a
            section go together).
    """
    merged = CfgDict()
    for layer in layers:
        _merge_into(merged, layer, "")
    return merged


def _merge_into(target: CfgDict, layer: Mapping[Any, Any], prefix: str) -> None:
    for key, value in dict_items(layer):
        path, old = join(prefix, key), target.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            _merge_into(target[key], value, path)
        elif isinstance(old, Mapping) and old and value is not None:
            keys = ", ".join(map(str, old))
            raise ConfigError(f"{path}: {value!r} would replace a section with keys {keys}")
        else:
            target[key] = copy.deepcopy(value)


def merge(
    defaults: Mapping[Any, Any],
    user: Mapping[Any, Any],
    *,
    strict: bool = True,
    path: str = "",
    owner: str = "",
    lenient: Collection[str] = (),
    firm: Collection[str] = (),
    elsewhere: Callable[[str], str | None] | None = None,
    rules: Callable[[CfgDict], Iterable[str]] | None = None,
    nullable: Collection[str] = (),
) -> CfgDict:
    """Return the defaults with the user's values in place of them, every key and type checked.

    A default's type is the wanted type: bool, int (1e4 will do), float (ints will do), str, list, section. A
    None default takes anything but a quoted number, a `{}` default is a section of free form. None is a value
    only where it is the default, or at a path of `nullable`.

    Args:
        strict: unknown keys raise; otherwise they are kept and said once (sections of outside classes).
        path: where `defaults` sits in the whole config, for messages.
        owner: what the keys belong to ("policy 'dqn'"), for messages.
        lenient: sections (full dotted paths) whose unknown keys are kept and said once although `strict`.
        firm: sections whose unknown keys raise although they lie in a lenient one, or are `{}` by default.
        elsewhere: called with the full path of an unknown key that resembles nothing; may return a hint.
        rules: called with the merged config (a default where the value given is of a wrong type); gives the
            lines of further mistakes.

    Raises:
        ConfigError: one line for every mistake, each with the full path and what was wanted.
    """
    job = _Merge(defaults, path, owner, lenient, firm, elsewhere, nullable)
    merged = job.section(defaults, user, path, strict)
    if rules:
        job.mistakes += rules(merged)
    if job.mistakes:
        raise ConfigError("\n".join(job.mistakes))
    return merged


@dataclass
class _Merge:
    """One call of `merge`: the root, for suggestions, and the mistakes found so far."""

    root: Mapping[Any, Any]
    path: str
    owner: str
    lenient: Collection[str]
    firm: Collection[str]
    elsewhere: Callable[[str], str | None] | None
    nullable: Collection[str]
    mistakes: list[str] = field(default_factory=list)

    def section(self, defaults: Mapping[Any, Any], user: Mapping[Any, Any], path: str, strict: bool) -> CfgDict:
        strict = path in self.firm or (strict and path not in self.lenient)
        merged = CfgDict(copy.deepcopy(dict(dict_items(defaults))))
        for key, value in dict_items(user):
            here = join(path, key)
            if key not in defaults:
                self.unknown(defaults, key, path, strict)
                merged[key] = copy.deepcopy(value)
            elif self.is_section(defaults[key], here) and isinstance(value, Mapping):
                merged[key] = self.section(defaults[key], value, here, strict)
            else:
                try:
                    none = value is None and here in self.nullable
                    merged[key] = None if none else check_value(value, defaults[key], here)
                except ConfigError as error:
                    self.mistakes.append(str(error))
        return merged

    def is_section(self, default: Any, path: str) -> bool:
        return isinstance(default, Mapping) and (bool(default) or path in self.firm)

    def unknown(self, defaults: Mapping[Any, Any], key: Any, path: str, strict: bool) -> None:
        here = join(path, key)
        of = f" of {self.owner}" if self.owner else ""
        message = f"{here}: unknown key{of}; {self.hint(defaults, str(key), path)}"
        if strict:
            self.mistakes.append(message)
        else:
            warn_once(f"unknown key {here}", f"{message}; kept, as its class is not one of ours")

    def hint(self, defaults: Mapping[Any, Any], key: str, path: str) -> str:
        here = join(path, key)
        by_name: dict[str, list[str]] = {}
        for full, _ in walk(self.root, self.path):
            by_name.setdefault(full.rpartition(".")[2], []).append(full)
        if key in by_name:  # right name, wrong depth: of several the one that shares most of the path
            return f"did you mean {max(by_name[key], key=lambda full: _shared(full, here))}?"
        close = nearest(key, [str(name) for name in defaults])
        if close:
            return f"did you mean {join(path, close)}?"
        told = self.elsewhere(here) if self.elsewhere else None
        if told:
            return told
        close = nearest(key, by_name)
        if close:
            return f"did you mean {by_name[close][0]}?"
        return f"keys here: {', '.join(str(name) for name in defaults) or 'none'}"


def _shared(path: str, other: str) -> int:
    """Return how many leading parts two dotted paths share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path.split("."), other.split("."))))


def check_value(value: Any, default: Any, path: str) -> Any:
    """Return `value` as the type of `default`.

    Raises:
        ConfigError: names path, value and wanted type.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if default is None:
        if _is_quoted_number(value):
            raise ConfigError(f"{path}: got {value!r}, a number in quotes; remove the quotes")
        return copy.deepcopy(value)
    if isinstance(default, Mapping):
        if isinstance(value, Mapping):
            return copy.deepcopy(value)
    elif isinstance(default, list | tuple):
        if isinstance(value, list | tuple | np.ndarray):
            return _check_list(list(value), default, path)
    elif isinstance(default, bool | int | float | str):
        converted = _convert(value, type(default))
        if converted is not None:
            return converted
    else:  # an object of the owner's own, such as a class: nothing to check against
        return copy.deepcopy(value)
    raise ConfigError(f"{path}: got {value!r}, wanted {_wanted(default)}{_remedy(value, default)}")


def _convert(value: Any, kind: type) -> bool | int | float | str | None:
    """Return `value` as a `kind`, or None where it is not one."""
    if kind in (bool, str):
        return value if isinstance(value, kind) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind is float:
        return float(value)
    return int(value) if float(value).is_integer() else None


def _check_list(values: list[Any], default: list[Any] | tuple[Any, ...], path: str) -> list[Any]:
    kinds = {type(item) for item in default}
    if len(kinds) != 1 or not kinds <= {bool, int, float, str}:
        return copy.deepcopy(values)
    return [check_value(item, default[0], f"{path}[{index}]") for index, item in enumerate(values)]


def _wanted(default: Any) -> str:
    if isinstance(default, Mapping):
        keys = ", ".join(map(str, default))
        return f"a section with keys of {keys}" if keys else "a section (a dict)"
    if isinstance(default, list | tuple):
        return f"a list such as {list(default)!r}"
    if isinstance(default, bool):
        return "true or false"
    article = {int: "an integer", float: "a number", str: "a string"}[type(default)]
    return f"{article} such as {default!r}"


def _remedy(value: Any, default: Any) -> str:
    if value is None:
        return "; leave the key out to keep the default"
    if _is_quoted_number(value) and isinstance(default, bool | int | float):
        return "; remove the quotes"
    if isinstance(default, list | tuple):
        return f"; write [{value!r}]"
    return ""


def _is_quoted_number(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def parse_set(text: str) -> CfgDict:
    """Return the nested dict of `a.b=value`; the value is read as YAML (`1e-3`, `[64, 64]`, `{start: 1.0}`).

    Raises:
        ConfigError: no `=`, an empty part of the path, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise ConfigError(f"--set {text}: wanted KEY=VALUE, such as policy.learn.batch_size=64")
    nested = CfgDict()
    set_path(nested, path, parse_yaml(value, f"--set {path}"))
    return nested


def apply_sets(single: Mapping[Any, Any], sets: Iterable[str]) -> CfgDict:
    """Return a single dict with each `a.b=value` written over it, a later one winning.

    Where a value lives in two places (`ALIASES`), the one that is set takes the other's place.
    """
    result = CfgDict(copy.deepcopy(dict(dict_items(single))))
    nested = [parse_set(text) for text in sets]
    release_aliases(result, nested)
    for override in nested:
        _overwrite(result, override, "")
    return result


def _overwrite(target: CfgDict, override: Mapping[Any, Any], prefix: str) -> None:
    for key, value in override.items():
        path = join(prefix, key)
        if isinstance(value, Mapping) and isinstance(target.get(key), Mapping):
            _overwrite(target[key], value, path)
        elif isinstance(value, Mapping) and value and key in target and target[key] is not None:
            raise ConfigError(f"--set: {path} is {target[key]!r}, not a section; nothing can be set below it")
        else:
            target[key] = value
