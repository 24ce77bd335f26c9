"""Child processes: messages both ways, failures that reach the parent, an end in every case."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ding_like.utils import ENV_REGISTRY, POLICY_REGISTRY
from ding_like.utils.child import (
    Child,
    ChildDied,
    ChildTimeout,
    Failure,
    RemoteTraceback,
    close_all,
    first_ready,
    tell,
)
from tests.helpers import python
from tests.utils.children import Get, Own, obey, registered_names


@pytest.fixture
def child():
    one = Child("worker 0", obey, (3, lambda: 4))
    yield one
    one.close(0.0)


def gone(pid, within=5.0):
    until = time.monotonic() + within
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
    return not os.path.exists(f"/proc/{pid}")


# ------------------------------------------------------------------ messages
@pytest.mark.parametrize("size", [0, 1, 5, 4090, 70_000, 3_000_000])
def test_messages_of_any_size_arrive_both_ways(child, size):
    value = np.random.default_rng(0).bytes(size)
    for _ in range(3):
        child.send("echo", value)
        assert child.recv(20) == ("echo", value)
    child.post(b"p")
    assert child.recv(20) == (b"q", None)


def test_messages_that_wait_come_in_order(child):
    for i in range(200):
        child.send("echo", i) if i % 3 else child.post(b"p")
    got = [child.recv(20) for _ in range(200)]
    assert got == [("echo", i) if i % 3 else (b"q", None) for i in range(200)]
    assert not child.ready()


def test_a_child_may_use_the_connection_itself(child):
    child.send("plain")
    child.conn.send("hello")
    assert child.recv(20) == ("plain", "hello")


def test_a_child_that_sends_and_reads_much_at_once_does_not_lock_up():
    """Both buffers full: the parent does not wait in a write for ever."""
    child = Child("worker 0", obey)
    big = b"x" * 2_000_000
    child.send("echo", big)
    with pytest.raises(ChildTimeout, match="does not read what it is sent"):
        for _ in range(10):
            child.send("echo", big, timeout=0.2)
    child.close(0.0)


def test_functions_that_have_no_name_go_to_a_child(child):
    child.send("call second")
    assert child.recv(20) == ("called", 4)


# ------------------------------------------------------------------ failures
def test_an_exception_arrives_as_itself_with_its_traceback(child):
    child.send("raise", KeyError("x"))
    with pytest.raises(KeyError, match="x") as error:
        child.recv(20)
    assert isinstance(error.value.__cause__, RemoteTraceback) and "in obey" in str(error.value.__cause__)


@pytest.mark.parametrize("unpicklable", [lambda: Own(1, 2), lambda: type("Local", (Exception,), {})("1 and 2")])
def test_an_exception_that_cannot_travel_arrives_in_words(unpicklable):
    def fail(conn):
        raise unpicklable()

    child = Child("worker 0", fail)
    with pytest.raises(RuntimeError, match=r"(Own|Local): 1 and 2") as error:
        child.recv(20)
    assert "in fail" in str(error.value.__cause__)
    child.close(0.0)


def test_sys_exit_is_an_error_of_the_child():
    child = Child("worker 0", lambda conn: sys.exit(3))
    with pytest.raises(RuntimeError, match=r"called sys\.exit\(3\)"):
        child.recv(20)
    child.close(0.0)


@pytest.mark.parametrize("error", [EOFError("end of a file"), BrokenPipeError("of a simulator")])
def test_errors_that_a_lost_parent_would_cause_are_told_while_it_lives(child, error):
    child.send("raise", error)
    with pytest.raises(type(error), match="of a"):
        child.recv(20)


@pytest.mark.parametrize(
    "end, words",
    [
        (lambda: os._exit(5), r"worker 0 \(pid \d+\) exited with code 5"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"was killed by SIGKILL \(exit code -9\); .*memory"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), r"was killed by SIGSEGV \(exit code -11\)"),
    ],
)
def test_a_death_wakes_the_parent_and_says_how(end, words):
    dying = Child("worker 0", lambda conn: end())
    with pytest.raises(ChildDied, match=words):
        dying.recv()
    with pytest.raises(ChildDied, match=words):
        dying.send("echo")
    with pytest.raises(ChildDied, match=words):
        dying.post(b"p")
    assert not dying.alive
    dying.close()


def test_what_a_child_said_last_comes_before_its_death():
    def last_words(conn):
        tell(conn, "last", "words")
        os._exit(1)

    child = Child("worker 0", last_words)
    child.process.join()
    assert child.recv() == ("last", "words")
    with pytest.raises(ChildDied):
        child.recv()
    child.close()


def test_a_failed_send_raises_what_the_child_raised(child):
    child.send("raise", ValueError("boom"))
    child.process.join()
    with pytest.raises(ValueError, match="boom"):
        child.send("echo")


def test_a_death_is_seen_though_a_child_of_the_child_holds_the_pipe():
    def fork_and_die(conn):
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        os._exit(6)

    child = Child("worker 0", fork_and_die)
    began = time.monotonic()
    with pytest.raises(ChildDied, match="exited with code 6"):
        child.recv()
    assert time.monotonic() - began < 2
    child.close()


def test_a_silent_child_times_out_and_its_answer_is_not_lost(child):
    child.send("sleep", 0.3)
    child.post(b"p")
    with pytest.raises(ChildTimeout, match=r"worker 0 \(pid \d+\) did not answer"):
        child.recv(0.05)
    assert child.recv(20) == (b"q", None)


def test_half_a_message_of_a_stopped_child_times_out():
    def half(conn):
        os.write(conn.fileno(), (1000).to_bytes(4, "big") + b"x" * 10)
        os.kill(os.getpid(), signal.SIGSTOP)

    child = Child("worker 0", half)
    assert child.ready(20)
    with pytest.raises(ChildTimeout):
        child.recv(0.2)
    child.kill()
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.recv(0.2)
    child.close()


# ------------------------------------------------------------------ several
def test_the_first_children_that_say_something_are_found():
    children = [Child(f"worker {i}", obey) for i in range(3)]
    assert first_ready(children, 0.05) == []
    children[1].post(b"p")
    assert first_ready(children) == [children[1]]
    children[2].kill()
    children[1].recv()
    assert first_ready(children) == [children[2]]
    for child in children:
        child.close()
        child.close()


def test_close_all_ends_busy_and_stopped_children_within_its_patience():
    children = [Child(f"worker {i}", obey) for i in range(3)]
    pids = [child.pid for child in children]
    children[0].send("sleep", 100)
    os.kill(pids[1], signal.SIGSTOP)
    began = time.monotonic()
    close_all(0.3)
    assert time.monotonic() - began < 3 and all(map(gone, pids))
    assert not any(child.alive for child in children)


def test_no_descriptor_is_left_of_a_closed_child():
    Child("worker 0", obey).close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Child("worker 0", obey).close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_that_is_forgotten_ends():
    child = Child("worker 0", obey)
    pid = child.pid
    del child
    gc.collect()
    assert gone(pid)


# ------------------------------------------------------------------ what a child starts with
def test_a_child_has_the_environment_of_now_and_one_thread(monkeypatch):
    monkeypatch.setenv("DING_LIKE_TEST", "now")
    child = Child("worker 0", obey)
    names = ("DING_LIKE_TEST", "OMP_NUM_THREADS", "PYTHONPATH", "DING_LIKE_FORK_SERVER_OF")
    child.send("call", Get(names))
    assert child.recv(20)[1] == ["now", "1", os.environ.get("PYTHONPATH"), None]
    child.close()


def test_a_child_is_not_stopped_by_ctrl_c(child):
    child.post(b"p")
    assert child.recv(20) == (b"q", None)
    os.kill(child.pid, signal.SIGINT)
    child.post(b"p")
    assert child.recv(20) == (b"q", None)


@pytest.mark.parametrize("kinds, policies", [(None, ["mine_policy"]), (("env",), []), ((), [])])
def test_registrations_go_along(kinds, policies):
    ENV_REGISTRY.register("mine_env", type("Mine", (), {}))
    POLICY_REGISTRY.register("mine_policy", type("Mine", (), {}))
    child = Child("worker 0", registered_names, kinds=kinds)
    names = child.recv(20)[1]
    assert ("mine_env" in names["env"]) == (kinds != ()) and [n for n in names["policy"] if "mine" in n] == policies
    child.close()


def test_what_cannot_be_pickled_is_raised_before_there_is_a_process():
    with pytest.raises(TypeError, match="cannot pickle"):
        Child("worker 0", obey, (threading.Lock(),))


SCRIPT = """
print("once")
from ding_like.utils.child import Child, tell

class Mine:
    number = 7

def main(conn, thing):
    tell(conn, "got", thing.number)

child = Child("worker 0", main, (Mine(),))
print(child.recv(20))
"""


@pytest.mark.system
def test_a_script_without_a_guard_and_without_an_end_works(in_tmp):
    """Its classes go by value, it is not run again, and its open child does not keep it."""
    (in_tmp / "script.py").write_text(SCRIPT)
    done = python("script.py", cwd=in_tmp, timeout=20)
    assert (done.stdout, done.stderr, done.returncode) == ("once\n('got', 7)\n", "", 0)


@pytest.mark.system
def test_a_thread_may_start_the_first_child_and_end(in_tmp):
    """The kernel ends the fork server with the thread that started it, so there it is not asked to."""
    (in_tmp / "script.py").write_text(
        "import threading, time\n"
        "from ding_like.utils.child import Child\n"
        "from tests.utils.children import obey\n"
        "made = []\n"
        "thread = threading.Thread(target=lambda: made.append(Child('worker 0', obey)))\n"
        "thread.start(); thread.join(); time.sleep(0.3)\n"
        "made[0].post(b'p'); print(made[0].recv(20))\n"
    )
    done = python("script.py", cwd=in_tmp, timeout=20)
    assert (done.stdout, done.stderr) == ("(b'q', None)\n", "")


@pytest.mark.system
def test_children_end_with_their_parent_and_with_the_fork_server(in_tmp):
    (in_tmp / "script.py").write_text(
        "import os, time\n"
        "from multiprocessing.forkserver import _forkserver\n"
        "from ding_like.utils.child import Child\n"
        "from tests.utils.children import obey\n"
        "children = [Child('worker', obey) for _ in range(2)]\n"
        "children[0].send('sleep', 1000)\n"
        "print(_forkserver._forkserver_pid, *(child.pid for child in children), flush=True)\n"
        "time.sleep(1000)\n"
    )
    for victim in ("parent", "server"):
        env = {**os.environ, "PYTHONPATH": os.getcwd() + os.pathsep + os.pathsep.join(sys.path)}
        parent = subprocess.Popen([sys.executable, "script.py"], stdout=subprocess.PIPE, env=env, text=True)
        server, *children = map(int, parent.stdout.readline().split())
        os.kill(parent.pid if victim == "parent" else server, signal.SIGKILL)
        assert all(map(gone, children)), victim
        parent.kill()
        parent.communicate()
        assert gone(server)


def test_a_pickled_failure_of_an_error_keeps_its_type_and_arguments():
    error = pickle.loads(pickle.dumps(Failure(OSError(5, "io")))).exception()
    assert isinstance(error, OSError) and error.errno == 5
