"""Worker processes that own contiguous env columns: start, death, replacement, end."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from ding_like.distributed.local_worker import HEARTBEAT, Task, run
from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.env_specs import registered_specs
from ding_like.utils.child import Child, ChildDied, ChildTimeout, first_ready
from ding_like.utils.cores import cores_for
from ding_like.utils.log import get_logger
from ding_like.utils.shared_memory import SharedTree, send_fd, spec_of
from ding_like.utils.shipping import packed_for

PRELOAD = ("torch", "ding_like.distributed.local_worker", "ding_like.policy", "ding_like.envs.make")
PATIENCE = 60.0  # seconds that anything but a step may take, at least, where there is a limit


class WorkerError(EnvError):
    """A worker process died or hung, and the run cannot go on after it."""


class WorkerSlot:
    """A place for a worker: its columns, and who has them now.

    Args:
        start: `start(incarnation)` starts its process.
        limit: seconds of one step; None: any.

    Attributes:
        live: whether it can be asked for rows; else it is starting, or `gone` for good.
        busy: whether it was asked for something that it has not answered yet.
        incarnation: how often it was started again.
        first: what its columns are to act on first, once a new worker told it.
        wrote: the incarnation that wrote the last rows of its columns; None where no episode is open in them.
        announced: the incarnation whose first observations the last block showed as what comes next.
        attached: whether it was given the shared slab.
    """

    def __init__(
        self, number: int, columns: tuple[int, int], start: Callable[[int], Child], limit: float | None
    ) -> None:
        self.number, self.columns, self.width = number, columns, columns[1] - columns[0]
        self.beat = SharedTree(spec_of(np.zeros(HEARTBEAT, np.int64)))
        self.live = self.gone = self.busy = self.attached = False
        self.incarnation = 0
        self.first: Any = None
        self.wrote: int | None = None
        self.announced: int | None = None
        self._start, self._limit = start, limit
        self._failure: Exception | None = None
        try:
            self.child = self._started()
        except BaseException:
            self.beat.close()
            raise

    def _started(self) -> Child:
        self._failure, self.busy, self.attached = None, False, False
        self._allow(PATIENCE)
        return self._start(self.incarnation)

    def start_again(self) -> None:
        """Start another process in place of one that ended."""
        self.live, self.first, self.incarnation = False, None, self.incarnation + 1
        self.child = self._started()

    @property
    def starting(self) -> bool:
        """Whether it is not live yet."""
        return not (self.live or self.gone)

    @property
    def late(self) -> bool:
        """Whether it had longer than it may take, since it was last asked for something or seen at work."""
        return self._limit is not None and time.monotonic() > self._until

    def _allow(self, at_least: float) -> None:
        self._patience = None if self._limit is None else max(self._limit, at_least)
        self._until = time.monotonic() + (self._patience or 0.0)

    def tell(self, kind: str, value: Any = None, fds: Iterable[int] = (), at_least: float = PATIENCE) -> None:
        """Send a message, and descriptors after it. What fails shows in `answer`.

        Args:
            at_least: seconds that the answer may take, where the limit is not higher.
        """
        self._allow(at_least)
        try:
            self.child.send(kind, value, self._patience)
            for fd in fds:
                send_fd(self.child.conn, fd, self.child.pid)
        except (BrokenPipeError, ConnectionResetError):  # the answer has the reason
            pass
        except Exception as err:
            self._failure = err

    def ask(self, kind: str, value: Any = None, at_least: float = PATIENCE) -> None:
        """Ask for something. What fails shows in `answer`."""
        self.busy = True
        self.tell(kind, value, at_least=at_least)

    def answer(self) -> tuple[Any, Any]:
        """Its next message. Raises ChildDied; ChildTimeout, for one that has done no step for so long; or what the
        worker's own code raised.
        """
        while self._failure is None:
            beat = int(self.beat.tree[0])
            try:
                kind, value = self.child.recv(self._patience)
            except ChildTimeout as err:
                if int(self.beat.tree[0]) == beat:
                    self._failure = ChildTimeout(f"{err}: {self._patience:g} s")
                continue
            except Exception as err:
                self._failure = err
                continue
            self.busy = kind == "layout"
            return kind, value
        self.busy = False
        raise self._failure

    def end(self, until: float) -> None:
        """End it, at the latest at that time. Idempotent."""
        self.live = False
        self.child.close(max(0.0, until - time.monotonic()))
        self.beat.close()


def split_columns(total: int, workers: int) -> list[tuple[int, int]]:
    """Contiguous ranges `[first, end)`, as even as they can be; no more than there are columns."""
    bounds = np.linspace(0, total, min(workers, total) + 1).round().astype(int).tolist()
    return list(pairwise(bounds))


class WorkerGroup:
    """Workers of the `local` sampler, seen as an env manager by whoever builds a run.

    Args:
        make_env: `make_env(first, end)` makes the manager of these columns, in the worker.
        env_num: columns of all workers.
        num_workers: processes, at most one a column.
        seed: of the run.
        on_worker_death: raise, restart or shrink.
        step_timeout: seconds of one step after which a worker counts as dead; None waits for ever.
        max_restarts: of all workers in a run.
        functions: whose modules, like those of what is registered, a worker may not be able to import.

    Attributes:
        enlist: called with a worker that has made its envs, first or again; makes it live, or asks it to begin.

    Raises EnvError and what else its envs raise where they are made, with a worker's traceback as its cause;
    WorkerError for a worker that dies there.
    """

    def __init__(
        self,
        make_env: Callable[[int, int], Any],
        env_num: int,
        num_workers: int,
        seed: int,
        on_worker_death: str = "raise",
        step_timeout: float | None = None,
        max_restarts: int = 20,
        functions: Sequence[Any] = (),
    ) -> None:
        self.env_num, self.seed = env_num, seed
        self.on_worker_death, self.max_restarts = on_worker_death, max_restarts
        self.restarts = 0
        self.enlist: Callable[[WorkerSlot], None] | None = None
        self._serving: tuple[Any, Callable[..., Any]] | None = None
        self._rows: Any = None
        self.slots: list[WorkerSlot] = []
        specs = registered_specs()
        entries = [spec.entry_point for spec in specs.values() if callable(spec.entry_point)]
        remedy = "make in the factory what cannot be pickled, or set policy.collect.collector.sampler to 'serial'"
        load = packed_for("sampler workers", "the env factory", remedy, (make_env, specs), (), [*functions, *entries])
        try:
            parts = split_columns(env_num, num_workers)
            for number, (columns, core) in enumerate(zip(parts, cores_for(len(parts)))):
                start = _starter(number, columns, seed, load, core)
                self.slots.append(WorkerSlot(number, columns, start, step_timeout))
            told = [self._made(slot) for slot in self.slots]
        except BaseException:
            self.end()
            raise
        self._spaces = self.observation_space, self.action_space = told[0][:2]
        self.env_name, self.idles = told[0][2:]
        self.may_idle = self.idles or on_worker_death != "raise"
        for slot, (*spaces, _, _) in zip(self.slots, told):
            self._compare(slot, spaces)

    def _made(self, slot: WorkerSlot) -> tuple[Any, Any, str, bool]:
        try:
            return pickle.loads(slot.answer()[1])
        except (ChildDied, ChildTimeout) as err:
            raise WorkerError(f"{err}, making its envs") from err
        except Exception as err:
            err.add_note(f"in {slot.child.name}")
            raise

    def _compare(self, slot: WorkerSlot, spaces: Sequence[Any]) -> None:
        if tuple(spaces) != self._spaces:
            self.end()
            raise EnvError(
                f"the envs of {slot.child.name} have the spaces {spaces[0]}, {spaces[1]}, those of worker 0 "
                f"{self._spaces[0]}, {self._spaces[1]}; all columns need the same"
            )

    # ------------------------------------------------------------------ answers and deaths
    def answer(self, slot: WorkerSlot) -> tuple[Any, Any] | None:
        """The next message of a worker; None where it died, and is restarted or left out.

        Raises WorkerError where that is to raise, and what the worker's own code raised; every worker is gone then.
        """
        try:
            return slot.answer()
        except (ChildDied, ChildTimeout) as err:
            self._lose(slot, err)
            return None
        except BaseException as err:
            if isinstance(err, Exception):  # not Ctrl-C here
                err.add_note(f"in {slot.child.name}")
                self.end()
            raise

    def ask(self, kind: str, values: Mapping[WorkerSlot, Any]) -> dict[WorkerSlot, Any]:
        """Ask several workers, then wait for them. Returns what each answered, but those that died."""
        for slot, value in values.items():
            slot.ask(kind, value)
        answers = {slot: self.answer(slot) for slot in values}
        return {slot: answer[1] for slot, answer in answers.items() if answer is not None}

    def working(self) -> list[WorkerSlot]:
        """The workers that can be asked for rows, one at least: where all are starting, the first is waited for."""
        while True:
            for slot in self.slots:
                self._look_after(slot)
            starting = [slot for slot in self.slots if slot.starting]
            found = [slot for slot in self.slots if slot.live]
            if found:
                return found
            if not starting:
                raise WorkerError("no sampler worker is left")
            first_ready([slot.child for slot in starting], 0.5)

    def _look_after(self, slot: WorkerSlot) -> None:
        """Take what a starting worker has to say, without waiting."""
        if slot.starting and slot.late and not slot.child.ready():
            self._lose(slot, ChildTimeout(f"{slot.child.name} (pid {slot.child.pid}) does not start"))
        while slot.starting and slot.child.ready():
            answer = self.answer(slot)
            if answer is None:
                continue
            if answer[0] == "spaces":
                self._compare(slot, pickle.loads(answer[1])[:2])
                assert self.enlist is not None
                self.enlist(slot)
            else:
                slot.live, slot.first = True, answer[1]

    def _lose(self, slot: WorkerSlot, why: Exception) -> None:
        """A worker died or hangs: do what the config says. Raises WorkerError where that is to raise."""
        slot.live = False
        slot.child.kill()
        slot.child.close(0.0)
        told = str(why)
        if self.on_worker_death == "raise":
            self.end()
            raise WorkerError(
                f"{told}. To go on without its rows set policy.collect.collector.on_worker_death to 'restart' or "
                "'shrink'"
            ) from why
        if self.on_worker_death == "shrink":
            slot.gone = True
            left = [one for one in self.slots if not one.gone]
            if not left:
                self.end()
                raise WorkerError(f"{told}, and it was the last worker") from why
            columns = sum(one.width for one in left)
            get_logger().warning(f"{told}; the run goes on with {columns} of {self.env_num} env columns")
            return
        self.restarts += 1
        if self.restarts > self.max_restarts:
            self.end()
            raise WorkerError(f"{told}, after {self.max_restarts} restarts (collector.max_restarts)") from why
        get_logger().warning(f"{told}; it is restarted ({self.restarts} of at most {self.max_restarts})")
        slot.start_again()

    # ------------------------------------------------------------------ use and end
    def serve(self, policy: Any, make_policy: Callable[..., Any]) -> None:
        """Act for this policy's collector; its workers make theirs by `make_policy` (see `WorkerRows`)."""
        self._serving = policy, make_policy

    def rows(self, policy: Any, slab: Any) -> Any:
        """What fills the slab of a collector (see `SampleCollector`)."""
        from ding_like.distributed.worker_rows import WorkerRows

        assert self._serving is not None
        self._rows = WorkerRows(self, self._serving[0], slab, self._serving[1])
        return self._rows

    def close(self, patience: float = 2.0) -> None:
        """Close the envs, end every worker, within so many seconds. Raises what the `close()` of an env raised, at the
        end. Idempotent.
        """
        failed: Exception | None = None
        until = time.monotonic() + patience
        asked = [slot for slot in self.slots if slot.live and not slot.busy]
        for slot in asked:
            slot.child.ask_to_close()
        for slot in asked:
            try:
                while True:
                    slot.child.recv(max(0.0, until - time.monotonic()))
            except (ChildDied, ChildTimeout):  # as it should
                pass
            except Exception as err:
                failed = failed or err
        self.end(max(0.0, until - time.monotonic()))
        if failed is not None:
            raise failed

    def end(self, patience: float = 1.0) -> None:
        """End every worker, within so many seconds for all of them. Idempotent."""
        until = time.monotonic() + patience
        for slot in self.slots:
            with suppress(OSError):
                slot.child.ask_to_close()
        for slot in self.slots:
            slot.end(until)
        if self._rows is not None:
            self._rows.release()


def _starter(number: int, columns: tuple[int, int], seed: int, load: bytes, core: int | None) -> Callable[[int], Child]:
    name = f"sampler worker {number} (env columns {columns[0]} to {columns[1] - 1})"
    return lambda incarnation: Child(name, run, (Task(load, columns, seed, incarnation, core),), PRELOAD)
