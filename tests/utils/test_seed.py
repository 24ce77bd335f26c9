"""Randomness by name: a column's numbers depend on (seed, role, column, step) and on nothing else."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.utils.seed import ColumnNoise, episode_seed, generator, set_global_seed


def stream(seed, role, columns, width):
    """Noise of these columns and how many there are."""
    columns = list(columns)
    return ColumnNoise(seed, role, width, columns), len(columns)


def take(source, n):
    noise, count = source
    return np.stack([noise.rows(None, count).copy() for _ in range(n)])


@given(st.integers(0, 2**40), st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True), st.integers(1, 3))
def test_a_columns_numbers_do_not_depend_on_the_other_columns(seed, columns, width):
    together = take(stream(seed, "collect", columns, width), 3)
    backwards = take(stream(seed, "collect", columns[::-1], width), 3)
    np.testing.assert_array_equal(together, backwards[:, ::-1])
    for b, column in enumerate(columns):
        alone = take(stream(seed, "collect", [column], width), 3)
        np.testing.assert_array_equal(together[:, b], alone[:, 0])


@pytest.mark.parametrize("step", [0, 1, ColumnNoise.BLOCK - 1, ColumnNoise.BLOCK, 2 * ColumnNoise.BLOCK + 3])
def test_the_steps_are_the_whole_state(step):
    straight = take(stream(3, "collect", [0, 1], 2), step + 5)
    for together in (True, False):
        resumed, count = stream(3, "collect", [0, 1], 2)
        resumed.load_state_dict({"steps": [step, step + (0 if together else 2)]})
        assert resumed.state_dict() == {"steps": [step, step + (0 if together else 2)]}
        rows = take((resumed, count), 3)
        np.testing.assert_array_equal(rows[:, 0], straight[step : step + 3, 0])
        first = step if together else step + 2
        np.testing.assert_array_equal(rows[:, 1], straight[first : first + 3, 1])


@pytest.mark.parametrize("steps", [3, ColumnNoise.BLOCK + 2])
def test_columns_asked_in_halves_or_alone_get_what_they_get_together(steps):
    """Samplers may step columns in groups; an evaluator drops those that are done."""
    straight = take(stream(1, "collect", range(4), 2), steps + 3)
    noise, _ = stream(1, "collect", range(4), 2)
    for t in range(steps):
        for half in ([0, 1], [2, 3]):
            np.testing.assert_array_equal(noise.rows(np.array(half), 2), straight[t, half])
    np.testing.assert_array_equal(noise.rows(None, 4), straight[steps])
    np.testing.assert_array_equal(noise.rows(np.array([2]), 1)[0], straight[steps + 1, 2])
    mixed = noise.rows(None, 4)
    np.testing.assert_array_equal(mixed[[0, 1, 3]], straight[steps + 1, [0, 1, 3]])
    np.testing.assert_array_equal(mixed[2], straight[steps + 2, 2])


def test_seeds_roles_columns_and_steps_all_differ():
    streams = [
        take(stream(seed, role, [column], 1), 2 * ColumnNoise.BLOCK).ravel()
        for seed, role, column in itertools.product([0, 1, 2**32], ["collect", "eval"], [0, 1, 1000])
    ]
    numbers = np.concatenate(streams)
    assert len(np.unique(numbers)) == len(numbers)


def test_numbers_are_uniform_and_uncorrelated_between_columns():
    rows = take(stream(0, "collect", range(4), 2), 5000).reshape(5000, 8)
    assert rows.min() >= 0 and rows.max() < 1
    np.testing.assert_allclose(rows.mean(0), 0.5, atol=5 * np.sqrt(1 / 12 / 5000))
    correlation = np.corrcoef(rows.T) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(5000)


def test_episode_seeds_are_31_bits_fixed_and_distinct():
    seeds = [episode_seed(*key) for key in itertools.product([0, 1], ["collect", "eval"], range(16), range(50))]
    assert len(set(seeds)) == len(seeds) and all(0 <= s < 2**31 for s in seeds)
    assert episode_seed(0, "eval", 3, 7) == episode_seed(0, "eval", 3, 7)


def test_generators_differ_by_seed_role_and_index_alone():
    first = [generator(s, r, i).random() for s in (0, 1) for r in ("replay", "x") for i in (0, 1)]
    again = [generator(s, r, i).random() for s in (0, 1) for r in ("replay", "x") for i in (0, 1)]
    assert first == again and len(set(first)) == 8


def test_the_global_seed_sets_python_numpy_and_torch():
    def draw():
        return random.random(), np.random.random(), torch.rand(()).item()

    set_global_seed(5)
    first = draw()
    set_global_seed(5)
    assert draw() == first
    set_global_seed(6)
    assert all(a != b for a, b in zip(draw(), first))


def test_a_negative_seed_is_named():
    with pytest.raises(ValueError, match="seed is -1; wanted a whole number of at least 0"):
        set_global_seed(-1)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_going_on_and_starting_at_a_later_step_give_the_same_numbers(width):
    on, late = ColumnNoise(3, "role", width), ColumnNoise(3, "role", width)
    for _ in range(3 * ColumnNoise.BLOCK + 5):
        last = on.rows(None, 4)
    late.load_state_dict({"steps": [3 * ColumnNoise.BLOCK + 4] * 4})
    np.testing.assert_array_equal(late.rows(None, 4), last)
