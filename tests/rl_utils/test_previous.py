"""The form in which observations show the step before."""

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs.spaces import describe_space
from ding_like.rl_utils.previous import FIELDS, PreviousStep, network_inputs, own_obs, shows_previous

BOX = spaces.Box(np.float32([-2, 0, 3]), np.float32([2, np.inf, 3]))
CASES = {  # action space -> (`prev_action` of none, actions counted from 0, what is shown of them)
    "discrete": (spaces.Discrete(3, start=5), -1, [0, 2], [0, 2]),
    "multi discrete": (spaces.MultiDiscrete([3, 2]), [-1, -1], [[2, 0], [0, 1]], [[2, 0], [0, 1]]),
    "multi binary": (spaces.MultiBinary(2), [-1, -1], np.int8([[1, 0], [0, 1]]), [[1, 0], [0, 1]]),
    "box": (BOX, [0, 0, 0], np.float32([[-2, 7, 3], [1, 0, 3]]), [[-1, 7, 0], [0.5, 0, 0]]),
    "box of two axes": (spaces.Box(0, 4, (2, 1), np.float64), [0, 0], [[[0.0], [3.0]]] * 2, [[-1, 0.5]] * 2),
    "whole-number box": (spaces.Box(-2, 2, (1,), np.int64), [0], [[-2], [1]], [[-1], [0.5]]),
}


def step(space, fields=FIELDS):
    return PreviousStep(fields, describe_space(space, bounds=True))


@pytest.mark.parametrize("name", CASES)
def test_actions_are_shown_as_the_network_knows_them(name):
    space, none, actions, shown = CASES[name]
    one = step(space)
    dtype = np.float32 if isinstance(space, spaces.Box) else np.int64
    first, later = one.none("obs", (2,)), one.after("obs", actions, np.float64([0.5, -1]))
    for got, wanted in ((first["prev_action"], [none, none]), (later["prev_action"], shown)):
        np.testing.assert_array_equal(got, np.asarray(wanted, dtype))
        assert got.dtype == dtype
    assert first["prev_reward"].tolist() == [0, 0] and later["prev_reward"].tolist() == [0.5, -1]
    assert later["prev_reward"].dtype == np.float32
    single = one.after("obs", np.asarray(actions)[1], 0.25)
    np.testing.assert_array_equal(single["prev_action"], np.asarray(shown, dtype)[1])
    assert single["prev_reward"].shape == () and one.none("obs")["prev_action"].shape == one.shape


def test_only_the_fields_asked_for_are_there():
    for name in FIELDS:
        one = step(spaces.Discrete(2), [name])
        assert list(one.none("o")) == list(one.after("o", 1, 2.0)) == ["env_obs", name]
    for fields in ([], ["prev_obs"], ["prev_action", "x"]):
        with pytest.raises(ValueError, match=r"wanted some of \['prev_action', 'prev_reward'\]"):
            step(spaces.Discrete(2), fields)


def test_other_dictionaries_do_not_pass_for_the_form():
    assert shows_previous({"env_obs": 1, "prev_reward": 2})
    assert shows_previous(spaces.Dict(env_obs=spaces.Discrete(2), prev_action=spaces.Discrete(2)))
    others = ({"env_obs": 1}, {"obs": 1, "prev_action": 2}, {"env_obs": 1, "prev_action": 2, "x": 3}, {}, None, (1, 2))
    for obs in (*others, np.zeros(2), spaces.Discrete(2), spaces.Dict(env_obs=spaces.Discrete(2))):
        assert not shows_previous(obs) and own_obs(obs) is obs
        assert network_inputs({"obs": obs, "cut": 1}) == {"obs": obs, "cut": 1}


def test_a_network_gets_the_step_before_beside_the_envs_observation():
    inputs = {"obs": {"env_obs": {"env_obs": 1}, "prev_action": 2}, "prev_state": None, "cut": 3}
    assert network_inputs(inputs) == {"obs": {"env_obs": 1}, "prev_action": 2, "prev_state": None, "cut": 3}
    assert list(inputs) == ["obs", "prev_state", "cut"]
    with pytest.raises(ValueError, match=r"use_prev_action, policy\.model\.use_prev_reward: got True"):
        network_inputs({"env_obs": 1, "prev_action": 2, "prev_reward": 3})
