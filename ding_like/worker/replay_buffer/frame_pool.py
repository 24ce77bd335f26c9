"""Stacked frames of samples that come on their own, such as windows: each frame kept once, found by its content.

Windows overlap, and one frame stands in k stacks of each. A pool holds every distinct frame once and counts the places
that refer to it; a sample keeps the places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_index, tree_leaves
from ding_like.worker.replay_buffer.frame_ring import StackedLeaves
from ding_like.worker.replay_buffer.storage import lengthened

FIELDS = ("obs", "next_obs")
ROWS = 128  # stacks compared at a time: what fits the processor's caches


class FramePool:
    """Distinct frames, flat, and how many references each has.

    Args:
        example: a frame.
        size: frames there is room for at first. Memory that was never written costs nothing.
    """

    def __init__(self, example: np.ndarray, size: int) -> None:
        self._frames = np.empty((size, len(example)), example.dtype)
        self._count = np.zeros(size, np.int64)
        self._place: dict[int, int] = {}  # of a frame, by its hash
        self._hash = np.zeros(size, np.int64)
        self._free: list[int] = []
        self._used = 0  # places ever taken

    @property
    def nbytes(self) -> int:
        """Bytes of the places ever taken."""
        return self._used * sum(a[:1].nbytes for a in (self._frames, self._count, self._hash))

    @property
    def distinct(self) -> int:
        """Frames in it."""
        return self._used - len(self._free)

    def refer(self, stacks: np.ndarray) -> np.ndarray:
        """Take in stacks `[M, k, frame]`. Returns places `[M, k]` (int32), counted as referred to."""
        out = np.empty(stacks.shape[:2], np.int32)
        for start in range(0, len(stacks), ROWS):
            part = stacks[max(0, start - 1) : start + ROWS]
            moved = (part[1:, :-1] == part[:-1, 1:]).all((1, 2))
            if not start:
                moved = np.append(False, moved)
            for row, follows in enumerate(moved.tolist(), start):
                if follows:
                    out[row, :-1] = out[row - 1, 1:]
                    out[row, -1] = self._put(stacks[row, -1])
                else:
                    out[row] = [self._put(frame) for frame in stacks[row]]
        np.add.at(self._count, out, 1)
        return out

    def release(self, places: np.ndarray) -> None:
        """Take back the references `places` of any shape; frames without any make room."""
        np.subtract.at(self._count, places, 1)
        seen = np.unique(places)
        for place in seen[self._count[seen] == 0].tolist():
            key = int(self._hash[place])
            if self._place.get(key) == place:
                del self._place[key]
            self._free.append(place)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Frames at `places [M]`, `[M, frame]`."""
        return self._frames.take(places, 0, None, "clip")

    def _put(self, frame: np.ndarray) -> int:
        content = frame.tobytes()
        key = hash(content)
        known = self._place.get(key)
        if known is not None and self._frames[known].tobytes() == content:
            return known
        if self._free:
            place = self._free.pop()
        else:
            place = self._used
            self._used += 1
            if place == len(self._frames):
                size = place + place // 2 + 1
                self._frames, self._count, self._hash = (
                    lengthened(a, size) for a in (self._frames, self._count, self._hash)
                )
        self._frames[place], self._hash[place] = frame, key
        self._place.setdefault(key, place)
        return place

    def state_dict(self) -> dict:
        """Frames, counts and free places; refers to live memory."""
        used = self._used
        return {"frames": self._frames[:used], "count": self._count[:used], "free": np.array(self._free, np.int64)}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict` in a new pool."""
        used = self._used = len(state["frames"])
        size = max(used, len(self._frames))
        self._frames = np.empty((size, state["frames"].shape[1]), state["frames"].dtype)
        self._frames[:used] = state["frames"]
        self._count, self._hash = lengthened(state["count"], size), np.zeros(size, np.int64)
        self._free = state["free"].tolist()
        for place in np.flatnonzero(self._count).tolist():  # hashes differ from process to process
            self._hash[place] = key = hash(self._frames[place].tobytes())
            self._place.setdefault(key, place)


class PooledFrames:
    """Replaces the stacks of samples by places in a pool, one for every leaf that is a stack, and back.

    Args:
        count: k, frames of a stack.
        capacity: samples that are kept.
    """

    def __init__(self, count: int, capacity: int) -> None:
        self._count, self._capacity = count, capacity
        self._leaves: StackedLeaves | None = None
        self._pools: list[FramePool] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all pools."""
        return sum(pool.nbytes for pool in self._pools)

    def pack(self, items: Any) -> ArrayDict:
        """Samples `[N, ...]`, or `[N, U, ...]` where they have `null [N, U]`, with `[..., k]` places for stacks.

        Raises ValueError where the observations are no stacks.
        """
        out = ArrayDict(items)
        lead = 2 if np.ndim(items.get("null")) == 2 else 1
        for name in (name for name in FIELDS if name in items):
            obs = out[name]
            if self._leaves is None:
                self._start(obs, lead)
            assert self._leaves is not None
            places = []
            for pool, stack in zip(self._pools, self._leaves.stacks(obs, lead)):
                found = pool.refer(stack.reshape(-1, *stack.shape[lead:]))
                places.append(found.reshape(*stack.shape[:lead], self._count))
            out[name] = self._leaves.join(self._leaves.rest(obs), iter(places))
        return out

    def _start(self, obs: Any, lead: int) -> None:
        first = tree_index(obs, (0,) * lead)
        self._leaves = StackedLeaves.of(self._count, first)
        slots = int(np.prod(tree_leaves(obs)[0].shape[1:lead]))
        size = self._capacity * (slots + self._count - 1)
        self._pools = [FramePool(stack[0], size) for stack in self._leaves.stacks(first, 0)]

    def release(self, packed: ArrayDict) -> None:
        """Packed samples leave the store."""
        for name in (name for name in FIELDS if name in packed):
            for pool, places in zip(self._pools, self._places(packed[name])):
                pool.release(places)

    def unpack(self, batch: ArrayDict) -> ArrayDict:
        """What was packed; the batch itself."""
        if self._leaves is None:  # nothing was
            return batch
        shapes = [shape for shape in self._leaves.shapes if shape is not None]
        for name in (name for name in FIELDS if name in batch):
            stacks = [
                pool.take(places.reshape(-1)).reshape(*places.shape[:-1], *shape)
                for pool, places, shape in zip(self._pools, self._places(batch[name]), shapes)
            ]
            batch[name] = self._leaves.join(self._leaves.rest(batch[name]), iter(stacks))
        return batch

    def _places(self, packed: Any) -> list[np.ndarray]:
        assert self._leaves is not None
        return [leaf for leaf, shape in zip(tree_leaves(packed), self._leaves.shapes) if shape is not None]

    def state_dict(self) -> dict | None:
        """Shapes and pools; None before the first sample."""
        if self._leaves is None:
            return None
        return {"shapes": list(self._leaves.shapes), "pools": [pool.state_dict() for pool in self._pools]}

    def load_state_dict(self, state: dict | None) -> None:
        """Restore `state_dict`."""
        if state is None:
            return
        self._leaves, self._pools = StackedLeaves(self._count, state["shapes"]), []
        for one in state["pools"]:
            self._pools.append(FramePool(one["frames"][0], len(one["frames"])))
            self._pools[-1].load_state_dict(one)
