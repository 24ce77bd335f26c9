"""Workers that die, hang or raise: what is done then, and how long each may take."""

import functools
import os
import pickle
import signal
import time

import pytest

from ding_like.utils.child import Child, ChildTimeout, tell
from ding_like.utils.workers import Worker, Workers, split_columns
from tests.utils.children import obey


def start(number, incarnation):
    return Child(f"worker {number}", introduced, (incarnation,))


def introduced(conn, incarnation):
    tell(conn, "made", pickle.dumps(incarnation))
    obey(conn)


def leave(conn, incarnation):
    os._exit(7)


class Lost(Exception):
    pass


class Team(Workers[Worker]):
    error = Lost

    def __init__(self, count, on_death="raise", max_restarts=0, limit=None, kind=Worker):
        super().__init__(on_death, max_restarts)
        for number in range(count):
            self.workers.append(kind(number, (2 * number, 2 * number + 2), functools.partial(start, number), limit))
        assert self.begin() == [0] * count
        for worker in self.workers:
            worker.live = True

    def welcome(self, worker, made):
        assert made == worker.incarnation
        worker.ask("echo", "hello")

    def kill(self, number):
        os.kill(self.workers[number].child.pid, signal.SIGKILL)
        return self.ask("echo", {self.workers[number]: 0})


@pytest.fixture
def team():
    made = []
    yield lambda *args, **kwargs: made.append(Team(*args, **kwargs)) or made[-1]
    for one in made:
        one.end(0.0)


def test_columns_stand_side_by_side_at_most_one_worker_each():
    for total in range(1, 12):
        for workers in range(1, 14):
            parts = split_columns(total, workers)
            assert [b for first, end in parts for b in range(first, end)] == list(range(total))
            sizes = {end - first for first, end in parts}
            assert len(parts) == min(total, workers) and max(sizes) - min(sizes) <= 1


def test_workers_answer_what_they_are_asked(team):
    crew = team(3)
    assert crew.ask("echo", {worker: worker.number for worker in crew.workers}) == dict(zip(crew.workers, range(3)))
    assert not any(worker.busy or worker.speaks for worker in crew.workers)


# ------------------------------------------------------------------ deaths
@pytest.mark.parametrize(
    ("on_death", "mended", "told"),
    [
        ("raise", 0, r"SIGKILL .*set policy\.collect\.collector\.on_worker_death to 'restart' or 'shrink'"),
        ("restart", 2, r"SIGKILL .*after 2 restarts \(collector.max_restarts\)"),
        ("shrink", 2, "SIGKILL .*it was the last worker"),
    ],
)
def test_deaths_are_mended_as_often_as_is_wanted_then_raised_and_nobody_is_left(team, on_death, mended, told):
    crew = team(3, on_death, max_restarts=2)
    for k in range(mended):
        assert crew.kill(k) == {}
        worker = crew.workers[k]
        assert worker.lost and worker.gone == (on_death == "shrink")
        crew.wait_for(crew.workers, every=True)
        assert worker.live == (on_death == "restart") and worker.first == ("hello" if worker.live else None)
    with pytest.raises(Lost, match=rf"worker 2 \(pid \d+\) .*{told}"):
        crew.kill(2)
    assert crew.over and all(worker.gone and not worker.child.alive for worker in crew.workers)


def test_a_death_before_all_have_made_their_envs_is_raised_whatever_is_said_of_deaths(team, monkeypatch):
    monkeypatch.setattr("tests.utils.test_workers.introduced", leave)
    with pytest.raises(Lost, match=r"worker 0 .* exited with code 7, making its envs"):
        team(2, "restart", max_restarts=5)


def test_what_a_worker_raises_is_no_death_and_ends_all(team):
    crew = team(2, "restart", max_restarts=5)
    with pytest.raises(KeyError, match="boom") as caught:
        crew.ask("raise", {crew.workers[1]: KeyError("boom")})
    assert caught.value.__notes__ == ["in worker 1"] and crew.restarts == 0
    assert not any(worker.child.alive for worker in crew.workers)


# ------------------------------------------------------------------ time
class Working(Worker):
    """Is seen at work three times."""

    seen = 0

    def _moved(self):
        self.seen += 1
        return self.seen <= 3


@pytest.mark.parametrize(
    ("kind", "in_step", "answers"), [(Worker, True, False), (Worker, False, True), (Working, True, True)]
)
def test_a_step_may_take_so_long_after_the_last_that_was_seen(team, kind, in_step, answers):
    worker = team(1, limit=0.2, kind=kind).workers[0]
    worker.ask("call", functools.partial(time.sleep, 0.45), in_step=in_step)
    assert not worker.speaks
    if answers:
        assert worker.answer() == ("called", None)
    else:
        with pytest.raises(ChildTimeout, match=r"worker 0 \(pid \d+\) timed out after 0\.2 s"):
            worker.answer()


def test_a_worker_that_owes_nothing_is_never_late(team):
    worker = team(1, limit=0.05).workers[0]
    worker.tell("nothing", in_step=True)
    time.sleep(0.1)
    assert not worker.speaks
    worker.busy += 1
    assert worker.speaks
