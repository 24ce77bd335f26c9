"""A place for a worker that fills rows, and who has it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding_like.utils.child import Child
from ding_like.utils.shared_memory import SharedTree
from ding_like.utils.workers import Worker


class WorkerSlot(Worker):
    """The place of a worker with a policy of its own, which fills rows without being asked for each.

    Args:
        number, columns, start, limit: see `Worker`; `limit` is for a row.
        beat: shared numbers, of which its process counts up the first with every row.

    Attributes:
        first: what its columns are to act on first, once a new worker told it.
        wrote: the incarnation that wrote the last rows of its columns; None where no episode is open in them.
        announced: the incarnation whose first observations the last block showed as what comes next.
    """

    def __init__(
        self,
        number: int,
        columns: tuple[int, int],
        start: Callable[[int], Child],
        limit: float | None,
        beat: SharedTree,
    ) -> None:
        self.beat = beat
        self.wrote: int | None = None
        self.announced: int | None = None
        self._seen = 0  # of the beat, when it was looked at last
        self._attached = -1  # incarnation that has the memory of its rows
        super().__init__(number, columns, start, limit)

    def _moved(self) -> bool:
        before, self._seen = self._seen, int(self.beat.tree[0])
        return before != self._seen

    def attach(self, shared: SharedTree) -> None:
        """Let its process have the memory of its rows, if it has not."""
        if self._attached != self.incarnation:
            self.tell("memory", shared.spec, [shared.fd], in_step=True)  # it is filling rows
            self._attached = self.incarnation

    def answer(self) -> tuple[Any, Any]:
        """See `Worker.answer`."""
        told = super().answer()
        self.busy += told[0] == "layout"  # nobody asked for it: it still owes the rows
        return told
