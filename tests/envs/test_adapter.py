import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvTimestep, EnvAdapter, wrap_env
from tests.envs.toys import AnySpace, Count, DICount, OldCount


def rollout(env, seed=0, steps=3):
    first = env.reset(seed=seed)
    return first, [env.step(0) for _ in range(steps)]


def test_native_gymnasium_env_is_returned_as_it_is():
    env = Count()
    assert wrap_env(env) is env
    made = gymnasium.make("CartPole-v1")
    assert wrap_env(made) is made


@pytest.mark.parametrize("trunc", [False, True])
def test_old_four_tuple_env_tells_terminated_from_truncated(trunc):
    env = wrap_env(OldCount(3, trunc))
    (obs, info), steps = rollout(env, seed=5)
    assert obs.tolist() == [0.0] and info == {}
    assert [s[0].tolist() for s in steps] == [[1.0], [2.0], [3.0]]
    assert [s[2:4] for s in steps] == [(False, False), (False, False), (not trunc, trunc)]
    assert all(type(s[1]) is float for s in steps)
    assert env.env.seeds == [5]


def test_old_env_is_seeded_once_and_its_generator_goes_on():
    env = wrap_env(OldCount())
    env.reset(seed=5)
    env.reset()
    assert env.env.seeds == [5]


@pytest.mark.filterwarnings("ignore")
def test_real_gym_0_26_env_matches_gymnasium():
    gym = pytest.importorskip("gym")
    old = wrap_env(gym.make("CartPole-v1", disable_env_checker=True))
    new = gymnasium.make("CartPole-v1")
    assert isinstance(old.observation_space, spaces.Box) and old.action_space == spaces.Discrete(2)
    np.testing.assert_array_equal(old.reset(seed=3)[0], new.reset(seed=3)[0])
    for t in range(30):
        a, b = old.step(t % 2), new.step(t % 2)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:4] == b[1:4]
        if a[2]:
            break


@pytest.mark.filterwarnings("ignore")
def test_real_gym_0_26_time_limit_is_a_truncation():
    gym = pytest.importorskip("gym")
    env = wrap_env(gym.make("MountainCar-v0", disable_env_checker=True, max_episode_steps=4))
    env.reset(seed=0)
    flags = [env.step(0)[2:4] for _ in range(4)]
    assert flags == [(False, False)] * 3 + [(False, True)]


@pytest.mark.parametrize("trunc", [False, True])
def test_di_engine_shaped_env_with_lazy_spaces(trunc):
    env = wrap_env(DICount({"n": 2, "trunc": trunc}))
    assert env.observation_space.shape == (1,)
    (obs, _), steps = rollout(env, steps=2)
    assert obs.tolist() == [0.0]
    assert [s[1] for s in steps] == [1.0, 1.0] and type(steps[0][1]) is float
    assert steps[-1][2:4] == (not trunc, trunc)
    assert steps[-1][4]["eval_episode_return"] == [20.0]


def test_di_engine_shaped_env_gets_a_new_seed_at_every_reset_and_the_same_ones_again():
    def seeds():
        env = wrap_env(DICount({}))
        for seed in (7, None, None):
            env.reset(seed=seed)
        return env.env.seeds

    first = seeds()
    assert first == seeds() and first[0] == (7, False)
    assert len({s for s, _ in first}) == 3 and all(dynamic is False for _, dynamic in first)


def test_base_env_subclass_runs():
    class Mine(BaseEnv):
        def __init__(self, cfg):
            super().__init__(cfg)
            self._observation_space = spaces.Box(-1, 1, (2,), np.float32)
            self._action_space = spaces.Box(-2, 2, (1,), np.float32)

        def seed(self, seed, dynamic_seed=True):
            self.rng = np.random.default_rng(seed)

        def reset(self):
            return self.rng.random(2).astype(np.float32)

        def step(self, action):
            assert action.shape == (1,)
            return BaseEnvTimestep(self.reset(), np.array([0.5]), False, {})

    env = wrap_env(Mine({}))
    first, again = env.reset(seed=1)[0], env.reset(seed=1)[0]
    np.testing.assert_array_equal(first, again)
    obs, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert (reward, terminated, truncated) == (0.5, False, False) and obs.shape == (2,)


def test_both_flags_pass_through():
    env = Count(1, both=True)
    env.reset()
    assert wrap_env(env).step(0)[2:4] == (True, True)


def test_tuple_observation_of_two_is_not_taken_for_obs_and_info():
    class OldTuple(OldCount):
        def __init__(self):
            super().__init__()
            box = self.observation_space
            self.observation_space = spaces.Tuple((box, spaces.Dict({"x": box})))

        def reset(self):
            obs = super().reset()
            return obs, {"x": obs}

    obs, info = wrap_env(OldTuple()).reset(seed=0)
    assert info == {} and obs[1]["x"].tolist() == [0.0]


def test_gymnasium_env_whose_reset_takes_no_seed_is_seeded_through_np_random():
    class Draws(gymnasium.Env):
        observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

        def reset(self):
            return self.np_random.random(1).astype(np.float32), {}

    env = wrap_env(Draws())
    assert isinstance(env, EnvAdapter)
    assert env.reset(seed=4)[0] == env.reset(seed=4)[0] != env.reset(seed=5)[0]


def test_env_without_any_seed_warns():
    class Unseeded(OldCount):
        seed = None

    with pytest.warns(UserWarning, match="Unseeded cannot be seeded"):
        wrap_env(Unseeded()).reset(seed=0)


@pytest.mark.parametrize(
    "space, start",
    [(spaces.Discrete(3, start=2), 2), (spaces.MultiDiscrete([2, 3], start=[1, -1]), np.array([1, -1]))],
)
def test_spaces_with_a_start_are_seen_from_zero(space, start):
    inner = AnySpace(space, space)
    env = wrap_env(inner)
    assert not np.any(env.action_space.start) and not np.any(env.observation_space.start)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    env.step(obs * 0)
    assert np.array_equal(inner.actions[0], np.zeros_like(obs) + start) and space.contains(inner.actions[0])


def test_start_inside_a_dict_observation():
    space = spaces.Dict({"d": spaces.Discrete(2, start=5), "b": spaces.Box(0, 1, (2,))})
    env = wrap_env(AnySpace(space))
    assert env.reset(seed=0)[0]["d"] in (0, 1) and env.observation_space["d"].n == 2


def test_multi_agent_reward_is_named():
    class Two(OldCount):
        def step(self, action):
            return np.zeros(1, np.float32), [1.0, 2.0], False, {}

    env = wrap_env(Two())
    env.reset()
    with pytest.raises(TypeError, match=r"reward has shape \(2,\)"):
        env.step(0)


@pytest.mark.parametrize("info", [False, None])
def test_four_values_without_an_info_are_named(info):
    class NoInfo(OldCount):
        def step(self, action):
            return *super().step(action)[:3], info

    env = wrap_env(NoInfo())
    env.reset()
    with pytest.raises(
        TypeError, match=rf"step\(\) returned 4 values, the last a {type(info).__name__}; wanted \(obs, rew"
    ):
        env.step(0)


@pytest.mark.parametrize("bad", [Count, 3, object()])
def test_what_is_no_env_is_named(bad):
    with pytest.raises(TypeError, match="wanted an env instance"):
        wrap_env(bad)


def test_adapters_and_shifts_close_the_inner_env():
    class Closing(OldCount):
        closed = False

        def close(self):
            self.closed = True

    inner = Closing()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrap_env(inner).close()
    assert inner.closed
