"""Ends of a run that come from outside its loop: SIGTERM, and sys.exit() in code that it calls."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM came. It goes the way of Ctrl-C, past every `except Exception`."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises `Terminated` in here; a second one is ignored, so that the first can save.

    Does nothing outside the main thread, or where the program has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def handler(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated("SIGTERM")

    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
