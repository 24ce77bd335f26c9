"""Prioritised drawing: items that the network is most wrong about come more often.  Schaul 2016, section 3."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.utils.seed import generator
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.sum_tree import SumTree

_LARGEST = np.finfo(np.float64).max / 2  # of the sum of all leaves; half leaves room for rounding


class PrioritizedSampler:
    """Items drawn in proportion to `(priority + eps) ** alpha`, with replacement: of the n equal parts that a batch
    divides the whole into, each gives one item.

    An item enters with the largest priority written so far, 1 at first, so that every item is soon drawn once.
    Addresses that hold no item (overwritten, look-ahead, no transition) have a leaf of 0 and are never drawn.

    Importance weights are `(N P) ** -beta` divided by the largest of the batch, not of the buffer: one item of a tiny
    priority somewhere in the buffer then does not shrink every step, and no second tree is needed. N and the sum of all
    leaves drop out.

    Args:
        seed: keys the drawing.
        alpha: 0 draws uniformly, 1 in proportion to the priorities.
        alpha_end: `alpha` moves to it, linearly over `anneal_step` batches; None keeps it. A leaf keeps the alpha of
            when it was written.
        beta: 0 corrects nothing; moves to 1, the whole correction, linearly over `anneal_step` batches.
        eps: added to every priority.
        weighted: whether batches have weights.

    Attributes:
        tree: leaves by address; None before the first push.
        maximum: the largest priority written so far.
        batches: batches drawn so far.
    """

    def __init__(
        self,
        seed: int,
        alpha: float = 0.6,
        alpha_end: float | None = None,
        beta: float = 0.4,
        anneal_step: int = 100_000,
        eps: float = 1e-6,
        weighted: bool = True,
    ) -> None:
        self._rng = generator(seed, "replay")
        self._alpha, self._alpha_end = alpha, alpha if alpha_end is None else alpha_end
        self._beta, self._anneal_step = beta, anneal_step
        self._eps, self._weighted = eps, weighted
        self.tree: SumTree | None = None
        self.maximum = 1.0
        self.batches = 0
        self._known = (0, 0)  # serial numbers [first, end) of the items in the tree

    def _annealed(self, start: float, end: float) -> float:
        return start + (end - start) * min(1.0, self.batches / self._anneal_step)

    def _leaf(self, priority: np.ndarray | float) -> np.ndarray:
        return np.power(np.add(priority, self._eps), self._annealed(self._alpha, self._alpha_end))

    def added(self, ring: Ring) -> None:
        """Take in what was pushed since the last call: overwritten items get a leaf of 0, new ones the entry's."""
        if self.tree is None:
            self.tree = SumTree(ring.places)
        (first, end), self._known = self._known, (ring.first, ring.end)
        gone = np.arange(first, min(end, ring.first))
        new = np.arange(max(end, ring.first), ring.end)
        leaf = np.full(len(new), self._leaf(self.maximum))
        leaf[ring.idle(new)] = 0
        address = np.concatenate([gone, new]) % ring.places  # an address may be in both: the last counts
        self.tree.set(address, np.concatenate([np.zeros(len(gone)), leaf]))

    def draw(self, n: int, ring: Ring) -> tuple[np.ndarray, np.ndarray | None]:
        """Serial numbers `[n]` of items of the ring, which has some, and their importance weights `[n]` (float32), the
        largest 1; None where they are not wanted.

        Raises ValueError where every item has the leaf 0.
        """
        assert self.tree is not None
        total = self.tree.total
        if not total > 0:
            raise ValueError(
                "every item of the replay buffer has priority 0; set policy.other.replay_buffer.priority_eps above 0"
            )
        mass = self._rng.random(n)
        mass += np.arange(n)
        mass *= total / n
        address, weight = self.tree.find(mass), None
        if self._weighted:
            leaf = self.tree.leaves.take(address)
            weight = np.power(leaf.min() / leaf, self._annealed(self._beta, 1.0)).astype(np.float32)
        self.batches += 1
        return ring.serial(address), weight

    def update(self, ring: Ring, index: np.ndarray, priority: Any) -> None:
        """Write the priorities `[n]` of the items `index [n]` (serial numbers); of equal ones the last counts. Items
        that were overwritten since they were drawn are left out.

        Raises ValueError for another shape, what is no real number, or a negative one, FloatingPointError for one that
        is not finite or so large that the sum of all would not be.
        """
        priority = _numbers(priority)
        if priority.shape != index.shape:
            raise ValueError(
                f"priority has shape {priority.shape}; wanted one number an item of the batch, {index.shape}"
            )
        if self.tree is None or not len(index):
            return
        limit = _LARGEST / ring.places  # alpha is at most 1, so that no leaf is larger than its priority, or 1
        if not (priority.min() >= 0 and priority.max() < limit):
            _raise(priority, limit)
        address = index % ring.places
        there = (index >= ring.first) & (index < ring.end)
        there[ring.idle(index)] = False
        if not there.all():
            address, priority = address[there], priority[there]
        if len(address):
            self.maximum = max(self.maximum, float(priority.max()))
            self.tree.set(address, self._leaf(priority))

    def state_dict(self) -> dict:
        """Leaves, entry priority, schedules and generator; refers to live memory."""
        tree, end = self.tree, self._known[1]
        return {
            "rng": self._rng.bit_generator.state,
            "places": 0 if tree is None else len(tree.leaves),
            "leaves": np.empty(0) if tree is None else tree.leaves[:end],
            "known": list(self._known),
            "maximum": self.maximum,
            "batches": self.batches,
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._rng.bit_generator.state = state["rng"]
        self.tree = None
        if state["places"]:
            self.tree = SumTree(state["places"])
            self.tree.load(state["leaves"])
        self._known = (state["known"][0], state["known"][1])
        self.maximum, self.batches = state["maximum"], state["batches"]


def _numbers(priority: Any) -> np.ndarray:
    try:
        array = np.asarray(priority)
    except ValueError as err:  # rows of different length
        raise ValueError(f"priority makes no array: {err}") from err
    if array.dtype.kind not in "biuf":
        raise ValueError(f"priority has dtype {array.dtype}; wanted real numbers, one an item of the batch")
    return array.astype(np.float64, copy=False)


def _raise(priority: np.ndarray, limit: float) -> None:
    wrong = np.flatnonzero(~((priority >= 0) & (priority < limit)))
    value, where = priority[wrong[0]], f"priority[{wrong[0]}] ({len(wrong)} of {len(priority)} are wrong)"
    if -np.inf < value < 0:
        raise ValueError(f"{where}: got {value}, wanted at least 0, such as the absolute TD error")
    wanted = f"one below {limit:.3g}, so that the sum of all is finite" if value < np.inf else "a finite number"
    raise FloatingPointError(f"{where}: got {value}, wanted {wanted}; the values that the policy learns diverge")
