"""Continuous actions between the policy's units and the env's."""

import numpy as np
import pytest

from ding_like.rl_utils.action_scale import ActionScale


def test_the_unit_box_is_the_envs_box_dimension_by_dimension():
    scale = ActionScale([0.0, -1.0], [2.0, 3.0])
    np.testing.assert_allclose(
        scale.to_env(np.float32([[-1, -1], [0, 0], [1, 1], [5, -7], [0.5, -0.5]])),
        [[0, -1], [1, 1], [2, 3], [2, -1], [1.5, 0]],
        rtol=1e-6,
    )


def test_dimensions_without_two_bounds_keep_the_envs_units_and_the_bound_they_have():
    scale = ActionScale([-np.inf, 0.0, -np.inf], [np.inf, np.inf, 1.0])
    np.testing.assert_allclose(scale.to_env(np.float32([[7, -3, 5], [-9, 4, -5]])), [[7, 0, 1], [-9, 4, -5]])
    assert not scale.bounded.any()


def test_the_largest_float_is_no_bound():
    top = np.finfo(np.float32).max
    assert ActionScale([-top], [top]).to_env(np.float32([[2.5]])) == 2.5


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_whole_number_boxes_are_rounded(dtype):
    out = ActionScale([0], [4], dtype).to_env(np.float32([[-1.0], [0.3], [1.4]]))
    assert out.dtype == dtype and out[:, 0].tolist() == [0, 3, 4]


def test_shape_and_dtype_are_the_envs():
    out = ActionScale(np.zeros((2, 3)), np.ones((2, 3)), np.float64).to_env(np.zeros((5, 6), np.float32))
    assert out.shape == (5, 2, 3) and out.dtype == np.float64 and (out == 0.5).all()


def test_no_rounding_leads_out_of_the_box():
    low, high = np.float32([-0.1]), np.float32([0.3])
    out = ActionScale(low, high).to_env(np.float32([[-1], [1], [1e9], [-1e9]]))
    assert (out >= low).all() and (out <= high).all()


def test_the_raw_action_is_left_alone():
    raw = np.float32([[3.0]])
    ActionScale([-1], [1]).to_env(raw)
    assert raw[0, 0] == 3.0


def test_a_box_far_from_zero_keeps_its_steps():
    far = ActionScale([2**25], [2**25 + 10], np.int64)
    units = np.linspace(-1, 1, 11, dtype=np.float32)[:, None]
    assert (far.to_env(units)[:, 0] - 2**25).tolist() == list(range(11))


def test_an_action_that_is_not_finite_is_named():
    with pytest.raises(FloatingPointError, match=r"column\(s\) \[1\] is not finite"):
        ActionScale([-1], [1]).to_env(np.float32([[0], [np.nan]]))


def test_the_way_back_gives_the_policys_units():
    scale = ActionScale([[0.0, -1.0], [5.0, -np.inf]], [[2.0, 3.0], [5.0, 1.0]])
    raw = np.float32([[-1, 0.5, 0, -7], [0.25, 1, 0, 0.5]])
    back = scale.from_env(scale.to_env(raw))
    np.testing.assert_allclose(back, raw, rtol=1e-6)
    assert back.dtype == np.float32 and scale.from_env(scale.to_env(raw)[0]).shape == (4,)
    assert scale.from_env(scale.to_env(raw).reshape(2, 1, 2, 2)).shape == (2, 1, 4)
