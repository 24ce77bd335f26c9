"""Workers of the local sampler: what goes wrong in them is said here, by name, and nothing is left of them."""

import functools
import os
import pickle
import signal
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.distributed.group import WorkerError
from ding_like.envs import EnvError
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.child import RemoteTraceback
from tests.distributed.parts import (
    Collecting,
    Elementwise,
    is_gone,
    make_manager,
    open_files,
    policy_maker,
    processes,
    wait_until,
    within,
)
from tests.envs.toys import Boom, Count
from tests.envs.worker_toys import Diary, Fate

ONE = dict(obs_shape=1, action_shape=2)


def first_two(**over):
    return policy_maker(DQNPolicy, functools.partial(Elementwise, 1), **over)


class Blunt(DQNPolicy):
    """Its `_process_transition` makes a mistake where `wrong` says."""

    wrong = ""

    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        if self.wrong == "raise":
            raise KeyError("no such thing")
        if self.wrong == "columns" and self._shapes["columns"][0] > 0:
            row["extra"] = timestep.reward
        return row


class Raising(Blunt):
    wrong = "raise"


class Uneven(Blunt):
    wrong = "columns"


@pytest.fixture(autouse=True)
def _in_time():
    with within(60):
        yield


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_error_of_an_env_arrives_with_its_traceback_and_names_column_and_worker(where):
    fns = [Count, Count, functools.partial(Boom, where), Count]
    with pytest.raises(EnvError, match=r"column 2 .*boom-7") as caught, run(fns) as one:
        one.collect(20)
    told = caught.value
    assert (isinstance(told.__cause__, RemoteTraceback) and "in step" in str(told.__cause__)) or where != "step"
    assert "toys.py" in str(told.__cause__)
    assert told.__notes__ == ["in sampler worker 1 (env columns 2 to 3)"]


def run(fns, make=None, workers=2, **settings):
    return Collecting("local", workers, make or first_two(**ONE), fns, 8, **settings)


def test_an_error_of_an_envs_close_is_raised_at_the_end():
    one = run([Count, functools.partial(Boom, "close")])
    one.collect(2)
    pids = processes(one.manager)
    with pytest.raises(EnvError, match=r"column 1 .*close\(\) raised RuntimeError.*boom-7"):
        one.close()
    assert all(is_gone(pid) for pid in pids)
    one.close()


@pytest.mark.parametrize("death", ["raise", "restart"])
def test_an_error_in_the_policys_own_code_is_raised_whatever_is_said_of_deaths(death):
    make = policy_maker(Raising, functools.partial(Elementwise, 1), **ONE)
    with pytest.raises(KeyError, match="no such thing") as caught, run([Count] * 2, make, on_worker_death=death) as one:
        one.collect()
    assert "_process_transition" in str(caught.value.__cause__)
    assert "in sampler worker 0 (env columns 0 to 0)" in caught.value.__notes__


def test_rows_of_other_fields_in_another_worker_are_an_error_that_names_it():
    make = policy_maker(Uneven, functools.partial(Elementwise, 1), **ONE)
    told = r"first row of sampler worker 1 .*extra.*every column needs"
    with pytest.raises(ValueError, match=told), run([Count] * 2, make) as one:
        one.collect()


@pytest.mark.parametrize(("fate", "told"), [("exit", "exited with code 7"), ("kill", "killed by SIGKILL")])
@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_env_that_ends_its_process_is_a_death_that_names_worker_and_columns(where, fate, told):
    fns = [Count, functools.partial(Fate, fate, 5, where)]
    told = rf"sampler worker 1 \(env columns 1 to 1\) \(pid \d+\) .*{told}"
    with pytest.raises(WorkerError, match=told), run(fns) as one:
        one.collect(10)


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_sys_exit_in_an_env_is_an_error_of_it(where):
    fns = [Count, functools.partial(Fate, "sysexit", 5, where)]
    with pytest.raises((EnvError, RuntimeError), match=r"sys\.exit") as caught, run(fns) as one:
        one.collect(10)
    assert not isinstance(caught.value, WorkerError)


def test_an_env_that_dies_again_and_again_uses_up_the_restarts():
    fns = [Count, functools.partial(Fate, "exit", 5, "step")]
    settings = dict(on_worker_death="restart", max_restarts=2)
    with pytest.raises(WorkerError, match=r"after 2 restarts \(collector.max_restarts\)"), run(fns, **settings) as one:
        one.collect(10**6)  # how many it takes depends on the time that a process needs to start


@pytest.mark.parametrize("death", ["raise", "restart"])
def test_envs_of_two_workers_of_three_that_end_their_processes_in_the_first_step_end_the_run(death):
    fns = [Count, *[functools.partial(Fate, "exit", 0, "step")] * 2]
    settings = dict(workers=3, on_worker_death=death, max_restarts=2)
    with pytest.raises(WorkerError, match="exited with code 7") as caught, run(fns, **settings) as one:
        one.collect(10**6)
    assert isinstance(caught.value, EnvError)  # one class for whatever goes wrong with the envs of any sampler


class Locked(Elementwise):
    """A network that cannot be pickled."""

    def __init__(self):
        super().__init__(1)
        self.lock = threading.Lock()


def test_what_cannot_be_sent_to_a_worker_is_named_with_a_remedy():
    with run([Count] * 2):
        pass
    files, lock = open_files(), threading.Lock()
    told = (
        r"sampler workers: the env factory cannot be sent to another process .*lock.* set policy\.collect\..*'serial'"
    )
    with pytest.raises(TypeError, match=told):
        run([lambda: (lock, Count())[1]] * 2)
    told = (
        r"sampler worker 0 \(.*: its policy cannot be sent to another process .*lock.* set policy\.collect\..*'serial'"
    )
    with pytest.raises(TypeError, match=told):
        made = Locked()
        Collecting("local", 2, functools.partial(_with, made), [Count] * 2, 8)
    assert open_files() == files


def _with(made, seed=0, shapes=None, fields=None):
    return first_two(**ONE)(seed, {**(shapes or {}), "model": made}, fields)


def test_a_process_that_does_not_start_leaves_no_file(monkeypatch):
    def refuse(*_):
        raise OSError("no more processes")

    with run([Count] * 2):
        pass
    files = open_files()
    monkeypatch.setattr("ding_like.distributed.group.Child", refuse)
    with pytest.raises(OSError, match="no more processes"):
        run([Count] * 2)
    assert open_files() == files


def test_the_last_worker_cannot_be_done_without():
    fns = [functools.partial(Fate, "exit", 5, "step")] * 2
    with pytest.raises(WorkerError, match="it was the last worker"), run(fns, on_worker_death="shrink") as one:
        one.collect(200)


def test_a_step_that_hangs_is_a_death_after_the_time_limit():
    fns = [Count, functools.partial(Fate, "hang", 5, "step")]
    start = time.monotonic()
    with (
        pytest.raises(WorkerError, match=r"worker 1 .*timed out after 0\.5 s"),
        run(fns, step_timeout=0.5) as one,
    ):
        one.collect(10)
    assert time.monotonic() - start < 30


def test_a_worker_that_dies_before_its_first_row_is_replaced(tmp_path):
    fns = [functools.partial(Fate, "kill", 0, "step", str(tmp_path / f"once{b}")) for b in range(2)]
    with run(fns, on_worker_death="restart") as one:
        one.collect(5)
        assert one.manager.restarts == 2 and one.collector.envstep > 0


def test_spaces_that_differ_from_worker_to_worker_are_an_error():
    with pytest.raises(EnvError, match=r"column 1 \(Diary\) has the observation_space .*all columns of a manager need"):
        make_manager("local", 2, [Count, Diary])


# ---------------------------------------------------------------- nothing is left
def test_nothing_is_left_behind_and_closing_twice_is_fine():
    with run([Count] * 4) as one:
        one.collect(3)
    del one
    files = open_files()
    one = run([Count] * 4)
    one.collect(3)
    pids = processes(one.manager)
    assert len(pids) == 2
    one.close()
    one.close()
    assert all(is_gone(pid) for pid in pids)
    del one
    assert open_files() == files


def test_an_error_of_the_constructor_leaves_no_process_and_no_file():
    with run([Count] * 2):
        pass
    files = open_files()
    for _ in range(2):
        with pytest.raises(EnvError, match="boom-7"):
            run([Count, functools.partial(Boom, "init")])
    assert open_files() == files


def test_a_worker_in_the_middle_of_a_block_is_ended_with_the_others():
    one = run([functools.partial(Fate, "hang", 5, "step"), Count])
    one.collector.start()
    one.collector._begin(100, False)
    pids = processes(one.manager)
    start = time.monotonic()
    one.close()
    assert time.monotonic() - start < 10 and all(is_gone(pid) for pid in pids)


@pytest.mark.system
def test_workers_ignore_an_interrupt_that_reaches_all_processes():
    with run([Count] * 2) as one:
        one.collect()
        for pid in processes(one.manager):
            os.kill(pid, signal.SIGINT)
        one.collect(3)
        assert one.collector.envstep == 32


class Keeper(gymnasium.Env):
    """Infos that cannot be pickled, at every end."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.float32([self.t]), 1.0, self.t == 3, False, {"f": lambda: None}


def test_infos_stay_in_the_worker():
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(lambda: None)
    with run([Keeper] * 2) as one:
        one.collect(3)
        assert one.collector.episode_count == 8


def test_what_is_begun_and_not_waited_for_is_in_the_next_collect():
    with run([Count] * 4) as one, Collecting("serial", 0, first_two(**ONE), [Count] * 4, 8) as other:
        for _ in range(4):
            one.collector.begin()
            one.collector.begin()
            wait_until(lambda: True)
            one.collect()
            other.collect()
        assert one.collector.envstep == other.collector.envstep == 32
        for a, b in zip(one.items, other.items):
            assert np.array_equal(a["obs"], b["obs"]) and np.array_equal(a["action"], b["action"])
