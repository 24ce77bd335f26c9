"""Workers that hold some env columns each: their deadlines, and what is done when one dies or hangs."""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from ding_like.utils.child import Child, ChildDied, ChildTimeout, first_ready
from ding_like.utils.log import get_logger
from ding_like.utils.shared_memory import SharedTree, send_fd

PATIENCE = 60.0  # seconds that anything but a step may take, at least, where there is a limit
END = {  # why the run cannot go on after a death
    "raise": ". To go on without its rows set policy.collect.collector.on_worker_death to 'restart' or 'shrink'",
    "restart": ", after {} restarts (collector.max_restarts)",
    "shrink": ", and it was the last worker",
}


def split_columns(total: int, workers: int) -> list[tuple[int, int]]:
    """Contiguous ranges `[first, end)`, as even as they can be; no more than there are columns."""
    return [(int(part[0]), int(part[-1]) + 1) for part in np.array_split(np.arange(total), min(workers, total))]


class Worker:
    """A place for a worker: its columns, and the process that has them now.

    A process tells `('made', bytes)` unasked, once it has made its envs.

    Args:
        number: of the place.
        columns: `[first, end)`.
        start: `start(incarnation)` starts its process.
        limit: seconds of one step; None: any.

    Attributes:
        live: whether it can be asked to step; else it is starting, or `gone` for good.
        lost: whether it died; whoever has dealt with that sets it back.
        busy: how much it owes that it has not answered yet.
        incarnation: how often it was started again.
        first: what it told when it became live.
    """

    def __init__(
        self, number: int, columns: tuple[int, int], start: Callable[[int], Child], limit: float | None
    ) -> None:
        self.number, self.columns, self.width = number, columns, columns[1] - columns[0]
        self.lost = False
        self.incarnation = -1
        self._start, self._limit = start, limit
        self._patience: float | None = None  # what it was asked for last may take so many seconds
        self._until = 0.0
        self.start()

    def start(self) -> None:
        """Start its process; again in place of one that ended."""
        self.live = self.gone = False
        self.busy = 1
        self.incarnation += 1
        self.first: Any = None
        self._failure: Exception | None = None
        self._allow()
        self.child = self._start(self.incarnation)

    def end(self, until: float = 0.0) -> None:
        """End its process, at the latest at that time. Idempotent."""
        self.live, self.gone = False, True
        self.child.close(max(0.0, until - time.monotonic()))

    @property
    def starting(self) -> bool:
        """Whether it is not live yet."""
        return not (self.live or self.gone)

    # ------------------------------------------------------------------ deadlines
    def _allow(self, in_step: bool = False) -> None:
        if self._limit is not None:
            self._patience = self._limit if in_step else max(self._limit, PATIENCE)
            self._until = time.monotonic() + self._patience

    def _moved(self) -> bool:
        """Whether it was seen at work since this was asked last."""
        return False

    @property
    def _late(self) -> bool:
        """Whether it had longer than it may take, since it was asked last, and since it was seen at work a step."""
        if self._limit is None:
            return False
        if self._moved():
            self._until = max(self._until, time.monotonic() + self._limit)
        return time.monotonic() >= self._until

    # ------------------------------------------------------------------ messages
    def tell(self, kind: str, value: Any = None, fds: Iterable[int] = (), in_step: bool = False) -> None:
        """Send a message, and descriptors after it. What fails shows in `answer`.

        Args:
            in_step: it may take as long as a step; else PATIENCE, where the limit is not higher.
        """
        self._allow(in_step)
        try:
            self.child.send(kind, value, self._patience)
            for fd in fds:
                send_fd(self.child.conn, fd, self.child.pid)
        except (BrokenPipeError, ConnectionResetError):  # the answer has the reason
            pass
        except Exception as err:
            self._failure = err

    def ask(self, kind: str, value: Any = None, in_step: bool = False) -> None:
        """Ask for something. What fails shows in `answer`."""
        self.busy += 1
        self.tell(kind, value, in_step=in_step)

    @property
    def speaks(self) -> bool:
        """Whether `answer` has something to say at once: a message, a death, or that it is late with what it owes."""
        return self._failure is not None or self.child.ready() or (self.busy > 0 and self._late)

    def answer(self) -> tuple[Any, Any]:
        """Its next message `(kind, value)`. Raises ChildDied; ChildTimeout, where it took too long and was not seen at
        work either; or what it raised.
        """
        if self._failure is not None:
            raise self._failure
        while True:
            try:
                told = self.child.recv(None if self._limit is None else max(0.0, self._until - time.monotonic()))
            except ChildTimeout:
                if self._late:
                    late = f"{self.child.name} (pid {self.child.pid}) timed out after {self._patience:g} s"
                    raise ChildTimeout(late) from None
                continue
            self.busy -= 1  # not before: Ctrl-C may come in between
            return told


W = TypeVar("W", bound=Worker)


class Workers(ABC, Generic[W]):
    """Worker processes, and what happens when one dies or hangs; whoever derives from it starts them.

    Args:
        on_death: 'raise', 'restart' (at most `max_restarts` times in all) or 'shrink'. Before all have made their envs
            a death is raised in every case.

    Attributes:
        restarts: how many there were.
        over: whether every process was ended.
        error: class of what is raised for a death that the run cannot go on after. Every process is gone then, as after
            what a worker raised.
    """

    error: type[Exception] = RuntimeError

    def __init__(self, on_death: str, max_restarts: int) -> None:
        self.workers: list[W] = []
        self.restarts, self.over = 0, False
        self._on_death, self._max_restarts = on_death, max_restarts
        self._begun = False
        self._kept: list[SharedTree] = []

    @abstractmethod
    def welcome(self, worker: W, made: Any) -> None:
        """A worker that was started again has made its envs: make it live, or ask it to begin."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """End every worker where this raises."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def keep(self, shared: SharedTree) -> SharedTree:
        """Close this shared memory with the workers. Returns it."""
        self._kept.append(shared)
        return shared

    # ------------------------------------------------------------------ answers
    def begin(self) -> list[Any]:
        """Wait until all have made their envs. Returns what they tell of them."""
        told = [pickle.loads(answer[1]) for worker in self.workers if (answer := self.answer(worker)) is not None]
        self._begun = True
        return told

    def answer(self, worker: W) -> tuple[Any, Any] | None:
        """The next message of a worker; None where it died, and is restarted or left out.

        Raises `error` where that is to raise, and what the worker's own code raised.
        """
        try:
            return worker.answer()
        except (ChildDied, ChildTimeout) as err:
            self._lose(worker, err)
            return None
        except Exception as err:
            err.add_note(f"in {worker.child.name}")
            self.end()
            raise

    def ask(self, kind: str, values: Mapping[W, Any]) -> dict[W, Any]:
        """Ask several workers, then wait for them. Returns what each answered, but those that died."""
        for worker, value in values.items():
            worker.ask(kind, value)
        answers = {worker: self.answer(worker) for worker in values}
        return {worker: answer[1] for worker, answer in answers.items() if answer is not None}

    def wait_for(self, workers: Sequence[W], every: bool = False) -> None:
        """Hear those of them that are starting, until one worker at all, or every one of them, is live or gone."""
        while True:
            for worker in workers:
                while worker.starting and worker.speaks:
                    self._hear(worker)
            starting = [worker for worker in workers if worker.starting]
            if not starting or (not every and any(worker.live for worker in self.workers)):
                return
            first_ready([worker.child for worker in starting], 0.5)

    def _hear(self, worker: W) -> None:
        answer = self.answer(worker)
        if answer is None:
            return
        if answer[0] == "made":
            with self.whole():
                self.welcome(worker, pickle.loads(answer[1]))
        else:
            worker.live, worker.first = True, answer[1]

    def _lose(self, worker: W, why: Exception) -> None:
        """A worker died or hangs: do what the config says. Raises `error` where that is to raise."""
        worker.end()
        worker.lost = True
        if self._begun and self._on_death == "restart" and self.restarts < self._max_restarts:
            self.restarts += 1
            get_logger().warning(f"{why}; it is restarted ({self.restarts} of at most {self._max_restarts})")
            worker.start()
            return
        left = sum(one.width for one in self.workers if not one.gone)
        if self._begun and self._on_death == "shrink" and left:
            total = sum(one.width for one in self.workers)
            get_logger().warning(f"{why}; the run goes on with {left} of {total} env columns")
            return
        self.end()
        end = END[self._on_death].format(self._max_restarts) if self._begun else ", making its envs"
        raise self.error(f"{why}{end}") from why

    # ------------------------------------------------------------------ the end
    def close(self, patience: float = 2.0) -> None:
        """Close the envs, end every worker, within so many seconds. Raises what the `close()` of an env raised, at the
        end. Idempotent.
        """
        failed: Exception | None = None
        until = time.monotonic() + patience
        asked = [worker for worker in self.workers if worker.live and not worker.busy]
        for worker in asked:
            worker.child.ask_to_close()
        for worker in asked:
            try:
                while True:
                    worker.child.recv(max(0.0, until - time.monotonic()))
            except (ChildDied, ChildTimeout):  # as it should
                pass
            except Exception as err:
                failed = failed or err
        self.end(max(0.0, until - time.monotonic()))
        if failed is not None:
            raise failed

    def end(self, patience: float = 1.0) -> None:
        """End every worker, within so many seconds for all of them. Idempotent."""
        self.over, until = True, time.monotonic() + patience
        for worker in self.workers:
            worker.child.ask_to_close()
        for worker in self.workers:
            worker.end(until)
        for shared in self._kept:
            shared.close()
