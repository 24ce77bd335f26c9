"""Gymnasium's registrations for another process."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import gymnasium

from ding_like.envs.make import PROVIDERS

KNOWN = {"gymnasium", *(module.split(".")[0] for _, module, _ in PROVIDERS)}


def registered_specs() -> dict[str, Any]:
    """Specs by id that a process which only imports Gymnasium does not know, but those that cannot be pickled."""
    found = {id_: spec for id_, spec in gymnasium.registry.items() if not _is_own(spec)}
    if _travels(found):
        return found
    return {id_: spec for id_, spec in found.items() if _travels(spec)}


def register_specs(specs: dict[str, Any]) -> None:
    """Register them where they are not."""
    for id_, spec in specs.items():
        gymnasium.registry.setdefault(id_, spec)


def _is_own(spec: Any) -> bool:
    """Whether Gymnasium has it, or a package that is imported for its ids and would register them a second time."""
    return isinstance(spec.entry_point, str) and spec.entry_point.split(".")[0] in KNOWN


def _travels(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except (pickle.PicklingError, TypeError, ValueError, AttributeError, RecursionError):
        return False
    return True
