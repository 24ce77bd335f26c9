"""Exploration schedules."""

import math
from collections.abc import Callable

import numpy as np


def get_epsilon_greedy_fn(start: float, end: float, decay: int, type_: str = "exp") -> Callable[[int], float]:
    """Schedule of epsilon over environment steps.

    `exp`: ``end + (start - end) * exp(-envstep / decay)``; `linear`: a straight line from `start` to `end` in
    `decay` steps, `end` from there on.

    Raises:
        ValueError: `type_` is neither, `decay` is not positive, or a bound lies outside [0, 1].
    """
    if decay <= 0:
        raise ValueError(f"epsilon decay is {decay}; it counts env steps and must be positive")
    for name, bound in (("start", start), ("end", end)):
        if not 0.0 <= bound <= 1.0:
            raise ValueError(f"epsilon {name} is {bound}; a probability between 0 and 1 is wanted")
    return schedule(start, end, decay, type_)


def schedule(start: float, end: float, decay: int, type_: str) -> Callable[[int], float]:
    """As `get_epsilon_greedy_fn`, for a number of any size: a learning rate.

    Raises ValueError for another `type_`.
    """
    if type_ == "exp":
        return lambda envstep: (start - end) * math.exp(-envstep / decay) + end
    if type_ == "linear":
        return lambda envstep: end if envstep >= decay else (start - end) * (1 - envstep / decay) + end
    raise ValueError(f"the type of a schedule is {type_!r}; choose 'exp' or 'linear'")


def epsilon_ladder(base: float, alpha: float, columns: int) -> np.ndarray:
    """An epsilon for each env column, `[columns]`, the same all the time: ``base ** (1 + alpha i / (columns - 1))``.

    Horgan 2018, section 4.1, with base 0.4 and alpha 7; a single column has `base`.
    """
    share = np.arange(columns) / max(columns - 1, 1)
    return base ** (1 + alpha * share)
