"""Workers without a barrier: each fills blocks of its own columns, one after the other, as far as it has free ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ding_like.data import tree_map
from ding_like.distributed.enlist import Enlister, check_row
from ding_like.distributed.worker_slot import WorkerSlot
from ding_like.utils.child import first_ready
from ding_like.utils.shared_memory import SharedTree, spec_of
from ding_like.worker.collector.emitter import Emitter
from ding_like.worker.collector.slab import Slab

if TYPE_CHECKING:
    from ding_like.distributed.group import WorkerGroup

LOOK = 0.5  # seconds between looks at workers that say nothing


class Lane:
    """One worker's columns: the blocks that it fills in turn, and what makes samples of them.

    A block that was taken leaves the rows that come again in the next one, which its worker does not write.

    Args:
        slot: of the worker.
        emitter: of its columns.
        blocks: how many there are.
        rows: of a block, without those that come again.
        masked: see `Slab`.

    Attributes:
        answers: when, and what, its worker has said of blocks that were not taken yet; None: it is gone.
        train_iter: gradient step of the parameters that the block was filled with which was taken last.
        rows: of each column that were taken so far, whoever filled them.
    """

    def __init__(self, slot: WorkerSlot, emitter: Emitter, blocks: int, rows: int, masked: bool) -> None:
        self.slot, self.emitter, self.carry = slot, emitter, emitter.carry
        self._rows, lead = rows, self.carry + rows
        self.slabs = [Slab(lead, self.carry, masked, partial(self._memory, k)) for k in range(blocks)]
        self.answers: deque[tuple[float, dict[str, Any] | None]] = deque()
        self.train_iter = self.rows = 0
        self._shared: SharedTree | None = None
        self._begun = False  # whether its worker is known to be there, and to be one and the same
        self._ordered = self._taken = 0  # blocks that it was asked for, and of these, those that were taken
        self._ready_obs: Any = None  # what the last row of the last one led to

    @property
    def under_way(self) -> int:
        """Env steps that its worker was asked for and that were not taken yet."""
        rows = (self._ordered - self._taken) * self._rows
        return self.slot.width * (rows + (self.carry if self._taken == 0 < self._ordered else 0))

    def begin(self) -> None:
        """Know a worker that has reset its envs, once all of the one before it was taken."""
        if not self._begun and self.slot.live and not self.answers:
            self._begun, self._ordered, self._taken = True, 0, 0

    def order(self, setting: dict[str, Any], random: bool) -> bool:
        """Ask for another block, if one is free. Returns whether one was."""
        free = len(self.slabs) if self._shared is not None else 1  # the first row tells what memory it takes
        if not self._begun or self._ordered - self._taken >= free:
            return False
        if self._shared is not None:
            self.slot.attach(self._shared)
        start = self.carry if self._ordered else 0
        rows = self.carry + self._rows - start
        self.slot.ask("fill", (self._ordered % len(self.slabs), start, rows, setting, random), in_step=True)
        self._ordered += 1
        return True

    def gone(self) -> None:
        """Its worker died."""
        self._begun = False
        self.answers.append((time.monotonic(), None))

    def take(self, done: dict[str, Any] | None) -> Slab | None:
        """The slab with the rows that are next, as `done` tells; None: those that wait, which end their episodes,
        truncated, with what they led to. Returns None where nothing waits.
        """
        slab, start = self.slabs[self._taken % len(self.slabs)], self.carry if self._taken else 0
        if done is None:
            if self._taken == 0:
                return None
            slab.cut(self._ready_obs)
            if self.emitter.stream is not None:
                self.emitter.stream.cut()
            return slab if self.carry else None
        slab.fill, slab.fresh = self.carry + self._rows, start
        for flat, finals in done["ends"]:
            slab.end(flat % self.slot.width, finals, int(flat[0]) // self.slot.width)
        self.train_iter = done["train_iter"]
        self.rows += slab.fill - start
        return slab

    def steps(self, done: dict[str, Any]) -> int:
        """Env steps of the rows that are next."""
        rows = self._rows + (0 if self._taken else self.carry)
        return int(rows * self.slot.width - done["none"])

    def ready_obs(self, done: dict[str, Any] | None) -> Any:
        """The observations after these rows."""
        if done is not None:
            assert self._shared is not None
            self._ready_obs = tree_map(np.copy, self._shared.tree[self._taken % len(self.slabs)]["ready"])
        return self._ready_obs

    def give_back(self, done: dict[str, Any] | None) -> None:
        """These rows were taken: their block is free. After the rows that waited another worker begins anew."""
        slab = self.slabs[self._taken % len(self.slabs)]
        if done is None:
            self._ordered = self._taken = 0
            slab.take_ends()
            return
        self._taken += 1
        slab.shift(self.slabs[self._taken % len(self.slabs)])

    # ------------------------------------------------------------------ memory
    def share(self, example: dict[str, Any], linked: bool) -> SharedTree:
        """Make its blocks for rows like this one `[1, ...]`, and let its worker have them. Returns their memory."""
        slab, width = self.slabs[0], self.slot.width
        fields = spec_of(example, (slab.capacity + 1, width), 1)
        block = {"fields": fields, "ready": spec_of(self.slot.first)}
        self._shared = SharedTree((block,) * len(self.slabs))
        for slab in self.slabs:
            slab.begin_rows(example, linked, width)
        self.slot.attach(self._shared)
        return self._shared

    def _memory(self, block: int, row: dict[str, Any], linked: bool) -> dict[str, Any]:
        assert self._shared is not None
        return self._shared.tree[block]["fields"]


class Lanes:
    """The workers of a group, each with a lane; orders wait in their pipes, and nobody waits for anybody else.

    Args:
        group: its workers are started, and it serves a policy.
        policy: its `collect_mode`.
        blocks: of a lane.
        rows: `rows(emitter)`: those of a block, without those that come again.

    Attributes:
        busy: seconds that each worker has filled rows so far, as far as these were taken.
        waited: seconds that this process has waited for them so far.
    """

    def __init__(self, group: WorkerGroup, policy: Any, blocks: int, rows: Callable[[Emitter], int]) -> None:
        self.group = group
        emitters = [Emitter(policy, slot.width, slot.columns[0]) for slot in group.workers]
        length, carry = rows(emitters[0]), emitters[0].carry
        self.lanes = [Lane(slot, one, blocks, length, group.idles) for slot, one in zip(group.workers, emitters)]
        self.enlister = Enlister(group, length + carry, group.idles, blocks)
        self.busy = [0.0] * len(self.lanes)
        self.waited = 0.0
        self._like: Any = None  # specs of the rows
        self._order: tuple[dict[str, Any], bool, int | None] = {}, False, None

    @property
    def under_way(self) -> int:
        """Env steps that workers were asked for and that were not taken yet."""
        return sum(lane.under_way for lane in self.lanes)

    def launch(self, seed: int) -> None:
        """Reset the envs."""
        self.enlister.seed, self.enlister.launched = seed, True
        told: dict[WorkerSlot, Any] = {}
        while not told:  # where all die, those in their place are asked
            told = self.group.ask("launch", dict.fromkeys(self.group.working(), seed))
        for slot, first in told.items():
            slot.first = first

    def order(self, setting: dict[str, Any], random: bool, steps: int | None) -> None:
        """Ask for blocks wherever one is free; `steps`: for no more of them than these env steps take."""
        self._order = setting, random, steps
        for lane in self.lanes:
            lane.begin()
            while steps is None or self.under_way < steps:
                if not lane.order(setting, random):
                    break

    def next(self) -> tuple[Lane, dict[str, Any] | None]:
        """The lane with the oldest block that is filled, waited for, and what its worker says: None if it is gone."""
        began = time.perf_counter()
        self._listen()
        while not any(lane.answers for lane in self.lanes):
            first_ready([lane.slot.child for lane in self.lanes if not lane.slot.gone], LOOK)
            self._listen()
        self.waited += time.perf_counter() - began
        lane = min((lane for lane in self.lanes if lane.answers), key=lambda lane: lane.answers[0][0])
        done = lane.answers.popleft()[1]
        if done is not None:
            self.busy[lane.slot.number] += done["busy"]
        return lane, done

    def _listen(self) -> None:
        """Take what workers have to say, without waiting while one is there; new ones are asked for blocks too."""
        self.group.working()
        self.order(*self._order)
        for lane in self.lanes:
            self._hear(lane)

    def _hear(self, lane: Lane) -> None:
        slot = lane.slot
        while slot.live and slot.speaks:
            answer = self.group.answer(slot)
            if answer is None:
                lane.gone()
            elif answer[0] == "layout":
                example, linked = answer[1]
                self._like = self._like or spec_of(example, (), 1)
                check_row(slot.child.name, example, self._like)
                self.group.keep(lane.share(example, linked))
            else:
                lane.answers.append((answer[1]["done_at"], answer[1]))
