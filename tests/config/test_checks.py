import math

import pytest

from ding_like.config.checks import (
    Check,
    at_least,
    fraction,
    list_of,
    mistakes,
    number,
    one_of,
    optional,
    positive,
    positive_fraction,
)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (number, [0, -1.5, math.inf], [math.nan, True, "1", None, [1]]),
        (positive, [1, 1e-9], [0, -1, math.inf, math.nan, True, "1", None]),
        (fraction, [0, 0.5, 1], [-0.1, 1.1, math.nan, "0", False]),
        (positive_fraction, [1e-9, 1], [0, 1.1, math.nan, "1"]),
        (at_least(1), [1, 2.0, 10**9], [0, 1.5, math.inf, math.nan, True, "1", None]),
        (one_of("a", None), ["a", None], ["b", 1, [], {}]),
        (one_of(True, None, 2), [True, None, 2, 2.0], [1, 0, False]),
        (one_of("a", or_a=(type,)), ["a", int], ["int", 3]),
        (optional(positive), [None, 1], [0, "x"]),
        (list_of(at_least(1)), [[1], (2, 3)], [[], [0], [1, "a"], 1, None, "12"]),
    ],
)
def test_what_a_check_takes(check, good, bad):
    assert [value for value in good if not check.fine(value)] == []
    assert [value for value in bad if check.fine(value)] == []


@pytest.mark.parametrize(
    ("check", "value", "says"),
    [
        (positive, -1, "a.b: got -1, wanted a number above 0"),
        (optional(fraction), "x", "a.b: got 'x', wanted a number from 0 to 1, or None"),
        (one_of("adam", "sgd"), "adm", "a.b: got 'adm', wanted one of 'adam', 'sgd'; did you mean 'adam'?"),
        (one_of("adam", or_a=(type,)), 3, "a.b: got 3, wanted 'adam', or a type"),
        (list_of(at_least(1)), [], "a.b: got [], wanted a list of one or more, each an integer of at least 1"),
    ],
)
def test_the_message_names_path_value_and_what_was_wanted(check, value, says):
    assert check.mistake(value, "a.b") == says


def test_only_given_values_are_checked_and_a_default_always_passes():
    checks: dict[str, Check | None] = {"x": positive, "deep.y": positive, "absent": positive, "lifted": None}
    defaults = {"x": None, "deep": {"y": -1}, "lifted": 1}
    assert list(mistakes(defaults, defaults, checks)) == []
    cfg = {"x": 0, "deep": {"y": -2}, "lifted": -1}
    assert list(mistakes(cfg, defaults, checks, "p")) == [
        "p.x: got 0, wanted a number above 0",
        "p.deep.y: got -2, wanted a number above 0",
    ]
    assert list(mistakes({"x": True}, {"x": 1}, {"x": positive})) == ["x: got True, wanted a number above 0"]
