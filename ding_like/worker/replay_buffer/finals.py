"""The side table of final observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import buffer_from_example, tree_leaves, tree_map
from ding_like.worker.replay_buffer.storage import copied, lengthened, plain

NONE = np.empty(0, np.int64)


class FinalTable:
    """Final observations in reusable slots; grows by doubling, so its memory is flat once the ring is full."""

    def __init__(self, rows: int, columns: int, example: Any) -> None:
        self.slot = np.full(rows * columns, -1, np.int32)
        self._free = np.empty(0, np.int32)  # a stack of the slots not in use, its top at `_free_count`
        self._free_count = 0
        self._values: Any = buffer_from_example(example, 0)

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        return self._free_count == len(self._free)

    def clear(self, start: int, stop: int) -> None:
        """Forget the entries of flat rows `[start, stop)`."""
        span = self.slot[start:stop]
        old = span[span >= 0]
        if old.size:
            self._free[self._free_count : self._free_count + old.size] = old
            self._free_count += old.size
            span[:] = -1

    def put(self, index: np.ndarray, obs: Any) -> None:
        """Keep `obs [K, ...]` as the final observations of the flat rows `index [K]`."""
        while self._free_count < len(index):
            self._grow()
        left = self._free_count - len(index)
        slots = self._free[left : self._free_count][::-1]
        self._free_count = left
        self.slot[index] = slots
        tree_map(lambda to, value: to.__setitem__(slots, value), self._values, obs)

    def hits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of the flat rows `rows [n]` ended an episode: their positions and their slots, `[k]` each."""
        if self.empty:
            return NONE, NONE
        slots = self.slot.take(rows, mode="wrap")
        if np.maximum.reduce(slots) < 0:
            return NONE, NONE
        hit = (slots >= 0).nonzero()[0]
        return hit, slots[hit]

    def patch(self, out: Any, hit: np.ndarray, slots: np.ndarray) -> None:
        """Overwrite the entries `hit [k]` of `out [n]` with what stands in `slots [k]`; both as of `hits`."""
        if len(hit):
            tree_map(lambda to, value: to.__setitem__(hit, value.take(slots, 0)), out, self._values)

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return sum(a.nbytes for a in (self.slot, self._free, *tree_leaves(self._values)))

    def _grow(self) -> None:
        old = len(self._free)
        size = max(16, old + old // 2)
        self._values = tree_map(lambda a: lengthened(a, size), self._values)
        count, self._free = self._free_count, lengthened(self._free, size)
        self._free[count : count + size - old] = np.arange(size - 1, old - 1, -1)
        self._free_count = count + size - old

    def state_dict(self, used: int) -> dict:
        """Slots of the first `used` flat rows, free slots and values; refers to live memory."""
        return {
            "slot": self.slot[:used],
            "free": self._free[: self._free_count],
            "values": plain(self._values),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict` in a new table."""
        self.slot[: len(state["slot"])] = state["slot"]
        self._values = copied(state["values"])
        self._free_count = len(state["free"])
        self._free = lengthened(state["free"], len(tree_leaves(self._values)[0]))
