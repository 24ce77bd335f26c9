"""A manager of worker processes goes on exactly where its state was taken, with any number of workers."""

import copy
import functools
import pickle

import numpy as np
import pytest

from ding_like.envs import BaseEnvManager
from tests.envs.toys import Count
from tests.envs.worker_helpers import actions_of, same, same_step
from tests.envs.worker_toys import Diary

FNS = [functools.partial(Diary, "multi_discrete", True)] * 5


def manager_of(made, workers):
    return BaseEnvManager(FNS) if workers == 0 else made(*FNS, workers=workers)


def play(manager, steps, seed):
    rng = np.random.default_rng(seed)
    return [manager.step(actions_of(manager, rng, 5)) for _ in range(steps)]


@pytest.mark.parametrize("before, after", [(2, 2), (2, 3), (3, 1), (2, 0), (0, 1)])
def test_the_steps_after_a_resume_are_those_that_would_have_come(made, before, after):
    """0 stands for the base manager."""
    first = manager_of(made, before)
    first.launch(3)
    play(first, 30, 0)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    first.take_finished()
    second = manager_of(made, after)
    second.load_state_dict(copy.deepcopy(state))
    assert second.not_exact is None
    same(second.ready_obs, first.ready_obs)
    for a, b in zip(play(second, 60, 1), play(first, 60, 1)):
        same_step(a, b, [], [])
    assert second.take_finished() == first.take_finished()
    same(second.ready_obs, first.ready_obs)


def test_the_state_is_that_of_the_base_manager(made):
    base, ours = BaseEnvManager(FNS), made(*FNS, workers=2)
    for manager in (base, ours):
        manager.launch(3)
        play(manager, 30, 0)
    a, b = ours.state_dict(), base.state_dict()
    assert a.keys() == b.keys() and len(a["envs"]) == 5
    for key in ("seed", "restarts", "running", "resets", "waiting", "not_exact"):
        assert a[key] == b[key]
    for key in ("returns", "lengths", "ready_obs"):
        same(a[key], b[key])


def test_a_snapshot_of_all_columns_together_starts_new_episodes_in_several_workers(made):
    base, ours = BaseEnvManager(FNS), made(*FNS, workers=2)
    base.launch(3)
    play(base, 10, 0)
    begun = base.ready_obs
    ours.load_state_dict(base.state_dict())
    assert "written down together" in ours.not_exact
    assert (ours.ready_obs["see"]["n"] == 0).all()
    before = ours.ready_obs["see"]["deep"].copy()
    again = made(*FNS, workers=3)
    again.load_state_dict(ours.state_dict() | {"envs": None, "not_exact": "for a test"})
    assert not np.isin(again.ready_obs["see"]["deep"], [before, begun["see"]["deep"]]).any()
    play(again, 3, 0)


class NoPickle(Count):
    """`Count` whose state cannot be written down."""

    def __reduce__(self):
        raise TypeError("not me")


def test_envs_without_a_snapshot_start_new_episodes_and_it_is_said(made):
    first = made(NoPickle, Count, NoPickle, workers=2)
    first.launch(0)
    first.step([0, 0, 0])
    state = first.state_dict()
    assert "not me" in state["not_exact"]
    second = made(NoPickle, Count, NoPickle, workers=3)
    second.load_state_dict(state)
    assert "not me" in second.not_exact
    assert second.ready_obs.tolist() == [[0.0]] * 3
    assert second.step([0, 0, 0]).obs.tolist() == [[1.0]] * 3


def test_another_number_of_columns_is_an_error(made):
    manager = made(Count, Count)
    with pytest.raises(ValueError, match="the saved run has 3 env columns, this one 2"):
        manager.load_state_dict(made(Count, Count, Count).state_dict())
