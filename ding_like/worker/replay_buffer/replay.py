"""The replay store: a ring (where items live) and a sampler (which are drawn)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ding_like.data import ArrayDict
from ding_like.utils import BUFFER_REGISTRY, default_collate
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.sampler import UniformSampler


class Replay:
    """Off-policy store of transitions.

    Args:
        cfg: the `policy.other.replay_buffer` section.
        seed: keys the sampling.
    """

    config: dict = dict(
        replay_buffer_size=10000,  # items kept (transitions; rounded up to whole rows of all env columns)
    )

    def __init__(self, cfg: Any, seed: int = 0) -> None:
        self.ring = Ring(int(cfg.replay_buffer_size))
        self.sampler = UniformSampler(seed)

    @property
    def count(self) -> int:
        """Items that can be drawn."""
        return self.ring.count

    def push(self, items: Any) -> int:
        """Store a `Block`, a tree `[N, ...]` or a list of dictionaries. Returns the number of items."""
        if isinstance(items, list):
            if not items:
                return 0
            items = default_collate(items)
        return self.ring.push(items)

    def ready(self, n: int) -> bool:
        """Whether a batch of `n` can be drawn: as many items are there, or as many as there ever will be."""
        return self.ring.count >= n or (self.ring.full and self.ring.count > 0)

    def sample(self, n: int) -> ArrayDict:
        """A batch `[n, ...]` (numpy) with `index`, the address of each item.

        Raises ValueError while the store is empty.
        """
        ring = self.ring
        if not ring.count:
            raise ValueError("the replay buffer is empty; collect before sampling")
        address = ring.address(self.sampler.draw(n, ring.slots))
        while len(idle := ring.idle(address)):  # drawn again, until all are transitions
            address[idle] = ring.address(self.sampler.draw(len(idle), ring.slots))
        batch = ring.gather(address)
        batch["index"] = address
        return batch

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """What to train on after one collect: `updates` batches drawn one by one, none before the first can be."""
        for _ in range(updates):
            if not self.ready(batch_size):
                return
            yield self.sample(batch_size)

    def update(self, index: np.ndarray, priority: np.ndarray) -> None:
        """Priorities are for prioritised samplers; uniform drawing has none."""

    def state_dict(self) -> dict:
        """Everything an exact continuation needs."""
        return {"ring": self.ring.state_dict(), "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self.ring.load_state_dict(state["ring"])
        self.sampler.load_state_dict(state["sampler"])


for _name in ("replay", "naive", "deque", "advanced"):  # DI-engine's names for what is one store here
    BUFFER_REGISTRY.register(_name, Replay)
