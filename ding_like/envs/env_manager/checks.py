"""What env managers check of their columns and of what callers hand them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.envs.base_env import EnvError


def compare_spaces(other: tuple[int, str, Any, Any], first: tuple[int, str, Any, Any]) -> None:
    """Raises EnvError where two columns, each `(column, name, observation space, action space)`, have other spaces."""
    for i, kind in ((2, "observation_space"), (3, "action_space")):
        if other[i] != first[i]:
            raise EnvError(
                f"env column {other[0]} ({other[1]}) has the {kind} {other[i]}, column {first[0]} ({first[1]}) "
                f"has {first[i]}; all columns of a manager need the same spaces"
            )


def checked_actions(action: Any, n: int, space: spaces.Space) -> np.ndarray:
    """Actions of n columns as an array. Raises ValueError for another shape."""
    action = np.asarray(action)
    if action.shape != (n, *space.shape):  # type: ignore[misc]
        wanted = (n, *space.shape)  # type: ignore[misc]
        raise ValueError(f"actions have shape {action.shape}; wanted {wanted}: {n} columns of the action space {space}")
    return action


def check_columns(saved: int, columns: int) -> None:
    """Raises ValueError where a saved run has another number of columns."""
    if saved != columns:
        raise ValueError(f"the saved run has {saved} env columns, this one {columns}")


def check_not_waiting(ended: set[int], columns: Sequence[int] | None) -> None:
    """Raises EnvError where a column (of `columns`, or of all) has ended and was not reset."""
    waiting = sorted(ended if columns is None else ended.intersection(int(b) for b in columns))
    if waiting:
        raise EnvError(f"the episodes of columns {waiting} have ended; call reset({waiting}) or leave them out")
