"""Dotted paths into nested dicts ("policy.learn.batch_size")."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

MISSING: Any = object()


class ConfigError(ValueError):
    """A mistake in a config: the message names the path, the value and what was wanted."""


def join(prefix: str, key: Any) -> str:
    """Return `prefix.key`, or `key` alone at the root."""
    return f"{prefix}.{key}" if prefix else str(key)


def dict_items(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the items even where a key called `items` hides the method, as EasyDict allows."""
    return list(dict.items(mapping)) if isinstance(mapping, dict) else list(mapping.items())


def get_path(mapping: Mapping[Any, Any], path: str, default: Any = MISSING) -> Any:
    """Return the value at a dotted path, or `default` where any part of the path is missing."""
    node: Any = mapping
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return default
        node = node[key]
    return node


def set_path(mapping: MutableMapping[Any, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path in place, making the sections on the way.

    Raises:
        ConfigError: a part of the path holds something that is not a section.
    """
    *sections, last = path.split(".")
    node, here = mapping, ""
    for key in sections:
        here = join(here, key)
        node = node.setdefault(key, {})
        if not isinstance(node, MutableMapping):
            raise ConfigError(f"{path}: {here} is {node!r}, not a section, so nothing can be set below it")
    node[last] = value


def pop_path(mapping: MutableMapping[Any, Any], path: str) -> Any:
    """Remove the value at a dotted path in place and return it (`MISSING` where there is none).

    Sections that become empty by it are removed too.
    """
    key, _, rest = path.partition(".")
    if key not in mapping:
        return MISSING
    if not rest:
        value = mapping[key]
        del mapping[key]
        return value
    section = mapping[key]
    if not isinstance(section, MutableMapping):
        return MISSING
    value = pop_path(section, rest)
    if value is not MISSING and not section:
        del mapping[key]
    return value


def walk(mapping: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted path, value)` of every key, a section before its keys."""
    for key, value in dict_items(mapping):
        path = join(prefix, key)
        yield path, value
        if isinstance(value, Mapping):
            yield from walk(value, path)


def nearest(name: str, options: Iterable[str]) -> str | None:
    """Return the option spelt most like `name`, or None where none is close."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None
