"""How the process that forks our children is started; imported by it before its first child.

Importing this there has an effect: the kernel then ends the fork server with the program, and with it all children,
also stopped ones and those that are stuck in a library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
STARTED_BY = "DING_LIKE_FORK_SERVER_OF"
PR_SET_PDEATHSIG = 1
_server: int | None = None  # the fork server that this module was imported by


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux). Ends it where its parent is not
    `parent` (None: the fork server), as that has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = _server if parent is None else parent
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def leave_sigterm_to_parent() -> None:
    """SIGTERM, which may come to all processes of a program at once, is for the first of them to act on.

    A handler, as a program that this process starts would inherit that a signal is ignored; and one for itself alone,
    as processes that it forks inherit handlers.
    """
    own = os.getpid()

    def handle(signum: int, _: object) -> None:
        if os.getpid() != own:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, handle)


@contextmanager
def environment() -> Iterator[None]:
    """What a fork server starts with: one thread for each process, as they share the cores, and this program's path."""
    ours = dict.fromkeys(THREAD_VARIABLES, "1")
    ours["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if threading.current_thread() is threading.main_thread():  # any other may end before the program does
        ours[STARTED_BY] = str(os.getpid())
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if os.environ.get(STARTED_BY) == str(os.getppid()):
    end_with_parent(os.getppid())
    leave_sigterm_to_parent()
    _server = os.getpid()
