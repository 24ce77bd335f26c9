"""The master of the `local` sampler: workers that fill their columns of one shared slab."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ding_like.data import buffer_from_example, tree_cat, tree_index, tree_map, tree_write
from ding_like.distributed.enlist import Enlister, check_row
from ding_like.distributed.worker_slot import WorkerSlot
from ding_like.utils.shared_memory import SharedTree, spec_of
from ding_like.worker.collector.slab import NO_ENDS, Slab

if TYPE_CHECKING:
    from ding_like.distributed.group import WorkerGroup


class WorkerRows:
    """What a collector knows as its *rows*, filled by the workers of a group, each with a policy of its own.

    Parameters are published when a block is begun; what is begun goes on while this process does something else.

    Args:
        group: its workers are started.
        slab: takes the rows; its memory becomes a shared one.

    Attributes:
        gapped: columns whose last row became an end although a block had shown it before; the collector empties it.
        ready_obs: what every column is to act on next, as of the last block; of columns whose worker died, what their
            last row led to. None before `launch`.
        busy: seconds that each worker has filled rows so far.
        waited: seconds that this process has waited for them so far.
    """

    def __init__(self, group: WorkerGroup, slab: Slab) -> None:
        self.group, self.slab = group, slab
        self.env_num, self.may_idle = group.env_num, group.may_idle
        self.gapped: np.ndarray = NO_ENDS
        self.ready_obs: Any = None
        self.busy = [0.0] * len(group.workers)
        self.waited = 0.0
        self._shared: SharedTree | None = None
        self._finished: list[dict] = []
        self._order: tuple[int, int, int, dict[str, Any], bool] | None = None
        self._asked: list[WorkerSlot] = []
        slab.set_memory(self._make_memory)
        self._enlister = Enlister(group, slab.capacity, slab.masked)

    # ------------------------------------------------------------------ start
    def launch(self, seed: int) -> None:
        """Reset the envs."""
        self._enlister.seed, self._enlister.launched, self.ready_obs = seed, True, None
        for slot in self.group.workers:
            slot.wrote = slot.announced = None
        while self.ready_obs is None:  # where all die, those in their place are asked
            for slot, slot.first in self.group.ask("launch", dict.fromkeys(self.group.working(), seed)).items():
                self._announce(slot)

    def _announce_new(self) -> None:
        """Announce workers that were started again, once a block left their columns out."""
        for slot in self.group.working():
            if slot.first is not None and slot.wrote is None:
                self._announce(slot)

    def _announce(self, slot: WorkerSlot) -> None:
        """The first observations of a new worker are what comes next; it may fill the block after."""
        self._note_ready(slot, slot.first)
        slot.first, slot.announced = None, slot.incarnation

    def _note_ready(self, slot: WorkerSlot, rows: Any) -> None:
        if self.ready_obs is None:
            self.ready_obs = buffer_from_example(tree_index(rows, 0), (self.env_num,))
        tree_write(self.ready_obs, slice(*slot.columns), rows)

    # ------------------------------------------------------------------ rows
    def begin(self, rows: int, setting: dict[str, Any], random: bool = False) -> None:
        """Let the workers fill so many rows, with the parameters as they are now; does not wait."""
        self._enlister.publish()
        self._order = 0, self.slab.fill, rows, setting, random
        self._ask()

    def _ask(self) -> None:
        """Ask whoever can fill rows. A new worker waits for a block that leaves its columns out, a gap between its rows
        and those of the one before, and shows its first observations as what comes next.
        """
        self._asked = [slot for slot in self.group.working() if slot.announced == slot.incarnation]
        for slot in self._asked:
            if self._shared is not None:
                slot.attach(self._shared)
            slot.ask("fill", self._order, in_step=True)

    def finish(self) -> int:
        """Wait for the rows. Returns how many entries of them are no transition."""
        assert self._order is not None
        began = time.perf_counter()
        while self._shared is None:
            if not self._agree():
                self._announce_new()
                self._ask()  # those who were started in place of workers that did not live to their first row
        _, start, rows, _, _ = self._order
        ends: list[tuple[int, np.ndarray, Any]] = []
        finished: list[tuple[int, dict]] = []  # with the row of each
        filled: dict[WorkerSlot, dict] = {}
        for slot in self._asked:
            answer = self.group.answer(slot)
            if answer is not None:
                filled[slot] = answer[1]
        self.waited += time.perf_counter() - began
        none = self._leave_out([slot for slot in self.group.workers if slot not in filled], start, rows)
        for slot, done in filled.items():
            slot.wrote = slot.incarnation
            none += done["none"]
            finished += done["finished"]
            self.busy[slot.number] += done["busy"]
            self._note_ready(slot, tree_index(self._shared.tree[0]["ready"], slice(*slot.columns)))
            for flat, finals in done["ends"]:
                row, columns = np.divmod(flat, slot.width)
                ends.append((int(row[0]), columns + slot.columns[0], finals))
        self._merge(ends)
        self._finished += [episode for _, episode in sorted(finished, key=lambda one: (one[0], one[1]["column"]))]
        self.slab.fill, self._order = start + rows, None
        self._announce_new()
        return none

    def _leave_out(self, slots: list[WorkerSlot], start: int, rows: int) -> int:
        """Make the rows of columns that nobody filled no transitions. Returns how many entries that are."""
        assert self._shared is not None
        for slot in slots:
            lost = np.arange(*slot.columns)
            if slot.wrote is not None:
                self.slab.gap(lost, start)
                if start == self.slab.fresh:
                    self.gapped = np.union1d(self.gapped, lost)
                slot.wrote = None
            where = slice(start, start + rows), slice(*slot.columns)
            fields = self._shared.tree[0]["fields"]
            tree_map(lambda a, w=where: a[w].fill(0), fields)
            if "obs" in fields and self.slab.linked:
                tree_write(fields["obs"], where, tree_index(self.ready_obs, where[1]))
        return rows * sum(slot.width for slot in slots)

    def _merge(self, ends: list[tuple[int, np.ndarray, Any]]) -> None:
        """Note the ends of all workers, one entry a row, columns ascending."""
        by_row: dict[int, list[tuple[np.ndarray, Any]]] = {}
        for row, columns, finals in ends:
            by_row.setdefault(row, []).append((columns, finals))
        for row in sorted(by_row):
            parts = by_row[row]
            finals = parts[0][1] if len(parts) == 1 else tree_cat([part for _, part in parts])
            self.slab.end(np.concatenate([columns for columns, _ in parts]), finals, row)

    # ------------------------------------------------------------------ the shared slab
    def _agree(self) -> bool:
        """The first row of every worker says what rows are like; the slab is made for it. Returns whether it is."""
        asked, self._asked = self._asked, []
        for slot in asked:
            answer = self.group.answer(slot)
            if answer is None:
                continue
            example, linked = answer[1]
            if self._shared is None:
                self.slab.begin_rows(example, linked, self.env_num)
            assert self._shared is not None
            check_row(slot.child.name, example, spec_of(self._shared.tree[0]["fields"], (), 2))
            slot.attach(self._shared)
            self._asked.append(slot)
        return self._shared is not None

    def _make_memory(self, row: dict[str, Any], linked: bool) -> dict[str, Any]:
        """Shared rows like this one, for all columns."""
        lead = (self.slab.capacity + 1, self.env_num)
        block = {"fields": spec_of(row, lead, 1), "ready": spec_of(self.ready_obs)}
        self._shared = self.group.keep(SharedTree((block,)))
        return self._shared.tree[0]["fields"]

    # ------------------------------------------------------------------ the rest of the contract
    def take_finished(self) -> list[dict]:
        """The episodes that ended since this was asked for last."""
        taken, self._finished = self._finished, []
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Envs, noise and hidden states of every worker."""
        told = self.group.ask("state", dict.fromkeys(slot for slot in self.group.workers if slot.live))
        states = [told.get(slot) for slot in self.group.workers]
        why = [state["not_exact"] for state in told.values() if state["not_exact"] is not None]
        launched = self.group.workers if self._enlister.launched else []
        if any(slot not in told or slot.announced != slot.incarnation for slot in launched):
            why.append("some of its workers died")
        return {
            "workers": states,
            "split": [list(slot.columns) for slot in self.group.workers],
            "seed": self._enlister.seed,
            "wrote": [slot.wrote is not None for slot in self.group.workers],
            "ready_obs": self.ready_obs,
            "not_exact": why[0] if why else None,
        }

    def load_state_dict(self, state: dict[str, Any], again: int | None) -> str | None:
        """Go on where `state_dict` was taken; where that is not exact, all envs start with the seed `again`.

        Returns why it is not.
        """
        self._enlister.seed, self._enlister.launched = state["seed"], again is not None
        self.ready_obs = None if state["ready_obs"] is None else tree_map(np.array, state["ready_obs"])
        why, split = state["not_exact"], [list(slot.columns) for slot in self.group.workers]
        if split != state["split"]:
            why = why or f"its env columns were in {len(state['split'])} workers, now they are in {len(split)}"
        elif None not in state["workers"]:
            given = {slot: (saved, again) for slot, saved in zip(self.group.workers, state["workers"])}
            told = self.group.ask("load", given)
            why = why or next((reason for reason in told.values() if reason is not None), None)
            if len(told) < len(given):
                why = why or "some of its workers died"
        for slot, wrote in zip(self.group.workers, state["wrote"]):
            slot.wrote, slot.announced = slot.incarnation if wrote else None, slot.incarnation
        if why is not None and again is not None:
            self.launch(again)
        return why
