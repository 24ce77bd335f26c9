import os
import signal
import threading

import pytest

from ding_like.entry.stop import Terminated, exit_is_an_error, sigterm_raises


def _terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(10**6):  # the handler runs between two instructions
        pass


def test_sigterm_raises_once_and_the_handler_is_put_back():
    with pytest.raises(Terminated), sigterm_raises():
        try:
            _terminate()
        finally:
            _terminate()  # the second is ignored, so that the first can save
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_of_the_programs_own_is_left_alone():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with sigterm_raises():
            _terminate()
        assert seen == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_nothing_is_installed():
    seen = []

    def work():
        with sigterm_raises():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


@pytest.mark.parametrize(("code", "shown"), [(0, "0"), (None, ""), ("bye", "'bye'")])
def test_sys_exit_becomes_an_error_that_says_so(code, shown):
    with pytest.raises(RuntimeError) as caught, exit_is_an_error():
        raise SystemExit(code)
    assert f"called sys.exit({shown}), which ends nothing here; raise an error" in str(caught.value)
