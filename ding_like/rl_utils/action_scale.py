"""Between a policy's continuous actions and the env's: the one place that knows a Box's bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

UNBOUNDED = 1e18  # a bound this far away is none


class ActionScale:
    """Policies act in units where the box is [-1, 1]; the env gets actions in its own, inside its bounds.

    A dimension without a finite bound on both sides keeps the env's units, and is cut at the bound it has.

    Args:
        low, high: bounds of the Box, `[*shape]`.
        dtype: of the Box; whole-number kinds are rounded.
    """

    def __init__(self, low: Any, high: Any, dtype: Any = np.float32) -> None:
        self.dtype = np.dtype(dtype)
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        self.shape = low.shape
        low, high = low.reshape(-1), high.reshape(-1)
        self.bounded = (low > -UNBOUNDED) & (high < UNBOUNDED)  # [d]
        bottom, top = np.where(self.bounded, low, -1.0), np.where(self.bounded, high, 1.0)
        self.half, self.middle = (top - bottom) / 2, (top + bottom) / 2
        self.low, self.high = low, high

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Actions `[B, d]` in the policy's units as `[B, *shape]` in the env's, clipped to the box.

        Raises FloatingPointError naming rows that are not finite.
        """
        if not np.isfinite(action).all():
            bad = np.flatnonzero(~np.isfinite(action).all(1)).tolist()
            raise FloatingPointError(
                f"the policy's action of env column(s) {bad} is not finite: its network gives NaN or infinity. Try a "
                "smaller learning_rate, or grad_clip_norm"
            )
        x = action * self.half  # in float64: a box may lie far from 0
        x += self.middle
        if self.dtype.kind != "f":
            np.rint(x, out=x)
        x = np.maximum(np.minimum(x, self.high), self.low)
        return x.astype(self.dtype, copy=False).reshape(-1, *self.shape)

    def from_env(self, action: np.ndarray) -> np.ndarray:
        """Actions `[..., *shape]` of the env as `[..., d]` in the policy's units, float32."""
        lead = action.shape[: action.ndim - len(self.shape)]
        x = np.asarray(action, np.float64).reshape(*lead, -1) - self.middle
        return (x / np.where(self.half > 0, self.half, 1.0)).astype(np.float32)
