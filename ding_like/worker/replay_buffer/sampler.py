"""Which items a batch is made of.

A sampler has `added(ring)`, called after each push; `draw(n, ring)`, serial numbers `[n]` of items and their
importance weights `[n]` or None; `update(ring, index, priority)`; and its state.
"""

from __future__ import annotations

import numpy as np

from ding_like.utils.seed import generator
from ding_like.worker.replay_buffer.ring import Ring


class UniformSampler:
    """Items drawn uniformly, with replacement."""

    def __init__(self, seed: int) -> None:
        self._rng = generator(seed, "replay")

    def added(self, ring: Ring) -> None:
        """New items are like the others."""

    def draw(self, n: int, ring: Ring) -> tuple[np.ndarray, None]:
        """Serial numbers `[n]` of items of the ring, which has some; all weigh the same."""
        index = self._any(n, ring)
        while len(idle := ring.idle(index)):  # drawn again, until all are transitions
            index[idle] = self._any(len(idle), ring)
        return index, None

    def _any(self, n: int, ring: Ring) -> np.ndarray:
        index = (self._rng.random(n) * ring.slots).astype(np.int64)  # half the time of `integers`
        index += ring.first
        return index

    def update(self, ring: Ring, index: np.ndarray, priority: np.ndarray) -> None:
        """Uniform drawing has no priorities."""

    def state_dict(self) -> dict:
        """The generator's state."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._rng.bit_generator.state = state["rng"]
