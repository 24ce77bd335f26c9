"""Epsilon schedules against their closed forms."""

import math

import numpy as np
import pytest

from ding_like.rl_utils.exploration import epsilon_ladder, get_epsilon_greedy_fn


def test_exponential_schedule_falls_by_e_every_decay_steps():
    eps = get_epsilon_greedy_fn(0.95, 0.05, 1000)
    assert eps(0) == pytest.approx(0.95)
    assert eps(1000) == pytest.approx(0.05 + 0.9 / math.e)
    assert eps(10**7) == pytest.approx(0.05)


def test_linear_schedule_is_a_line_that_stops_at_its_end():
    eps = get_epsilon_greedy_fn(1.0, 0.2, 100, "linear")
    assert [eps(x) for x in (0, 25, 50, 100, 500)] == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    "args, message",
    [((1.0, 0.1, 0), "decay is 0"), ((1.5, 0.1, 9), "start is 1.5"), ((1.0, 0.1, 9, "cosine"), "'cosine'")],
)
def test_wrong_arguments_are_named(args, message):
    with pytest.raises(ValueError, match=message):
        get_epsilon_greedy_fn(*args)


def test_the_ladder_is_the_papers():
    """Horgan 2018, section 4.1."""
    ladder = epsilon_ladder(0.4, 7.0, 8)
    np.testing.assert_allclose(ladder, [0.4 ** (1 + i) for i in range(8)])
    np.testing.assert_allclose(epsilon_ladder(0.4, 7.0, 1), [0.4])
