"""Schedules over env steps, as a policy's config describes them; None where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding_like.rl_utils.exploration import get_epsilon_greedy_fn, schedule


def epsilon_schedule(eps: Any) -> Callable[[int], float] | None:
    """Of the section `other.eps`."""
    return None if eps is None else get_epsilon_greedy_fn(eps.start, eps.end, eps.decay, eps.type)


def lr_schedule(learn: Any) -> Callable[[int], float] | None:
    """Of `learn.lr_schedule`, starting at `learn.learning_rate`."""
    wanted = learn.get("lr_schedule")
    if wanted is None or wanted.type is None:
        return None
    return schedule(float(learn.learning_rate), float(wanted.end), wanted.decay, wanted.type)
