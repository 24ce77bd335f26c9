"""Which items a batch is made of."""

from __future__ import annotations

import numpy as np

from ding_like.utils.seed import generator


class UniformSampler:
    """Items drawn uniformly, with replacement."""

    def __init__(self, seed: int) -> None:
        self._rng = generator(seed, "replay")

    def draw(self, n: int, count: int) -> np.ndarray:
        """`n` item ages in `[0, count)`."""
        return (self._rng.random(n) * count).astype(np.int64)  # half the time of `integers`

    def state_dict(self) -> dict:
        """The generator's state."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._rng.bit_generator.state = state["rng"]
