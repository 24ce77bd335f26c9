"""What an env does wrong is said by env, column, call and step."""

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnvManager, EnvError
from tests.envs.test_base_env_manager import manager, zeros
from tests.envs.toys import Boom, Count, CountDict


@pytest.mark.parametrize(
    "where, words",
    [
        ("init", ["making it"]),
        ("reset", ["reset()"]),
        ("step", ["step(0)", "after 7 steps"]),
        ("close", ["close()"]),
    ],
)
def test_error_in_an_env_names_env_column_call_and_cause(where, words):
    def play():
        m = BaseEnvManager([lambda: Count(100), lambda: Boom(where)], role="eval")
        m.launch(0)
        for _ in range(8):
            m.step(np.zeros(2, int))
        m.close()

    with pytest.raises(EnvError) as error:
        play()
    text = str(error.value)
    assert all(word in text for word in ["column 1 (eval)", "RuntimeError", "boom-7", *words])
    assert where == "init" or "'Boom'" in text
    assert isinstance(error.value.__cause__, RuntimeError)


def test_envs_made_before_a_failing_one_are_closed_and_close_reaches_all():
    closed = []

    class Closes(Count):
        def close(self):
            closed.append(self.n)

    def bad():
        raise RuntimeError("boom-7")

    with pytest.raises(EnvError, match="column 1"):
        BaseEnvManager([lambda: Closes(1), bad])
    assert closed == [1]
    m = manager(Boom("close"), Closes(2))
    with pytest.raises(EnvError, match="boom-7"):
        m.close()
    assert closed == [1, 2]
    m.close()


def test_columns_with_different_spaces_are_an_error():
    with pytest.raises(EnvError, match=r"column 1 \(CountDict\) has the observation_space"):
        BaseEnvManager([Count, CountDict])


class Breaks(Count):
    def __init__(self, value, at=1):
        super().__init__(9)
        self.value, self.at = value, at

    def _see(self):
        return super()._see() if self.t < self.at else self.value


@pytest.mark.parametrize(
    "value, message",
    [
        (np.zeros(3, np.float32), r"obs has shape \(3,\); wanted \(1,\)"),
        (np.float32(0.0), r"float32; wanted a numpy array"),
        ([0.0], "obs is a list; wanted a numpy array"),
    ],
)
@pytest.mark.parametrize("at", [0, 2])
def test_wrong_observation_at_reset_or_later_is_named(value, message, at):
    with pytest.raises(EnvError, match=message):
        m = manager(Count(9), Breaks(value, at))
        m.step(zeros(m))
        m.step(zeros(m))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_image_declared_uint8_but_returned_as_float_is_named(nested, at):
    """At reset, at the first step and at a later one; 0.9 would be stored as 0."""
    image = spaces.Box(0, 255, (2, 2), np.uint8)

    class Floats(Count):
        def __init__(self, at):
            super().__init__(9)
            self.at = at
            self.observation_space = spaces.Dict({"a": image}) if nested else image

        def _see(self):
            obs = np.full((2, 2), 0.9, np.float32) if self.t == self.at else np.full((2, 2), self.t, np.uint8)
            return {"a": obs} if nested else obs

    with pytest.raises(EnvError, match=r"column 1 .*float32 where its space says uint8"):
        m = manager(Floats(None), Floats(at))
        for _ in range(at):
            m.step(zeros(m))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8])
def test_numbers_of_another_type_that_lose_nothing_pass_and_may_change_from_step_to_step(dtype):
    class Mixed(Count):
        def _see(self):
            return super()._see().astype(dtype if self.t % 2 else np.float32)

    m = manager(Mixed(9), Mixed(9))
    assert [m.step(zeros(m)).obs.tolist() for _ in range(4)] == [[[t], [t]] for t in (1.0, 2.0, 3.0, 4.0)]
    assert m.ready_obs.dtype == np.float32


class Returns(Count):
    """`Count(4)` that returns some values of its own at step `at`."""

    def __init__(self, at=1, **values):
        super().__init__(4)
        self.at, self.values = at, values

    def step(self, action):
        names = ("obs", "reward", "terminated", "truncated", "info")
        result = dict(zip(names, super().step(action)))
        return tuple((result | self.values if self.t == self.at else result).values())


BAD_VALUES = [
    ({"reward": np.ones(1)}, r"the reward has shape \(1,\); wanted one number"),
    ({"reward": None}, "the reward is None; wanted one number"),
    ({"reward": "1"}, "the reward is '1'; wanted one number"),
    ({"reward": 1j}, "the reward is 1j; wanted one number"),
    ({"terminated": None}, "terminated is None; wanted one number or bool"),
    ({"truncated": "no"}, "truncated is 'no'; wanted one number or bool"),
    ({"terminated": np.array([True])}, r"terminated has shape \(1,\)"),
    ({"truncated": np.array([False, False])}, r"truncated has shape \(2,\)"),
    ({"info": None, "terminated": True}, "info is a NoneType; wanted a dict"),
    ({"info": {"eval_episode_return": "much"}, "terminated": True}, "reading the return in its info"),
    ({"info": {"episode": {"r": None}}, "terminated": True}, "reading the return in its info"),
]


@pytest.mark.parametrize("columns", [None, [1]])
@pytest.mark.parametrize("values, message", BAD_VALUES, ids=str)
@pytest.mark.parametrize("at", [1, 3])
def test_what_a_step_returns_that_is_no_number_or_flag_is_named_with_its_column(values, message, at, columns):
    m = manager(Count(9), Returns(at, **values))
    with pytest.raises(EnvError, match=f"'Returns', column 1 .*{message}"):
        for _ in range(at):
            m.step(np.zeros(2 if columns is None else 1, int), columns)


@pytest.mark.parametrize("reward", [2, True, np.float32(1.5), np.array(3.0), np.int64(4)])
def test_every_kind_of_number_is_a_reward(reward):
    m = manager(Count(), Returns(reward=reward))
    assert m.step(zeros(m)).reward.tolist() == [1.0, float(reward)]


@pytest.mark.parametrize("flag", [np.True_, 1, np.array(True)])
def test_every_kind_of_truth_is_a_flag(flag):
    m = manager(Count(9), Returns(truncated=flag), Returns(truncated=0))
    ts = m.step(zeros(m))
    assert ts.truncated.tolist() == ts.done.tolist() == [False, True, False]


def test_an_env_may_call_a_number_of_its_own_episode():
    m = manager(Returns(info={"episode": 3}, terminated=True))
    m.step(zeros(m))
    (episode,) = m.finished
    assert episode["return_raw"] == 1.0 and episode["info"] == {"episode": 3.0}


class OldReset(Count):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Count):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class NoStep(Count):
    def step(self, action):
        super().step(action)


class NoReset(Count):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (OldReset, r"reset\(\) returned a ndarray; wanted \(obs, info\): an observation alone .*`return obs, {}`"),
        (NoReset, r"reset\(\) returned a NoneType; wanted \(obs, info\)"),
        (
            OldStep,
            r"column 1 .*step\(\) returned 4 values; wanted \(obs, reward, terminated, .* in place of done return",
        ),
        (NoStep, r"column 1 .*step\(\) returned a NoneType; wanted \(obs, reward, terminated, truncated, info\)$"),
    ],
)
def test_the_forms_of_old_gym_from_a_gymnasium_env_are_named(make, message):
    with pytest.raises(EnvError, match=message):
        m = manager(Count(9), make())
        m.step(zeros(m))


def test_use_before_launch_and_after_close_is_named():
    m = BaseEnvManager([Count])
    with pytest.raises(EnvError, match=r"call launch\(seed\) first"):
        m.step(zeros(m))
    m.launch(0)
    m.close()
    for call in (lambda: m.step(zeros(m)), m.reset, lambda: m.launch(0)):
        with pytest.raises(EnvError, match="closed"):
            call()


def test_no_factories_is_an_error():
    with pytest.raises(ValueError, match="env_fns is empty"):
        BaseEnvManager([])


def test_a_factory_that_returns_one_env_for_all_columns_is_named():
    env = Count()
    with pytest.raises(EnvError, match=r"env column 1 .* is the very object of an earlier column"):
        BaseEnvManager([lambda: env, lambda: env])
