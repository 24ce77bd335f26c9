"""The on-policy store: what was collected is trained on in epochs, then forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, tree_cat, tree_index, tree_leaves, tree_map
from ding_like.utils import BUFFER_REGISTRY
from ding_like.utils.seed import generator
from ding_like.worker.replay_buffer.storage import copied_items


@BUFFER_REGISTRY.register("rollout")
class Rollout:
    """First in, first out: every item since the last `batches` is used once an epoch and never again.

    Args:
        cfg: the `policy.other.replay_buffer` section (this store has no settings).
        seed: keys the permutations.
    """

    config: dict = {}
    on_policy = True
    """Whether a batch is part of what one collect gave."""

    def __init__(self, cfg: Any = None, seed: int = 0) -> None:
        self._rng = generator(seed, "rollout")
        self._parts: list[ArrayDict] = []

    @property
    def count(self) -> int:
        """Items that wait to be trained on."""
        return sum(len(tree_leaves(part)[0]) for part in self._parts)

    def push(self, items: Any) -> int:
        """Copy a `Block` (its first `starts` rows), a tree `[N, ...]` or a list of dictionaries.

        Rows of a block whose `mask` is 0 are no transitions and are left out; so are other items (segments) in which
        it is 0 everywhere.

        Returns:
            The number of items, those included: a rollout is so many rows of all env columns.
        """
        if isinstance(items, Block):
            part, count = items.flat(), items.starts * tree_leaves(items)[0].shape[1]
        else:
            copy = copied_items(items)
            if copy is None:
                return 0
            part, count = copy, len(tree_leaves(copy)[0])
            if "mask" in part:
                part = tree_index(part, part["mask"].reshape(count, -1).any(1))
        if count and len(tree_leaves(part)[0]):
            self._parts.append(part)
        return count

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """`updates` epochs over everything pushed, each in an order of its own, in minibatches `[n, ...]` (numpy).

        An epoch holds every item exactly once: it is split into as few minibatches of at most `batch_size` as
        possible, whose sizes differ by at most one.
        """
        parts, self._parts = self._parts, []
        if parts:
            yield from self._epochs(parts[0] if len(parts) == 1 else tree_cat(parts), updates, batch_size)

    def _epochs(self, data: ArrayDict, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        total = len(tree_leaves(data)[0])
        pieces = -(-total // batch_size)
        bounds = [total * i // pieces for i in range(pieces + 1)]
        for _ in range(updates):
            order = self._rng.permutation(total)
            for start, stop in pairwise(bounds):
                index = order[start:stop]
                batch = ArrayDict({k: _take(v, index) for k, v in data.items()})
                batch["index"] = index
                yield batch

    def update(self, index: np.ndarray, priority: np.ndarray) -> None:
        """Every item is used equally often; priorities mean nothing here."""

    def state_dict(self) -> dict:
        """Everything an exact continuation needs; refers to the stored arrays."""
        return {"rng": self._rng.bit_generator.state, "parts": list(self._parts)}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._rng.bit_generator.state = state["rng"]
        self._parts = [ArrayDict(tree_map(np.copy, part)) for part in state["parts"]]


def _take(value: Any, index: np.ndarray) -> Any:
    return value.take(index, 0) if type(value) is np.ndarray else tree_map(lambda a: a.take(index, 0), value)
