"""A worker process as its env manager sees it."""

from __future__ import annotations

import pickle
import time
from typing import Any

from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.checks import compare_spaces
from ding_like.envs.env_manager.env_worker import STEP, Made, serve
from ding_like.utils.child import Child, ChildDied, ChildTimeout
from ding_like.utils.shared_memory import SharedTree, send_fd

PRELOAD = ("ding_like.envs.env_manager.env_worker",)
PATIENCE = 60.0  # seconds that anything but a step may take, at least, where there is a limit


class WorkerHandle:
    """The process that holds the columns `first` to `first + count - 1`.

    Args:
        name: what messages call it.
        load, options: see `serve`.
        limit: seconds an answer to `step` may take; None: any.

    Attributes:
        live: whether it can be asked to step; else it is starting, or `gone` for good.
        busy: whether it owes an answer.
        lost: whether it died since the manager last said so.
        made: name and spaces of its envs, once it told them.
    """

    def __init__(self, name: str, first: int, count: int, load: bytes, options: dict, limit: float | None) -> None:
        self.name, self.first, self.count = name, first, count
        self.live = self.gone = self.busy = self.lost = False
        self.made: Made | None = None
        self._load, self._options, self._limit = load, options, limit
        self._seconds = limit or 0.0  # that what was asked for last may take
        self._until: float | None = None
        self._failure: Exception | None = None
        self.child = self._start()

    def _start(self) -> Child:
        self._set_limit(PATIENCE)
        return Child(self.name, serve, (self._load, self.first, self._options), PRELOAD, kinds=())

    def _set_limit(self, at_least: float = 0.0) -> None:
        if self._limit is not None:
            self._seconds = max(self._limit, at_least)
            self._until = time.monotonic() + self._seconds

    def start_again(self, shared: SharedTree, seed: int, restarts: int) -> None:
        """Start another process in place of one that ended; it is live once `arrived` says so."""
        self.live = self.busy = False
        self._failure = None
        self.child = self._start()
        self.share(shared)
        self.ask("begin_anew", (seed, restarts))

    def share(self, shared: SharedTree) -> None:
        """Give it the arrays."""
        self.ask("share", shared.spec)
        self.busy = False  # it does not answer to this
        try:
            send_fd(self.child.conn, shared.fd, self.child.pid)
        except (BrokenPipeError, ConnectionResetError):
            self.ask("share", shared.spec)  # which finds out what happened

    def step(self, columns: list[int] | None) -> None:
        """Ask it to step all its columns, or some, counted from its first. What fails shows in `answer`."""
        self.busy = True
        if self._limit is not None:
            self._set_limit()
        try:
            if columns is None:
                self.child.post(STEP)
            else:
                self.child.send("step", columns)
        except Exception as err:
            self._failure = err

    def ask(self, kind: str, value: Any = None) -> None:
        """Ask it for something else. What fails shows in `answer`."""
        self.busy = True
        self._set_limit(PATIENCE)
        try:
            self.child.send(kind, value, None if self._limit is None else self._seconds)
        except Exception as err:
            self._failure = err

    def answer(self) -> tuple[Any, Any]:
        """Its answer `(kind, value)`. Raises ChildDied, ChildTimeout, or EnvError for what its envs raised."""
        try:
            if self._failure is not None:
                raise self._failure
            told = self.child.recv(None if self._until is None else max(0.0, self._until - time.monotonic()))
            self.busy = False  # not before: Ctrl-C may come in between
            return told
        except ChildTimeout:
            raise ChildTimeout(f"{self.name} (pid {self.child.pid}) timed out after {self._seconds:g} s") from None
        except (ChildDied, EnvError):
            raise
        except Exception as err:  # of code that runs around the envs: their import, sys.exit in one
            raise EnvError(f"{self.name}: {type(err).__name__}: {err}") from err.__cause__

    def take_made(self, data: bytes) -> Made:
        """Note what it told of its envs. Raises EnvError where their spaces are not those of its former process."""
        made = pickle.loads(data)
        if self.made is not None:
            compare_spaces(*((self.first, m.name, m.observation_space, m.action_space) for m in (made, self.made)))
        self.made = made
        return made

    def arrived(self) -> bool:
        """Whether a new process has begun its episodes. Raises as `answer`."""
        while not self.live and (self._failure is not None or self.child.ready() or self._late()):
            kind, value = self.answer()
            if kind == "made":
                self.take_made(value)
            else:
                self.live = True
        return self.live

    def _late(self) -> bool:
        return self._until is not None and time.monotonic() > self._until
