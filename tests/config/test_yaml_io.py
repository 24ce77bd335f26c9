import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.config import ConfigError
from ding_like.config.yaml_io import dump_yaml, load_yaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        ("1.", 1.0),
        (".5", 0.5),
        (".inf", math.inf),
        ("-inf", -math.inf),
        ("10", 10),
        ("1_000_000", 1000000),
        ("0x10", 16),
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("null", None),
        ("None", None),
        ("", None),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1.0.0", "1.0.0"),
        ("'1e-3'", "1e-3"),
        ("[64, 1e-3, x]", [64, 1e-3, "x"]),
    ],
)
def test_a_scalar_reads_as_a_person_means_it(text, value):
    got = parse_yaml(text)
    assert got == value
    assert type(got) is type(value)


def test_a_key_given_twice_raises_with_its_line():
    with pytest.raises(ConfigError, match=r"YAML, line 4: the key 'batch_size' is given twice; keep one"):
        parse_yaml("learn:\n  batch_size: 1\n  lr: 2\n  batch_size: 3\n")


def test_merge_keys_still_work():
    assert parse_yaml("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}")["b"] == {"p": 1, "q": 3}


def test_python_tags_are_refused():
    with pytest.raises(ConfigError, match=r"could not determine a constructor for the tag"):
        parse_yaml("!!python/object/apply:os.getcwd []")


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(
        [
            "1e-3",
            "on",
            "null",
            "None",
            "inf",
            "0x1",
            "1_0",
            "<<",
            "~",
            "",
            "true",
            "2026-01-01",
            "!unsaved",
            "- a",
            "1:2",
        ]
    )
)


@given(st.recursive(_scalars, lambda x: st.lists(x) | st.dictionaries(st.text() | st.integers(), x), max_leaves=8))
def test_dump_then_parse_gives_the_same_value_and_types(value):
    got = parse_yaml(dump_yaml(value))
    assert repr(got) == repr(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            "a: 1\nb: caf\xe9\n".encode("latin-1"),
            r"c\.yaml: not UTF-8 text \(byte 0xe9 at position 11\); save it as UTF-8",
        ),
        (b"a: 1\nb: x\0y\n", r"c\.yaml, line 2: holds the character '\\x00', which no YAML may hold"),
        (b"a: 1\n? [1, 2]\n: 3\n", r"c\.yaml, line 2: a key is a list; wanted a word or a number"),
        (b"? {a: 1}\n: 3\n", r"c\.yaml, line 1: a key is a mapping; wanted a word or a number"),
        (b"env: &a {x: *a}\n", r"c\.yaml: an alias \(\*\) puts a section inside itself"),
        (b"env: &a [1, [*a]]\n", r"c\.yaml: an alias \(\*\) puts a section inside itself"),
        (b"[" * 5000, r"c\.yaml: sections are nested too deep"),
    ],
)
def test_a_file_that_no_config_can_be_is_named_with_the_cause(tmp_path, data, message):
    (tmp_path / "c.yaml").write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        load_yaml(tmp_path / "c.yaml")


def test_an_alias_may_stand_in_two_places():
    assert parse_yaml("a: &x {k: 1}\nb: *x\nc: [*x, *x]\n") == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}] * 2}
