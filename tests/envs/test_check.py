import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import check_env
from ding_like.utils import UnknownNameError
from tests.envs.toys import AnySpace, Boom, Count, OldCount


def findings(env, severity, **kwargs):
    return [str(f) for f in check_env(env, steps=40, **kwargs) if f.severity == severity]


def test_sound_env_has_no_complaint():
    found = check_env("CartPole-v1", steps=100)
    assert {f.severity for f in found} == {"ok"}
    text = "\n".join(map(str, found))
    assert "obs_shape=4, action_shape=2" in text and "same rollout" in text and "steps per second" in text


def test_env_kwargs_and_old_envs_are_served():
    assert findings("MountainCar-v0", "error", env_kwargs={"goal_velocity": 0.1}) == []
    assert findings(lambda: OldCount(3), "error") == []


@pytest.mark.parametrize("where, words", [("init", "making it"), ("reset", "reset"), ("step", "step(action)")])
def test_exception_is_an_error_that_names_the_call(where, words):
    (found,) = findings(lambda: Boom(where), "error")
    assert words in found and "boom-7" in found


class Unseeded(Count):
    def _see(self):
        return np.random.random(1).astype(np.float32)


class Odd(Count):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, self.r, int(terminated), truncated, info


class OldForms(Count):
    def __init__(self, pair=False):
        super().__init__()
        self.pair = pair

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed) if self.pair else super().reset(seed=seed)[0]

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


@pytest.mark.parametrize(
    "make, severity, words",
    [
        (Unseeded, "warning", "different rollouts"),
        (lambda: Count(10**6), "warning", "no episode ended within 40 steps -> set env.max_episode_steps"),
        (lambda: Count(5, mutate=True), "ok", "one array object again and again"),
        (lambda: Count(5, both=True), "ok", "both terminated and truncated"),
        (lambda: Count(reward=np.nan), "error", "a reward is nan"),
        (lambda: Count(reward=np.ones(2)), "error", "the reward has shape (2,)"),
        (OldForms, "error", "reset() returned a ndarray; wanted (obs, info)"),
        (lambda: OldForms(pair=True), "error", "step() returned 4 values; wanted (obs, reward, terminated, truncated"),
        (Odd, "warning", "terminated and truncated are int and bool"),
        (lambda: AnySpace(spaces.Dict({"text": spaces.Text(4)})), "error", "obs.text is a Text space"),
        (lambda: AnySpace(spaces.Box(0, 255, (8, 8, 3), np.uint8)), "warning", "channels last"),
        (lambda: AnySpace(spaces.Box(0, 1, (2,), np.float64)), "ok", "kept as float32"),
    ],
)
def test_each_fault_is_found(make, severity, words):
    assert any(words in found for found in findings(make, severity))


def test_wrong_observation_is_an_error_and_one_out_of_bounds_a_warning():
    class Shape(Count):
        def _see(self):
            return np.zeros(1 if self.t < 2 else 2, np.float32)

    class Bounds(Count):
        def _see(self):
            return np.full(1, -5, np.float32)

    class Nan(Count):
        def _see(self):
            return np.full(1, np.nan, np.float32)

    assert any("obs has shape (2,)" in f for f in findings(Shape, "error"))
    assert any("outside the bounds" in f for f in findings(Bounds, "warning"))
    assert any("NaN or infinity" in f for f in findings(Nan, "error"))


def test_unknown_id_raises_with_suggestions():
    with pytest.raises(UnknownNameError, match="CartPole-v1"):
        check_env("CartPol-v1")
