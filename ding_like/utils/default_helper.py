"""Small helpers for lists of transition dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def list_split(data: Sequence, step: int) -> tuple[list, list | None]:
    """Full chunks of length `step` from the front, and the rest.

    The rest is None when `step` divides the length; `([], [])` for empty data.

    Raises ValueError for a `step` below 1.
    """
    if step < 1:
        raise ValueError(f"step is {step}; wanted a chunk length of at least 1")
    items = list(data)
    full = len(items) // step * step
    chunks = [items[i : i + step] for i in range(0, full, step)]
    return chunks, items[full:] if full < len(items) or not items else None


def lists_to_dicts(steps: Sequence[dict], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """A list of dictionaries as a dictionary of lists, nested ones likewise except fields named in `keep`.

    Raises KeyError naming the step and key when a step lacks a key of the first.
    """
    first = steps[0]
    out: dict[str, Any] = {}
    for key in first:
        for i, step in enumerate(steps):
            if key not in step:
                raise KeyError(f"step {i} has no '{key}', step 0 has: every step needs the same keys")
        values = [step[key] for step in steps]
        nested = isinstance(first[key], dict) and key not in keep
        out[key] = lists_to_dicts(values) if nested else values
    return out
