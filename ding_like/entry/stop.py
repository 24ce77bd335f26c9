"""Ends of a run that come from outside its loop: SIGTERM, Ctrl-C, and sys.exit() in code that it calls."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ding_like.utils.log import get_logger


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It goes the way of Ctrl-C, past every `except Exception`."""


class StopRequest:
    """Whether somebody asked the run to stop.

    Attributes:
        deferring: while True the first request is kept in `error`, for the loop to raise at the end of its round; a
            second one raises at once, as every one does otherwise.
        error: what to raise.
    """

    def __init__(self) -> None:
        self.deferring = False
        self.error: BaseException | None = None

    def _handle(self, signum: int, *_: Any) -> None:
        error = Terminated("SIGTERM") if signum == signal.SIGTERM else KeyboardInterrupt()
        if self.deferring and self.error is None:
            self.error = error
            get_logger().info("stopping at the end of this round, so that --resume goes on from here; again: at once")
            return
        if signum == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the first must be able to save
        raise error


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """In here SIGTERM raises `Terminated` (a second one is ignored) and Ctrl-C KeyboardInterrupt, or both wait for the
    end of a round, as the `StopRequest` says.

    Does nothing outside the main thread, or to a signal for which the program has a handler of its own.
    """
    request, put_back = StopRequest(), {}
    if threading.current_thread() is threading.main_thread():
        for signum, usual in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(signum) == usual:
                put_back[signum] = signal.signal(signum, request._handle)
    try:
        yield request
    finally:
        for signum, handler in put_back.items():
            signal.signal(signum, handler)


def exit_message(error: SystemExit) -> str:
    """What is said where code of the user's calls sys.exit()."""
    code = "" if error.code is None else repr(error.code)
    return f"the run's own code called sys.exit({code}), which ends nothing here; raise an error instead"


@contextmanager
def exit_is_an_error() -> Iterator[None]:
    """SystemExit becomes a RuntimeError that says so: a run that stops midway must not look like a success."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(exit_message(error)) from error
