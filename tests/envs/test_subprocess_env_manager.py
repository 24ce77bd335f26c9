"""Worker processes give the numbers of the base manager, and what goes wrong in them is said in the parent."""

import functools
import gc
import os
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.data import tree_index, tree_leaves, tree_map
from ding_like.envs import BaseEnvManager, EnvError
from ding_like.envs.env_manager.subprocess_env_manager import SubprocessEnvManager
from ding_like.utils import ENV_MANAGER_REGISTRY, ENV_REGISTRY
from ding_like.utils.child import RemoteTraceback
from tests.envs.toys import AnySpace, Boom, Count, CountDict
from tests.envs.worker_helpers import FIELDS, actions_of, same, same_step, subprocesses
from tests.envs.worker_toys import ACTIONS, Diary, Fate


# ------------------------------------------------------------------ the numbers
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", sorted(ACTIONS))
def test_hundreds_of_steps_are_those_of_the_base_manager(made, kind, masked, workers):
    fns = [functools.partial(Diary, kind, masked)] * 5
    base, ours = BaseEnvManager(fns), made(*fns, workers=workers)
    same(ours.launch(4), base.launch(4))
    rng, ends = np.random.default_rng(0), 0
    for _ in range(200):
        action = actions_of(base, rng, 5)
        a, b = ours.step(action), base.step(action)
        same_step(a, b, ours.take_finished(), base.take_finished())
        same(ours.ready_obs, base.ready_obs)
        assert (ours.ready_obs is a.obs) == (base.ready_obs is b.obs)
        ends += int(b.done.sum())
    assert ends > 30


@pytest.mark.parametrize("groups, workers", [(2, 2), (2, 3), (3, 3), (1, 2)])
def test_groups_in_turn_give_the_same_numbers(made, groups, workers):
    """Every group acts on its own newest rows while the others are stepped."""
    fns = [functools.partial(Diary, "discrete", True)] * 7
    base, ours = BaseEnvManager(fns), made(*fns, workers=workers)
    same(ours.launch(1), base.launch(1))
    parts = ours.groups(groups)
    assert np.concatenate(parts).tolist() == list(range(7))
    rng, wanted = np.random.default_rng(0), {g: [] for g in range(groups)}
    for _ in range(100):
        act = actions_of(base, rng, 7)
        step = base.step(act)
        for g, columns in enumerate(parts):
            wanted[g].append((act[columns], tree_index(step, columns), base.ready_obs))
    for g, columns in enumerate(parts):
        ours.send(wanted[g][0][0], columns)
    for t in range(100):
        for g, columns in enumerate(parts):
            got = ours.recv(columns)
            for name in FIELDS:
                same(got[name], wanted[g][t][1][name])
            ready = tree_index(wanted[g][t][2], columns)
            assert (ours.ready(columns) is got.obs) == (not got.done.any())
            same(ours.ready(columns), ready)
            if rng.random() < 0.5:
                same(tree_index(ours.ready_obs, columns), ready)
            if t < 99:
                ours.send(wanted[g][t + 1][0], columns)
    assert sorted(map(str, ours.take_finished())) == sorted(map(str, base.take_finished()))


def test_whole_episodes_of_some_columns_as_an_evaluation_plays_them(made):
    """Without auto reset: subsets in any order, resets by hand, a seed for every episode."""
    fns = [functools.partial(Diary, "discrete", True)] * 5
    kwargs = dict(role="eval", auto_reset=False, seed_every_episode=True)
    base, ours = BaseEnvManager(fns, **kwargs), made(*fns, **kwargs)
    rng = np.random.default_rng(3)
    for _ in range(2):
        same(ours.launch(9), base.launch(9))
        active = np.array([3, 0, 4, 1, 2])
        for _ in range(60):
            action = actions_of(base, rng, len(active))
            a, b = ours.step(action, active), base.step(action, active)
            same_step(a, b, ours.take_finished(), base.take_finished())
            same(ours.ready_obs, base.ready_obs)
            ended = active[b.done]
            if len(ended):
                with pytest.raises(EnvError, match="have ended; call reset"):
                    ours.step(action, active)
            same(ours.reset(ended), base.reset(ended))
            active = rng.permutation(5)[: rng.integers(1, 6)]


def test_rows_that_were_given_out_never_change(made):
    """Case B50."""
    manager = made(*[lambda: CountDict(4, mutate=True)] * 2)
    kept = [manager.launch(0)]
    steps = [manager.step(np.zeros(2, int)) for _ in range(3)]
    kept += [step.obs for step in steps] + [manager.ready_obs]
    assert [tree_leaves(obs)[0][:, 0].tolist() for obs in kept] == [[t, t] for t in (0, 1, 2, 3, 3)]


@pytest.mark.parametrize("space", [spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Box(-1, 1, (2,), np.float64)})])
def test_actions_of_a_tree_space_reach_the_env_as_they_are(made, space):
    fns = [lambda: Echo(space)] * 3
    base, ours = BaseEnvManager(fns), made(*fns)
    base.launch(0), ours.launch(0)
    action = {"a": np.array([1, 2, 3]), "b": np.arange(6.0).reshape(3, 2) / 10}
    assert ours.step(action).reward.tolist() == base.step(action).reward.tolist()
    assert ours.step(tree_map(lambda x: x[:1], action), [2]).reward.tolist() == pytest.approx([1.1])


class Echo(AnySpace):
    """Its reward is the sum of its action."""

    def __init__(self, action_space):
        super().__init__(spaces.Box(-1, 1, (1,), np.float32), action_space)

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, float(sum(np.sum(leaf) for leaf in tree_leaves(action))), *rest


# ------------------------------------------------------------------ workers
def test_the_names_of_the_manager():
    names = ("subprocess", "async_subprocess", "subprocess_v2", "async_subprocess_v2")
    assert {ENV_MANAGER_REGISTRY.get(name) for name in names} == {SubprocessEnvManager}


def test_workers_hold_columns_side_by_side_at_most_one_each(made):
    assert made(*[Count] * 5, workers=2).workers == [range(3), range(3, 5)]
    manager = made(*[Count] * 2, workers=9)
    assert manager.workers == [range(1), range(1, 2)]
    with pytest.raises(ValueError, match="3 groups of columns need as many workers; there are 2"):
        manager.groups(3)


def test_infos_are_tuples_of_dicts_that_pickle(made):
    manager = made(*[Diary] * 3)
    manager.launch(0)
    infos = [manager.step(np.zeros(3, int)).info for _ in range(4)][-1]
    assert isinstance(infos, tuple) and len(infos) == 3 and infos[0] is infos[0]
    assert [set(info) for info in infos[1:]] == [set(info) for info in infos][1:]
    assert [set(info) for info in pickle.loads(pickle.dumps(infos))] == [set(info) for info in infos]


def test_an_info_of_a_class_of_the_script_arrives_and_one_that_cannot_is_named(made):
    class Local:
        three = 3

    class Tells(Count):
        what = Local

        def step(self, action):
            obs, *rest, _ = super().step(action)
            return obs, *rest, {"it": self.what()}

    class TellsLock(Tells):
        what = staticmethod(lambda: __import__("threading").Lock())

    manager = made(Tells)
    manager.launch(0)
    assert manager.step([0]).info[0]["it"].three == 3
    manager = made(TellsLock)
    manager.launch(0)
    with pytest.raises(EnvError, match=r"the info that step\(\) returned cannot go to another process \(TypeError"):
        manager.step([0])


def test_nothing_is_left_behind_when_a_manager_is_closed(made):
    made(Count, Count).close()  # starts the fork server, which stays
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    manager = subprocesses(*[functools.partial(CountDict, 5)] * 4)
    manager.launch(0)
    for _ in range(10):
        manager.step(np.zeros(4, int))
    pids = [worker.child.pid for worker in manager._crew.workers]
    manager.close()
    manager.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    with pytest.raises(EnvError, match="is closed; make a new one"):
        manager.launch(0)
    del manager
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


# ------------------------------------------------------------------ mistakes
@pytest.mark.parametrize("where", ["init", "reset", "step", "close"])
def test_an_error_of_an_env_arrives_with_its_traceback(made, where):
    """Case B46."""

    def play():
        manager = made(Count, lambda: Count(100), lambda: Boom(where), role="eval")
        manager.launch(0)
        for _ in range(8):
            manager.step(np.zeros(3, int))
        manager.close()

    with pytest.raises(EnvError) as error:
        play()
    assert all(word in str(error.value) for word in ("column 2 (eval)", "RuntimeError", "boom-7"))
    cause = error.value.__cause__
    assert isinstance(cause, RemoteTraceback) and 'raise RuntimeError("boom-7")' in str(cause)


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_sys_exit_in_an_env_is_an_error_of_it(made, where):
    with pytest.raises(EnvError, match=r"env worker 1 \('.*', column 1, collect\).*sys\.exit\(3\)") as error:
        manager = made(lambda: Count(100), functools.partial(Fate, "sysexit", 0, where))
        manager.launch(0)
        manager.step([0, 0])
    assert "in _meet" in str(error.value.__cause__)


def test_mistakes_of_the_caller_leave_the_manager_going(made):
    manager = made(Count, Count, Count)
    with pytest.raises(EnvError, match="call launch"):
        manager.step(np.zeros(3, int))
    manager.launch(0)
    with pytest.raises(ValueError, match=r"actions have shape \(2,\); wanted \(3,\)"):
        manager.step([0, 1])
    with pytest.raises(IndexError, match=r"no env columns \[1, 3\]; wanted some of 0 to 2"):
        manager.step([0, 1], [1, 3])
    with pytest.raises(EnvError, match=r"no step of columns \[0, 1, 2\] is under way"):
        manager.recv()
    manager.send([0], [2])
    with pytest.raises(EnvError, match="are being stepped; call recv"):
        manager.send([0, 0, 0])
    assert manager.recv([2]).obs.tolist() == [[1.0]]
    assert manager.step([0, 0, 0]).obs.tolist() == [[1.0], [1.0], [2.0]]


def test_a_step_that_nobody_received_is_dropped_by_a_launch(made):
    manager = made(Count, Count)
    manager.launch(0)
    manager.send([0, 0])
    assert manager.launch(0).tolist() == [[0.0], [0.0]]
    assert manager.step([0, 0]).obs.tolist() == [[1.0], [1.0]]


def test_columns_of_different_workers_with_different_spaces_are_an_error():
    with pytest.raises(EnvError, match=r"column 1 \(CountDict\) has the observation_space .*, column 0 \(Count\)"):
        subprocesses(Count, CountDict)


def test_a_factory_that_cannot_be_sent_is_named():
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match=r"env worker 0 .*cannot be sent to another process .TypeError: cannot pickle"):
        subprocesses(lambda: (lock, Count())[1], Count)


def test_no_columns_is_an_error():
    with pytest.raises(ValueError, match="env_fns is empty"):
        SubprocessEnvManager([])


# ------------------------------------------------------------------ registrations
def test_what_was_registered_in_this_process_is_known_in_workers(made):
    class Here(Count):
        """Not importable anywhere."""

    gymnasium.register("HereOnly-v0", entry_point=lambda: Here(3))
    ENV_REGISTRY.register("here", Here)
    try:
        manager = made(lambda: gymnasium.make("HereOnly-v0"), lambda: ENV_REGISTRY.get("here")())
    finally:
        del gymnasium.registry["HereOnly-v0"]
    assert manager.launch(0).tolist() == [[0.0], [0.0]] and manager.env_name == "HereOnly-v0"
