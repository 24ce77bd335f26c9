"""`CfgDict`: a nested dict with attribute access, and its way back to plain types."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from ding_like.config.paths import dict_items, nearest


class CfgDict(dict[Any, Any]):
    """A dict whose string keys are attributes too, at every depth: `cfg.policy.learn.batch_size`.

    Dicts put into it, also inside lists, become `CfgDict`s. Methods win over keys of the same name: after
    `cfg['items'] = 1`, `cfg.items()` still lists the items. A missing key raises with the nearest one named.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _wrap(value))

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delattr__(self, key: str) -> None:
        if key not in self:
            raise AttributeError(self._absent(key))
        del self[key]

    def __getattr__(self, key: str) -> Any:
        if key in self:
            return self[key]
        raise AttributeError(key if key.startswith("__") else self._absent(key))

    def __missing__(self, key: Any) -> Any:
        raise KeyError(self._absent(key))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set the given items; a nested section is replaced whole, as in a plain `dict`."""
        for key, value in dict_items(dict(*args, **kwargs)):
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of `key`, setting it to `default` first where it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def copy(self) -> "CfgDict":
        """Return a shallow copy."""
        return CfgDict(self)

    def __ior__(self, other: Any) -> "CfgDict":  # type: ignore[override, misc]
        self.update(other)
        return self

    def __or__(self, other: Any) -> "CfgDict":  # type: ignore[override]
        return CfgDict({**self, **other})

    def _absent(self, key: Any) -> str:
        names = [name for name in self if isinstance(name, str)]
        close = nearest(key, names) if isinstance(key, str) else None
        hint = f", did you mean {close!r}?" if close else f"; its keys: {', '.join(map(repr, self)) or 'none'}"
        return f"config has no key {key!r}{hint}"


def _wrap(value: Any) -> Any:
    if isinstance(value, Mapping) and type(value) is not CfgDict:
        return CfgDict(dict_items(value))
    if type(value) in (list, tuple):
        return type(value)(_wrap(item) for item in value)
    return value


def to_plain(value: Any) -> Any:
    """Return `value` as dict, list, str, bool, int, float or None, sharing nothing mutable with the input.

    Mappings become dicts, tuples and arrays lists, numpy scalars and paths the Python number or string.
    Anything else (a class, a function) is returned as it is.
    """
    if isinstance(value, Mapping):
        return {to_plain(key): to_plain(item) for key, item in dict_items(value)}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
