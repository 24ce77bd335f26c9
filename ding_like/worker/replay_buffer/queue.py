"""The queue between actors and learner: trajectories are trained on once, in the order they came, and then replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_cat, tree_index, tree_leaves, tree_map
from ding_like.utils import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.sampler import UniformSampler
from ding_like.worker.replay_buffer.storage import copied_items


@BUFFER_REGISTRY.register("queue")
class Queue:
    """First in, first out; a share of each batch may be drawn from what was trained on before. Espeholt 2018, 5.2.

    What waits is less than a batch once `batches` is through.

    Args:
        cfg: the `policy.other.replay_buffer` section; None: without replay.
        seed: keys what is replayed.
    """

    config: dict = dict(
        replay_share=0.0,  # share of each batch that is drawn from trajectories that have trained; the paper's is 0.5
        replay_buffer_size=10000,  # of these, how many are kept (with a replay_share above 0)
    )
    holds_batches = False  # `replay_buffer_size` is of what has trained
    keeps_origin = True
    """Whether any field of items comes back with batches, so that a run may note in one where they are from."""

    def __init__(self, cfg: Any = None, seed: int = 0) -> None:
        self._share = 0.0 if cfg is None else float(cfg.replay_share)
        if not 0 <= self._share < 1:
            raise ValueError(
                f"policy.other.replay_buffer.replay_share is {self._share}; wanted a number from 0 to below 1"
            )
        self._fresh: deque[ArrayDict] = deque()
        self._ring = Ring(int(cfg.replay_buffer_size)) if self._share else None
        self._sampler = UniformSampler(seed)

    @property
    def count(self) -> int:
        """Items that wait to be trained on."""
        return sum(map(_length, self._fresh))

    def push(self, items: Any) -> int:
        """Copy a tree `[N, ...]` or a list of dictionaries. Returns the number of items."""
        part = copied_items(items)
        if part is None:
            return 0
        self._fresh.append(part)
        return _length(part)

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """Batches of exactly `batch_size` items (numpy), each `updates` times, as long as enough of them wait.

        The first is new throughout; of the others `replay_share` is replayed.
        """
        while True:
            some = self._ring is not None and self._ring.count > 0
            replayed = min(round(self._share * batch_size), batch_size - 1) if some else 0
            if self.count < batch_size - replayed:
                return
            batch = new = self._take(batch_size - replayed)
            if self._ring is not None:
                if replayed:
                    old = self._ring.gather(self._sampler.draw(replayed, self._ring)[0])
                    batch = tree_cat([new, old])
                self._ring.push(new)
            for _ in range(updates):
                yield ArrayDict(batch)

    def _take(self, wanted: int) -> ArrayDict:
        """The oldest so many items."""
        parts = []
        while wanted:
            part = self._fresh.popleft()
            if _length(part) > wanted:
                self._fresh.appendleft(tree_index(part, slice(wanted, None)))
                part = tree_index(part, slice(wanted))
            parts.append(part)
            wanted -= _length(part)
        return parts[0] if len(parts) == 1 else tree_cat(parts)

    def update(self, index: np.ndarray, priority: np.ndarray) -> None:
        """Items are drawn in order, or uniformly; priorities mean nothing here."""

    def cut(self) -> None:
        """Open episodes end here: items are whole trajectories, which nothing follows."""

    def state_dict(self) -> dict:
        """Everything an exact continuation needs; refers to the stored arrays."""
        return {
            "fresh": list(self._fresh),
            "ring": None if self._ring is None else self._ring.state_dict(),
            "sampler": self._sampler.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises ValueError for a state with other replay."""
        if (state["ring"] is None) != (self._ring is None):
            raise ValueError(
                f"the saved queue is of a run with{'out' if state['ring'] is None else ''} replay; set policy.other."
                f"replay_buffer.replay_share {'to 0' if state['ring'] is None else 'above 0'}, as it was"
            )
        self._fresh = deque(ArrayDict(tree_map(np.copy, part)) for part in state["fresh"])
        if self._ring is not None:
            self._ring.load_state_dict(state["ring"])
        self._sampler.load_state_dict(state["sampler"])


def _length(part: ArrayDict) -> int:
    return len(tree_leaves(part)[0])
