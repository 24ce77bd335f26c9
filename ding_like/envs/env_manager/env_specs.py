"""Gymnasium's registrations for another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle
import gymnasium

from ding_like.envs.make import PROVIDERS
from ding_like.utils.shipping import packed_for

KNOWN = {"gymnasium", *(module.split(".")[0] for _, module, _ in PROVIDERS)}


def registered_specs() -> dict[str, Any]:
    """Specs by id that a process which only imports Gymnasium does not know, but those that cannot be pickled."""
    found = {id_: spec for id_, spec in gymnasium.registry.items() if not _is_own(spec)}
    if _travels(found):
        return found
    return {id_: spec for id_, spec in found.items() if _travels(spec)}


def packed_envs(name: str, envs: Any, kinds: Sequence[str], functions: Iterable[Any]) -> bytes:
    """`pickled((envs, specs))` for the process `name`: what makes its envs, and what is registered here.

    Args:
        kinds, functions: see `pickled`.

    Raises TypeError, with a remedy, for what cannot be pickled.
    """
    specs = registered_specs()
    entries = [spec.entry_point for spec in specs.values() if callable(spec.entry_point)]
    remedy = "make in the factory what cannot be pickled, or set policy.collect.collector.sampler to 'serial'"
    return packed_for(name, "the env factory", remedy, (envs, specs), kinds, [*functions, *entries])


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
