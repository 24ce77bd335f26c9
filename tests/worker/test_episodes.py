"""The statistics of training episodes, of one task and of several."""

import pytest

from ding_like.worker.collector.episodes import EpisodeLog


def episodes(*returns, column=0):
    common = dict(column=column, info={})
    return [dict(common, return_=float(r), return_raw=10.0 * r, length=k) for k, r in enumerate(returns)]


def test_without_tasks_they_are_of_the_last_hundred_episodes():
    log = EpisodeLog()
    assert log.statistics() == {}
    for k in range(130):
        log.add(episodes(k))
    assert log.count == 130 and [e["return_"] for e in log.last()[0]] == list(range(30, 130))
    assert log.statistics() == {"return": 79.5, "return_raw": 795.0, "length": 0, "episodes": 130}


def test_more_than_a_hundred_at_once_are_cut_to_the_last():
    log = EpisodeLog()
    log.add(episodes(*range(250)))
    assert [e["return_"] for e in log.last()[0]] == list(range(150, 250))


def test_each_task_has_the_episodes_of_its_columns_and_the_mean_is_over_tasks():
    log = EpisodeLog(["a", "b", "c"])
    log.add([*episodes(1, 3, column=3), *episodes(10, column=4)])
    log.add(episodes(5, column=0))
    told = log.statistics()
    assert told == {
        "return": (3 + 10) / 2,
        "return/a": 3,
        "return/b": 10,
        "return_raw": (30 + 100) / 2,
        "return_raw/a": 30,
        "return_raw/b": 100,
        "length": pytest.approx((1 / 3 + 0) / 2),
        "length/a": pytest.approx(1 / 3),
        "length/b": 0,
        "episodes": 4,
    }


def test_a_task_of_many_episodes_does_not_push_out_those_of_another():
    log = EpisodeLog(["short", "long"])
    log.add(episodes(7, column=1))
    for _ in range(300):
        log.add(episodes(1, column=0))
    assert log.statistics()["return/long"] == 7 and [len(some) for some in log.last()] == [100, 1]


@pytest.mark.parametrize("tasks", [(), ("a", "b")])
def test_a_restored_log_goes_on_as_the_first(tasks):
    one, other = EpisodeLog(tasks), EpisodeLog(tasks)
    one.add([*episodes(1, 2, column=0), *episodes(3, column=1)])
    other.load_state_dict(one.state_dict())
    assert all("info" not in episode for some in one.state_dict()["last"] for episode in some)
    for log in (one, other):
        log.add(episodes(*range(99), column=2))
    assert one.statistics() == other.statistics() and one.state_dict() == other.state_dict()
