"""List helpers."""

import pytest

from ding_like.utils.default_helper import list_split, lists_to_dicts


@pytest.mark.parametrize(
    "length, step, wanted",
    [
        (6, 3, ([[0, 1, 2], [3, 4, 5]], None)),
        (7, 3, ([[0, 1, 2], [3, 4, 5]], [6])),
        (2, 3, ([], [0, 1])),
        (0, 3, ([], [])),
    ],
)
def test_full_chunks_come_first_and_the_rest_apart(length, step, wanted):
    assert list_split(list(range(length)), step) == wanted


def test_a_step_below_one_is_refused():
    with pytest.raises(ValueError, match="step is 0"):
        list_split([1], 0)


def test_dictionaries_turn_inside_out():
    steps = [{"a": 1, "b": {"c": 2}}, {"a": 3, "b": {"c": 4}}]
    assert lists_to_dicts(steps) == {"a": [1, 3], "b": {"c": [2, 4]}}
    assert lists_to_dicts(steps, keep=("b",))["b"] == [{"c": 2}, {"c": 4}]
