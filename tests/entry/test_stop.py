import os
import signal
import threading

import pytest

from ding_like.entry.stop import Terminated, exit_is_an_error, stop_requests


def _terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(10**6):  # the handler runs between two instructions
        pass


def test_sigterm_raises_once_and_the_handler_is_put_back():
    with pytest.raises(Terminated), stop_requests():
        try:
            _terminate()
        finally:
            _terminate()  # the second is ignored, so that the first can save
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_of_the_programs_own_is_left_alone():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with stop_requests():
            _terminate()
        assert seen == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("signum", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_the_first_request_may_wait_and_the_second_does_not(signum, error):
    with stop_requests() as request:
        request.deferring = True
        os.kill(os.getpid(), signum)
        for _ in range(10**5):
            pass
        assert type(request.error) is error
        with pytest.raises(error):
            os.kill(os.getpid(), signum)
            for _ in range(10**6):
                pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_nothing_is_installed():
    seen = []

    def work():
        with stop_requests():
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
