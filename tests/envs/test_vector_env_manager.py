"""Natively batched envs: the same transitions as one by one, none invented, none lost, whatever resets them."""

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.envs import BaseEnvManager, EnvError
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.envs.vector import LazyInfos, VectorColumn, eval_env_fns, make_vec_fn
from ding_like.worker import Replay, SampleCollector
from tests.envs.vector_toys import DeafToMask, Disabled, NoFinal, SameStep, VecDiary, diaries, sync
from tests.helpers import Constant, make_policy
from tests.worker.test_masked_rows import rows
from tests.worker.test_sample_collector import GAMMA, table

BATCHED = [VecDiary, SameStep, Disabled, *(sync(mode) for mode in AutoresetMode)]
COLUMNS = 4


def manager_of(vec, role="collect"):
    return VectorEnvManager(make_vec_fn({}, vec), COLUMNS, role=role)


def collect(manager, rows_=40):
    """Everything a collector stores of so many rows, and what the policy of it was."""
    policy = make_policy(
        obs_shape=3,
        action_shape=3,
        model=Constant(0.0, 0.0, 0.0),
        discount_factor=GAMMA,
        other=dict(eps=dict(start=1.0, end=1.0)),
    )
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": 5 * COLUMNS})
    collector = SampleCollector(cfg, manager, policy.collect_mode)
    store = Replay(CfgDict(replay_buffer_size=5000))
    while collector.envstep < rows_ * COLUMNS:
        collector.collect(store.push)
    ring = store.ring
    address = ring.address(np.arange(ring.slots))
    real = np.setdiff1d(np.arange(ring.slots), ring.idle(address))
    return collector, ring.gather(address[real])


def envs_of(manager):
    vec = manager._vec
    return [env.unwrapped for env in vec.envs]


@pytest.mark.parametrize("vec", BATCHED, ids=lambda vec: vec.__name__)
def test_what_is_stored_is_what_the_envs_did(vec):
    """The envs' own diaries are the oracle: action, reward, true next observation and end of every step."""
    collector, items = collect(manager_of(vec))
    wanted = rows(item for env in envs_of(collector._rows.env) for item in env.items(1))
    assert rows(table(items)) == wanted
    assert collector.envstep == len(wanted)


def without_action(items, counts):
    """Transitions of the first `counts[b]` steps of each column: actions differ, since idle rows draw them too."""
    found = rows(np.delete(table(items), 3, 1))
    return [row for b in range(COLUMNS) for row in [r for r in found if r[0] == b][: counts[b]]]


@pytest.mark.parametrize("vec", BATCHED, ids=lambda vec: vec.__name__)
def test_the_set_of_transitions_is_that_of_single_envs(vec):
    singles = diaries()
    base = BaseEnvManager([lambda env=env: env for env in singles])
    (one, alone), (many, batched) = collect(base), collect(manager_of(vec))
    counts = [min(len(a.steps), len(b.steps)) for a, b in zip(singles, envs_of(many._rows.env), strict=True)]
    assert min(counts) > 20
    assert without_action(batched, counts) == without_action(alone, counts)
    assert one.envstep == len(rows(table(alone)))


@pytest.mark.parametrize("vec", BATCHED, ids=lambda vec: vec.__name__)
def test_episodes_are_counted_with_their_true_length_and_return(vec):
    manager = manager_of(vec)
    manager.launch(0)
    finished = []
    for _ in range(30):
        manager.step(np.zeros(COLUMNS, np.int64))
        finished += manager.take_finished()
    for b, env in enumerate(envs_of(manager)):
        ended = [i + 1 for i, step in enumerate(env.steps) if step[4] or step[5]]
        lengths = np.diff([0, *ended])
        mine = [episode for episode in finished if episode["column"] == b]
        assert [episode["length"] for episode in mine] == lengths.tolist()
        starts = np.cumsum([0, *lengths])
        returns = [sum(s[2] for s in env.steps[i:j]) for i, j in itertools.pairwise(starts)]
        np.testing.assert_allclose([episode["return_"] for episode in mine], returns, rtol=1e-6)


@pytest.mark.parametrize("vec", BATCHED, ids=lambda vec: vec.__name__)
def test_arrays_may_be_kept(vec):
    manager = manager_of(vec)
    manager.launch(0)
    kept = []
    for _ in range(12):
        step = manager.step(np.zeros(COLUMNS, np.int64))
        kept.append((step, manager.ready_obs, np.copy(step.obs), np.copy(manager.ready_obs)))
    for step, ready, obs, ready_then in kept:
        np.testing.assert_array_equal(step.obs, obs)
        np.testing.assert_array_equal(ready, ready_then)
        assert step.obs.flags.c_contiguous and step.obs.dtype == np.float32
        assert (ready is step.obs) == (not step.done.any())


def test_which_rows_are_none_follows_the_autoreset_mode():
    manager = manager_of(VecDiary)
    manager.launch(0)
    assert manager.may_idle and not manager_of(SameStep).may_idle and not manager_of(Disabled).may_idle
    ended, idle = np.zeros(COLUMNS, bool), 0
    for _ in range(20):
        step = manager.step(np.zeros(COLUMNS, np.int64))
        if ended.any():
            np.testing.assert_array_equal(manager.idle, np.flatnonzero(ended))
            assert not step.done[ended].any() and not step.reward[ended].any()
            idle += ended.sum()
        else:
            assert len(manager.idle) == 0
        ended = step.done
    assert idle > 5


def test_a_column_gives_the_same_episodes_wherever_it_stands():
    class Swapped(VecDiary):
        def __init__(self, num_envs):
            super().__init__(num_envs)
            self.envs.reverse()

    (one, a), (two, b) = collect(manager_of(VecDiary)), collect(manager_of(Swapped))
    counts = [
        min(len(x.steps), len(y.steps))
        for x, y in zip(envs_of(one._rows.env), envs_of(two._rows.env)[::-1], strict=True)
    ]
    assert without_action(a, counts) == without_action(b, counts)


# ---------------------------------------------------------------- seeds, single columns, infos
def test_every_column_is_seeded_by_itself_where_the_env_takes_a_list():
    manager = manager_of(VecDiary)
    manager.launch(3)
    (seeds,) = manager._vec.seeds
    assert len(set(seeds)) == COLUMNS
    manager.launch(3)
    assert manager._vec.seeds[1] == seeds


def cartpole(seed, steps=60):
    manager = VectorEnvManager(make_vec_fn({"type": "CartPole-v1"}), 6)
    obs = [np.copy(manager.launch(seed))]
    for t in range(steps):
        obs.append(manager.step(np.full(6, t % 2)).obs)
    manager.close()
    return np.stack(obs)


def test_a_seed_repeats_a_batched_cartpole_whose_columns_differ():
    np.testing.assert_array_equal(cartpole(0), cartpole(0))
    assert not np.array_equal(cartpole(0), cartpole(1))
    assert len(np.unique(cartpole(0)[0], axis=0)) == 6


@pytest.mark.parametrize("vec", BATCHED, ids=lambda vec: vec.__name__)
def test_one_column_serves_as_a_single_env(vec):
    env = VectorColumn(make_vec_fn({}, vec))
    (diary,) = [one.unwrapped for one in env._vec.envs]
    for _ in range(4):
        obs, _ = env.reset(seed=1)
        assert obs[2] == 0
        ended = False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(0)
            ended = terminated or truncated
            np.testing.assert_array_equal(obs, diary.steps[-1][3])  # the true one, also where the env reset itself
            assert (reward, terminated, truncated) == (diary.steps[-1][2], *diary.steps[-1][4:])
    assert [fn().observation_space.shape for fn in eval_env_fns({}, 2, vec)] == [(3,), (3,)]


def test_infos_are_made_when_somebody_looks():
    flags = np.array([True, False])
    info = {"x": np.array([1.5, 2.5]), "r": np.array([7, 0]), "_r": flags, "deep": {"y": np.array([3, 4])}}
    infos = LazyInfos(info, 2)
    assert len(infos) == 2 and list(infos) == [{"x": 1.5, "r": 7, "deep": {"y": 3}}, {"x": 2.5, "deep": {"y": 4}}]
    assert infos[1:][0] == infos[1] and infos[-1] == infos[1]


# ---------------------------------------------------------------- errors
def test_an_env_that_ignores_the_reset_mask_is_named():
    manager = manager_of(DeafToMask)
    manager.launch(0)
    with pytest.raises(EnvError, match="resets columns that reset_mask does not name"):
        for _ in range(5):
            manager.step(np.zeros(COLUMNS, np.int64))


def test_an_env_that_loses_final_observations_is_named():
    manager = manager_of(NoFinal)
    manager.launch(0)
    with pytest.raises(EnvError, match="no 'final_obs'"):
        for _ in range(5):
            manager.step(np.zeros(COLUMNS, np.int64))


def test_parts_of_the_columns_cannot_be_stepped_or_reset():
    manager = manager_of(VecDiary)
    with pytest.raises(EnvError, match=r"call launch\(seed\) first"):
        manager.step(np.zeros(COLUMNS, np.int64))
    manager.launch(0)
    with pytest.raises(EnvError, match="steps all of its columns or none"):
        manager.step(np.zeros(1, np.int64), [0])
    with pytest.raises(EnvError, match="resets all of its columns or none"):
        manager.reset([0])
    manager.close()
    manager.close()
    with pytest.raises(EnvError, match="is closed"):
        manager.launch(0)


class Shrinking(VecDiary):
    def step(self, action):
        obs, *rest = super().step(action)
        return obs[:, :2], *rest


class Text(VecDiary):
    def step(self, action):
        obs, *rest = super().step(action)
        return obs.astype(np.complex64), *rest


class Broken(VecDiary):
    def step(self, action):
        raise RuntimeError("boom-7")


@pytest.mark.parametrize(
    ("vec", "says"),
    [
        (Shrinking, r"obs has shape \(4, 2\); wanted \(4, 3\)"),
        (Text, "obs has dtype complex64"),
        (Broken, r"vector env 'Broken' \(collect\): step\(\) raised RuntimeError: boom-7"),
    ],
)
def test_what_an_env_does_wrong_is_named(vec, says):
    manager = manager_of(vec)
    manager.launch(0)
    with pytest.raises(EnvError, match=says):
        manager.step(np.zeros(COLUMNS, np.int64))


@pytest.mark.parametrize(
    ("cfg", "setting", "says"),
    [
        ({"type": "Pendulum-v1"}, None, "'Pendulum-v1' has no natively batched form.*env_manager.type='base'"),
        ({"type": "CartPole-v1", "wrappers": ["frame_stack"]}, None, "env.wrappers: .*'frame_stack'"),
        ({}, lambda num_envs: diaries()[0], "made a Diary; .* wants a gymnasium.vector.VectorEnv"),
    ],
)
def test_what_cannot_be_batched_is_named(cfg, setting, says):
    with pytest.raises(ValueError, match=says):
        VectorEnvManager(make_vec_fn(cfg, setting), 2)
