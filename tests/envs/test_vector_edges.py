"""What a natively batched env says at an episode's end, and what it may get wrong, is read right or named."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward

from ding_like.envs import EnvError
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.envs.vector import VectorColumn, make_vec_fn
from tests.envs.toys import AnySpace, Count, CountDict

STAY = np.zeros(2, np.int64)


def batch(make_env, mode=AutoresetMode.NEXT_STEP):
    return lambda num_envs: SyncVectorEnv([make_env] * num_envs, autoreset_mode=mode)


def launched(make_env, mode=AutoresetMode.NEXT_STEP):
    manager = VectorEnvManager(make_vec_fn({}, batch(make_env, mode)), 2)
    manager.launch(0)
    return manager


def tenfold():
    return TransformReward(RecordEpisodeStatistics(Count(3)), lambda reward: 10 * reward)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_the_raw_return_and_the_infos_are_of_the_last_step_not_of_the_reset(mode):
    manager = launched(tenfold, mode)
    for _ in range(3):
        step = manager.step(STAY)
    first, second = manager.take_finished()
    for column, episode in enumerate((first, second)):
        assert (episode["column"], episode["length"], episode["return_"], episode["return_raw"]) == (column, 3, 30, 3)
        assert episode["info"]["t"] == step.info[column]["t"] == 3
    env = VectorColumn(make_vec_fn({}, batch(tenfold, mode)))
    env.reset(seed=0)
    assert [env.step(0)[4]["t"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_nested_observations_end_with_their_true_last_one(mode):
    manager = launched(lambda: CountDict(2), mode)
    manager.step(STAY)
    step, ready = manager.step(STAY), manager.ready_obs
    assert step.obs["t"].tolist() == step.obs["a"]["b"].ravel().tolist() == [2, 2] and step.done.all()
    goes_on = [2, 2] if manager.may_idle else [0, 0]
    assert ready["t"].tolist() == ready["a"]["b"].ravel().tolist() == goes_on


class Masked(Count):
    """Allows nothing at an episode's end."""

    def __init__(self):
        super().__init__(2)
        self.observation_space = spaces.Dict({"x": self.observation_space, "action_mask": spaces.MultiBinary(2)})

    def _see(self):
        return {"x": super()._see(), "action_mask": np.full(2, self.t < 2, np.int8)}


def test_an_action_that_will_be_ignored_is_free():
    manager = launched(Masked)
    manager.step(STAY)
    step = manager.step(STAY)
    assert not step.obs["action_mask"].any() and manager.ready_obs["action_mask"].all()


@pytest.mark.parametrize(
    ("space", "given", "dtype"),
    [
        (spaces.Box(-1, 1, (1,), np.float32), np.zeros((2, 1)), np.float32),
        (spaces.Discrete(3), np.float32([2, 1]), np.int64),
        (spaces.MultiDiscrete([2, 3]), np.zeros((2, 2), np.int32), np.int64),
    ],
    ids=["box", "discrete", "multi_discrete"],
)
def test_actions_reach_the_env_in_its_own_dtype(space, given, dtype):
    got = []

    class Keeping(SyncVectorEnv):
        def step(self, actions):
            got.append(actions)
            return super().step(actions)

    box = spaces.Tuple([spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(4)])
    manager = VectorEnvManager(make_vec_fn({}, lambda num_envs: Keeping([lambda: AnySpace(box, space)] * num_envs)), 2)
    manager.launch(0)
    step = manager.step(given)
    assert got[0].dtype == dtype and np.array_equal(got[0], given)
    assert [leaf.dtype for leaf in step.obs] == [np.float32, np.int64]
    with pytest.raises(ValueError, match=r"actions have shape \(3,"):
        manager.step(np.zeros((3, *space.shape)))


def altered(change, **kwargs):
    class Altered(SyncVectorEnv):
        def __init__(self, num_envs):
            super().__init__([lambda: Count(1)] * num_envs, **kwargs)

        def step(self, actions):
            return change(*super().step(actions))

    return Altered


class Modeless(SyncVectorEnv):
    def __init__(self, num_envs):
        super().__init__([lambda: Count(3)] * num_envs)
        self.metadata = {}


@pytest.mark.parametrize(
    ("vec", "says"),
    [
        (altered(lambda *step: (*step[:4], [{}, {}])), "info is a list; wanted a dict of arrays"),
        (
            altered(
                lambda *step: (*step[:4], {**step[4], "final_obs": np.full(2, None)}),
                autoreset_mode=AutoresetMode.SAME_STEP,
            ),
            r"reading info\['final_obs'\] of column 0 raised TypeError: obs is a NoneType",
        ),
        (Modeless, "the metadata 'autoreset_mode' None; wanted a gymnasium.vector.AutoresetMode"),
        (batch(lambda: AnySpace(spaces.Discrete(2), spaces.Discrete(2, start=5))), "does not start at 0"),
        (batch(lambda: AnySpace(spaces.Discrete(2, start=5))), "does not start at 0"),
    ],
    ids=["info", "final_obs", "mode", "action start", "obs start"],
)
def test_what_an_env_leaves_open_is_named(vec, says):
    with pytest.raises(EnvError, match=says):
        manager = VectorEnvManager(make_vec_fn({}, vec), 2)
        manager.launch(0)
        manager.step(STAY)


def test_a_limit_that_an_own_batched_env_would_not_keep_is_refused():
    with pytest.raises(ValueError, match=r"env\.max_episode_steps is 3, but a natively batched env of your own"):
        make_vec_fn({"max_episode_steps": 3}, batch(Count))
    manager = VectorEnvManager(make_vec_fn({"type": "CartPole-v1", "max_episode_steps": 3}), 2)
    manager.launch(0)
    assert [manager.step(STAY + t % 2).truncated.tolist() for t in range(4)] == [[t == 2] * 2 for t in range(4)]


def test_one_object_cannot_serve_collecting_and_evaluation():
    with pytest.raises(ValueError, match="env_setting is a SyncVectorEnv object; wanted its class or a factory"):
        VectorEnvManager(make_vec_fn({}, SyncVectorEnv([Count] * 2)), 2)
    with pytest.raises(ValueError, match="the vector env has 3 columns; wanted 1"):
        VectorColumn(make_vec_fn({}, lambda num_envs: gymnasium.vector.SyncVectorEnv([Count] * 3)))
