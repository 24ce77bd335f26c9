"""Ranges of config values. A class states them beside its `config`, by the dotted path of the key:

config_checks = {"learn.batch_size": at_least(1), "learn.grad_clip_norm": optional(positive)}
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ding_like.config.paths import MISSING, get_path, join, nearest


@dataclass(frozen=True)
class Check:
    """What a value must be: `fine(value)` decides, `wanted` says it in words ("got 0, wanted ...")."""

    fine: Callable[[Any], bool]
    wanted: str
    names: tuple[Any, ...] = ()  # the choices, where there are some, for a suggestion

    def mistake(self, value: Any, path: str) -> str | None:
        """Return the line that says what is wrong with the value at `path`, or None."""
        if self.fine(value):
            return None
        close = nearest(value, [n for n in self.names if isinstance(n, str)]) if isinstance(value, str) else None
        return f"{path}: got {value!r}, wanted {self.wanted}{f'; did you mean {close!r}?' if close else ''}"


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


number = Check(_real, "a number")
not_negative = Check(lambda value: _real(value) and 0 <= value < math.inf, "a number of at least 0")
above_one = Check(lambda value: _real(value) and 1 < value < math.inf, "a number above 1")
finite = Check(lambda value: _real(value) and abs(value) < math.inf, "a finite number")
positive = Check(lambda value: _real(value) and 0 < value < math.inf, "a number above 0")
fraction = Check(lambda value: _real(value) and 0 <= value <= 1, "a number from 0 to 1")
below_one = Check(lambda value: _real(value) and 0 <= value < 1, "a number from 0 to below 1")
positive_fraction = Check(lambda value: _real(value) and 0 < value <= 1, "a number above 0, at most 1")


def at_least(low: int) -> Check:
    """Return the check for an integer of at least `low`."""
    return Check(lambda value: _real(value) and value == value // 1 >= low, f"an integer of at least {low}")


def one_of(*names: Any, or_a: tuple[type, ...] = ()) -> Check:
    """Return the check for one of some names, or an object of the types `or_a`."""
    told = f"{'one of ' * (len(names) > 1)}{', '.join(map(repr, names))}" + "".join(
        f", or a {kind.__name__}" for kind in or_a
    )
    return Check(lambda value: isinstance(value, or_a) or any(_same(value, name) for name in names), told, names)


def _same(value: Any, name: Any) -> bool:
    """Whether they are equal; 0 and 1 are no False and True."""
    return value is name or (value == name and isinstance(value, bool) == isinstance(name, bool))


def optional(check: Check) -> Check:
    """Return a check that takes None too."""
    return Check(lambda value: value is None or check.fine(value), f"{check.wanted}, or None", check.names)


def list_of(check: Check) -> Check:
    """Return the check for a list of at least one item, each of which passes `check`."""
    return Check(
        lambda value: isinstance(value, list | tuple) and len(value) > 0 and all(map(check.fine, value)),
        f"a list of one or more, each {check.wanted}",
    )


def mistakes(
    cfg: Mapping[Any, Any], defaults: Mapping[Any, Any], checks: Mapping[str, Check | None], path: str = ""
) -> Iterator[str]:
    """Yield a line for every value of `cfg` that fails its check; a value that is the default passes.

    Args:
        checks: by path below `path`; None (a subclass lifts a check of its parent) takes anything.
        path: where `cfg` sits in the whole config, for messages.
    """
    for key, check in checks.items():
        value, default = get_path(cfg, key), get_path(defaults, key)
        if check is None or value is MISSING or (type(value) is type(default) and value == default):
            continue
        told = check.mistake(value, join(path, key))
        if told:
            yield told
