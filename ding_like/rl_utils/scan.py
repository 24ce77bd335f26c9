"""The recursion under every return: ``x_t += decay_t * x_{t+1}``, from the last row to the first.

It runs in NumPy, row by row. Where numba is installed (the `fast` extra) a compiled loop takes over once this
process has scanned `ROWS_BEFORE_NUMBA` rows: by then the loop has cost about what importing numba costs, so a
short run never pays for it and a long one saves nearly all of the rest. `load_numba` takes over at once. Both
do the same float operations in the same order, so results agree to the last bit, whenever the change comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.rl_utils.windows import as_numpy

ROWS_BEFORE_NUMBA = 500_000  # at 0.7 us a row of 64, the 0.4 s in which numba loads its cached code

Scan = Callable[[np.ndarray, np.ndarray], None]


def reverse_scan(x: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """In place ``x_t += decay_t * x_{t+1}`` over the first axis, last row first; returns `x`.

    Both are C-contiguous, of one shape `[T, ...]` and one floating dtype; the last row of `decay` is not read.
    """
    global _rows_left
    if _scan is numpy_scan and _rows_left > 0:
        _rows_left -= len(x)
        if _rows_left <= 0:
            load_numba()
    flat = (len(x), -1)
    if x.size:
        _scan(x.reshape(flat), decay.reshape(flat))
    return x


def load_numba() -> bool:
    """Compile the scan now, or load it from numba's cache; False where numba is not installed."""
    global _scan
    if _scan is numpy_scan:
        try:
            import numba
        except ImportError:
            return False
        try:
            _scan = numba.njit(cache=True)(_loops)
        except RuntimeError:  # numba finds no directory that it may write its cache to
            _scan = numba.njit(_loops)
    return True


def numpy_scan(x: np.ndarray, decay: np.ndarray) -> None:
    """`reverse_scan` of arrays `[T, N]` without numba."""
    rows, product = list(x), np.empty_like(x[0])
    ahead = rows.pop()
    for row, factor in zip(reversed(rows), list(decay)[-2::-1]):
        row += np.multiply(factor, ahead, product)
        ahead = row


def _loops(x: np.ndarray, decay: np.ndarray) -> None:
    """What numba compiles."""
    for t in range(x.shape[0] - 2, -1, -1):
        for i in range(x.shape[1]):
            x[t, i] += decay[t, i] * x[t + 1, i]


_scan: Scan = numpy_scan
_rows_left = ROWS_BEFORE_NUMBA


def prepared(mask: Any, reward: Any, **others: Any) -> tuple[np.ndarray, ...]:
    """`reward` and the others as numpy arrays of the reward's dtype (float32 if that is no float), in order.

    Rows where `mask` is 0 become 0. Raises ValueError where a shape is not the reward's.
    """
    arrays = {"reward": as_numpy(reward), **{name: as_numpy(value) for name, value in others.items()}}
    shape = arrays["reward"].shape
    real = None if mask is None else as_numpy(mask) != 0
    for name, found in [
        *((name, a.shape) for name, a in arrays.items()),
        ("mask", shape if real is None else real.shape),
    ]:
        if found != shape or not shape:
            raise ValueError(f"{name} has shape {found}; wanted the reward's, {shape}, with time as its first axis")
    dtype = arrays["reward"].dtype if arrays["reward"].dtype.kind == "f" else np.dtype(np.float32)
    out = (np.asarray(a, dtype) for a in arrays.values())
    return tuple(out if real is None else (np.where(real, a, dtype.type(0)) for a in out))


def restored(out: np.ndarray, like: Any) -> Any:
    """`out` as the kind of `like`: a tensor on its device, or an array."""
    return torch.from_numpy(out).to(like.device) if isinstance(like, torch.Tensor) else out
