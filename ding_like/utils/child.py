"""Child processes whose failures reach the user, and which never outlive their parent.

A child runs `target(conn, *args)`; the two talk over one pipe in `(kind, value)` messages, or in single bytes where a
message is but a signal. A process that dies closes its end, so the other one wakes. There is no lock or queue that a
killed process could hold, and the parent never waits in a call that a stopped child could keep.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any

from ding_like.utils import fork_server
from ding_like.utils.shipping import pickled, unpickled, without_main

HEADER = 4  # bytes that tell a message's length, as multiprocessing's connections write it
LONG = b"\xff\xff\xff\xff"  # that length stands in 8 further bytes
CHUNK = 1 << 16
_children: weakref.WeakSet[Child] = weakref.WeakSet()


class ChildDied(RuntimeError):
    """A child process ended, or was killed, without a word."""


class ChildTimeout(RuntimeError):
    """A child process did not answer in time."""


class RemoteTraceback(Exception):
    """The traceback of an exception in a child process, as its cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class Child:
    """A process that runs `target(conn, *args)`.

    Args:
        name: of the process in messages and process lists.
        target: called in the child; functions and classes of the running script itself are fine too.
        args: its further arguments.
        preload: modules that the fork server imports once, of the first child of a program.
        kinds: of the registries whose entries from outside of the package the child needs; None: all.

    Attributes:
        pid: its process id.

    Raises what pickling target or arguments raises.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., Any],
        args: tuple = (),
        preload: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
    ) -> None:
        if os.name != "posix":
            raise OSError("worker processes need Linux or macOS; use sampler='serial' here")
        context = get_context("forkserver")
        self.name = name
        load = pickled((target, args), kinds)
        variables = {**os.environ, **dict.fromkeys(fork_server.THREAD_VARIABLES, "1")}
        self.conn, theirs = context.Pipe(duplex=True)
        self.process = context.Process(target=_run, args=(theirs, variables, load), name=name)
        with fork_server.environment(), without_main():
            context.set_forkserver_preload([__name__, *preload])
            self.process.start()
        theirs.close()
        self.pid: int = self.process.pid or -1
        self._fd = self.conn.fileno()
        self._socket = socket.socket(fileno=os.dup(self._fd))
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLIN)
        self._poller.register(self.process.sentinel, select.POLLIN)  # its own children may hold the pipe open
        self._read = bytearray()
        self._closed = False
        if not _children:
            atexit.register(
                close_all
            )  # after multiprocessing's own, which would wait for the children, so run before it
        _children.add(self)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self._closed and self.process.is_alive()

    def send(self, kind: str, value: Any = None, timeout: float | None = None) -> None:
        """Send a message. Raises ChildDied, ChildTimeout, or what the child raised."""
        self._send(_framed(pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)), timeout)

    def post(self, signal: bytes) -> None:
        """Send a message of one byte. Raises as `send`."""
        self._send(b"\0\0\0\1" + signal, None)

    def _send(self, data: bytes, timeout: float | None) -> None:
        rest, deadline = memoryview(data), None if timeout is None else time.monotonic() + timeout
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self._wait_to_send(deadline)
        except (BrokenPipeError, ConnectionResetError):
            self._failed()

    def _wait_to_send(self, deadline: float | None) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        poller.register(self.process.sentinel, select.POLLIN)
        ready = poller.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000)
        if any(fd != self._fd for fd, _ in ready):
            self._failed()
        if not ready:
            raise ChildTimeout(f"{self.name} (pid {self.pid}) does not read what it is sent")

    def ready(self, timeout: float | None = 0.0) -> bool:
        """Whether a message (or the end of the child) is there within `timeout` seconds; None waits for ever."""
        return bool(self._read) or bool(self._poller.poll(None if timeout is None else timeout * 1000))

    def recv(self, timeout: float | None = None) -> tuple[Any, Any]:
        """The next message `(kind, value)`; of one byte, `(byte, None)`.

        Raises ChildTimeout after `timeout` seconds, ChildDied, or the exception that the child sent, its traceback as
        its cause.
        """
        data = self._next(timeout)
        if len(data) == 1:
            return data, None
        kind, value = pickle.loads(data)
        if kind == "error":
            raise value.exception()
        return kind, value

    def _next(self, timeout: float | None) -> bytes:
        deadline = None
        while True:
            if len(self._read) > HEADER and (data := _unframed(self._read)) is not None:
                return data
            if timeout is not None:
                deadline = time.monotonic() + timeout if deadline is None else deadline
                timeout = max(0.0, deadline - time.monotonic())
            events = self._poller.poll(None if timeout is None else timeout * 1000)
            if not events:
                raise ChildTimeout(f"{self.name} (pid {self.pid}) did not answer in time")
            if events[0][0] != self._fd and len(events) == 1:
                raise self._death()  # and nothing is left in the pipe
            try:
                chunk = os.read(self._fd, CHUNK)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise self._death()
            self._read += chunk

    def _failed(self) -> None:
        """Raise what the child left in the pipe before it closed its end, or ChildDied."""
        while True:
            self.recv(2.0)

    def _death(self) -> ChildDied:
        self.process.join(2.0)
        code = self.process.exitcode
        how = "does not answer" if code is None else f"exited with code {code}" if code >= 0 else _signal_name(-code)
        hint = "; SIGKILL from outside mostly is the system running out of memory" if code == -signal.SIGKILL else ""
        return ChildDied(f"{self.name} (pid {self.pid}) {how}{hint}")

    def kill(self) -> None:
        """End it at once, stopped or not."""
        with suppress(ValueError, ProcessLookupError):  # closed already; gone already
            os.kill(self.pid, signal.SIGKILL)
            self.process.join(5.0)

    def ask_to_close(self) -> None:
        """Send `('close', None)`, if that is possible at once."""
        with suppress(OSError):
            self._socket.send(_framed(pickle.dumps(("close", None))), socket.MSG_DONTWAIT)

    def close(self, patience: float = 2.0) -> None:
        """Ask it to end, wait `patience` seconds, then kill it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.ask_to_close()
        self.process.join(patience)
        self.kill()
        self._socket.close()
        self.conn.close()
        with suppress(ValueError):
            self.process.close()
        _children.discard(self)


def close_all(patience: float = 1.0) -> None:
    """Close every child of this process, within `patience` seconds together."""
    children, until = list(_children), time.monotonic() + patience
    for child in children:
        child.ask_to_close()
    for child in children:
        child.close(max(0.0, until - time.monotonic()))


def first_ready(children: Sequence[Child], timeout: float | None = None) -> list[Child]:
    """Those of the children that have a message or ended, waiting for the first of them; empty after `timeout`."""
    by_end: dict[Any, Child] = {child.conn: child for child in children}
    by_end |= {child.process.sentinel: child for child in children}
    found = [child for child in children if child.ready()]
    return found or list(dict.fromkeys(by_end[end] for end in connection.wait(list(by_end), timeout)))


# ---------------------------------------------------------------------- messages
def _framed(data: bytes) -> bytes:
    if len(data) >= 1 << 31:
        return LONG + len(data).to_bytes(8, "big") + data
    return len(data).to_bytes(4, "big") + data


def _unframed(read: bytearray) -> bytes | None:
    """Take the first message out of what was read, or None where it is not whole."""
    start, size = HEADER, int.from_bytes(read[:HEADER], "big")
    if read[:HEADER] == LONG:
        start, size = HEADER + 8, int.from_bytes(read[HEADER : HEADER + 8], "big")
    if len(read) < start + size:
        return None
    data = bytes(read[start : start + size])
    del read[: start + size]
    return data


def receive(conn: Connection) -> tuple[Any, Any]:
    """In a child: the next message `(kind, value)`; of one byte, `(byte, None)`. Raises EOFError without a parent."""
    fd = conn.fileno()
    head = _read_exactly(fd, HEADER + 1)
    if head[:HEADER] == b"\0\0\0\1":
        return head[HEADER:], None
    size = head[:HEADER]
    if size == LONG:
        size, head = head[HEADER:] + _read_exactly(fd, 7), b""
    first = head[HEADER:]
    return pickle.loads(first + _read_exactly(fd, int.from_bytes(size, "big") - len(first)))


def tell(conn: Connection, kind: str, value: Any = None) -> None:
    """In a child: send a message."""
    rest = memoryview(_framed(pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)))
    while rest:
        rest = rest[os.write(conn.fileno(), rest) :]


def post(conn: Connection, signal: bytes) -> None:
    """In a child: send a message of one byte."""
    os.write(conn.fileno(), b"\0\0\0\1" + signal)


def _read_exactly(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    while (size := size - len(data)) > 0:
        data = os.read(fd, min(size, CHUNK * 16)) if data else b""
        if not data:
            raise EOFError
        parts.append(data)
    return b"".join(parts)


class Failure:
    """An exception on its way to the parent."""

    def __init__(self, error: BaseException) -> None:
        self._text = "".join(traceback.format_exception(error)).rstrip()
        self._plain = f"{type(error).__name__}: {error}"
        self._pickled = b""
        try:
            data = pickle.dumps(error)
            pickle.loads(data)
            self._pickled = data
        except Exception as reason:  # an exception class of a user's own may refuse in any way
            self._text += f"\n(cannot be pickled: {type(reason).__name__}: {reason})"

    def exception(self) -> BaseException:
        """The exception, or a RuntimeError in its words where it cannot travel."""
        error: BaseException = RuntimeError(self._plain)
        with suppress(ImportError, AttributeError):  # its module may be importable in the child only
            error = pickle.loads(self._pickled) if self._pickled else error
        error.__cause__ = RemoteTraceback(self._text)
        return error


# ---------------------------------------------------------------------- the child's side
def _run(conn: Connection, variables: Mapping[str, str], load: bytes) -> None:
    """The child's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    fork_server.leave_sigterm_to_parent()
    _watch_parent()
    faulthandler.enable()
    try:
        os.environ.clear()
        os.environ.update(variables)
        target, args = unpickled(load)
        target(conn, *args)
    except BaseException as err:  # whatever it is, the parent tells the user
        if not isinstance(err, Exception):  # in the parent it would mean something else: Ctrl-C, the end
            what = f"called sys.exit({err.code!r})" if isinstance(err, SystemExit) else f"raised {err!r}"
            err = RuntimeError(f"code of the worker {what}").with_traceback(err.__traceback__)
        with suppress(OSError):  # no parent, nobody to tell
            tell(conn, "error", Failure(err))
        os._exit(1)
    os._exit(0)  # threads that an env left behind do not keep it


def _watch_parent() -> None:
    """Die with the fork server, by the kernel, and with the parent itself, by a thread that watches it."""
    fork_server.end_with_parent()
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return f"was killed by {signal.Signals(number).name} (exit code {-number})"
    return f"was killed by signal {number} (exit code {-number})"
