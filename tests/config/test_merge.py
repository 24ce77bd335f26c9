import copy
import math
import re

import numpy as np
import pytest
from easydict import EasyDict

import ding_like.utils.log as log
from ding_like.config import ConfigError, apply_sets, deep_merge_defaults, merge, parse_set

DEFAULTS = {
    "exp_name": "run",
    "env": {"collector_env_num": 8, "env_kwargs": {}, "stop_value": math.inf},
    "policy": {
        "cuda": False,
        "discount_factor": 0.99,
        "learn": {"batch_size": 64, "learning_rate": 1e-3, "target_theta": None},
        "model": {"sizes": [128, 64], "names": []},
        "other": {"eps": {"type": "exp", "decay": 1000}},
    },
}


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    monkeypatch.setattr(log, "_warned", set())


def _user(path, value):
    nested = {}
    node = nested
    *sections, last = path.split(".")
    for key in sections:
        node = node.setdefault(key, {})
    node[last] = value
    return nested


def _merged(path, value):
    node = merge(DEFAULTS, _user(path, value))
    for key in path.split("."):
        node = node[key]
    return node


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("policy.discont_factor", "policy.discount_factor"),
        ("policy.learn.batch_sise", "policy.learn.batch_size"),
        ("policy.other.eps.tpye", "policy.other.eps.type"),
        ("policy.batch_size", "policy.learn.batch_size"),
        ("learning_rate", "policy.learn.learning_rate"),
        ("env.batch_size", "policy.learn.batch_size"),
        ("polcy", "policy"),
        ("policy.learn.Batch_Size", "policy.learn.batch_size"),
        ("policy.lerning_rate", "policy.learn.learning_rate"),
    ],
)
def test_an_unknown_key_raises_with_its_path_and_the_nearest_key(path, wanted):
    """B56: a misspelt setting, also at the wrong depth, is an error that names the right one."""
    with pytest.raises(ConfigError, match=rf"^{re.escape(path)}: unknown key; did you mean {re.escape(wanted)}\?$"):
        merge(DEFAULTS, _user(path, 1))


def test_a_key_like_no_other_lists_the_keys_of_its_section_and_names_the_owner():
    with pytest.raises(
        ConfigError,
        match=r"^policy.learn.zzz: unknown key of policy 'dqn'; keys here: batch_size, learning_rate, ",
    ):
        merge(DEFAULTS, _user("policy.learn.zzz", 1), owner="policy 'dqn'")


def test_a_key_of_another_policy_says_so():
    """B56: a key of another policy."""
    hints = {"policy.learn.zeta": "it is a key of policy 'sac'"}
    with pytest.raises(ConfigError, match=r"policy.learn.zeta: unknown key; it is a key of policy 'sac'"):
        merge(DEFAULTS, _user("policy.learn.zeta", 1), elsewhere=hints.get)


def test_all_mistakes_are_told_at_once():
    user = {"policy": {"cuda": 1, "learn": {"batch_sise": 3}}, "exp_nam": "x"}
    with pytest.raises(ConfigError) as caught:
        merge(DEFAULTS, user)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["policy.cuda", "policy.learn.batch_sise", "exp_nam"]


def test_a_path_puts_the_section_in_its_place_for_messages():
    with pytest.raises(ConfigError, match=r"policy.batch_size: unknown key; did you mean policy.learn.batch_size\?"):
        merge(DEFAULTS["policy"], {"batch_size": 1}, path="policy")


@pytest.mark.parametrize("how", [{"strict": False}, {"lenient": ["policy"]}, {"lenient": {"policy.learn"}}])
def test_an_outside_class_keeps_unknown_keys_and_says_so_once(caplog, how):
    """B56: the escape hatch for keys of a user's own class."""
    for _ in range(2):
        cfg = merge(DEFAULTS, {"policy": {"learn": {"my_key": "1"}}}, **how)
    assert cfg.policy.learn.my_key == "1"
    assert [r.getMessage() for r in caplog.records] == [
        "policy.learn.my_key: unknown key; keys here: batch_size, learning_rate, target_theta; kept, as its "
        "class is not one of ours"
    ]


def test_a_lenient_section_leaves_the_others_strict():
    with pytest.raises(ConfigError, match=r"env.collector_num: unknown key; did you mean env.collector_env_num"):
        merge(DEFAULTS, {"env": {"collector_num": 1}}, lenient=["policy"])


@pytest.mark.parametrize(
    ("path", "value", "got"),
    [
        ("policy.learn.batch_size", 1e2, 100),
        ("policy.learn.batch_size", np.int64(5), 5),
        ("policy.learn.learning_rate", 1, 1.0),
        ("policy.learn.learning_rate", np.float32(0.5), 0.5),
        ("env.stop_value", 195, 195.0),
        ("policy.cuda", np.bool_(True), True),
        ("policy.model.sizes", (32, 1e2), [32, 100]),
        ("policy.model.sizes", [], []),
        ("policy.model.names", ["a", 1], ["a", 1]),
        ("policy.learn.target_theta", 0.005, 0.005),
        ("policy.learn.target_theta", None, None),
        ("policy.learn.target_theta", {"a": 1}, {"a": 1}),
        ("exp_name", "64", "64"),
        ("env.env_kwargs", {"n": "64", "deep": {"x": None}}, {"n": "64", "deep": {"x": None}}),
    ],
)
def test_a_value_is_taken_as_the_type_of_its_default(path, value, got):
    assert _merged(path, value) == got
    assert type(_merged(path, value)) in (type(got), type(merge(DEFAULTS, {})))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "policy.learn.learning_rate",
            "1e-3",
            "got '1e-3', wanted a number such as 0.001; remove the quotes",
        ),
        ("policy.learn.batch_size", "64", "got '64', wanted an integer such as 64; remove the quotes"),
        ("policy.learn.target_theta", "0.005", "got '0.005', a number in quotes; remove the quotes"),
        ("policy.learn.batch_size", "apple", "got 'apple', wanted an integer such as 64"),
        ("policy.learn.batch_size", 64.5, "got 64.5, wanted an integer such as 64"),
        ("policy.learn.batch_size", math.inf, "got inf, wanted an integer such as 64"),
        ("policy.learn.batch_size", True, "got True, wanted an integer such as 64"),
        ("policy.learn.learning_rate", False, "got False, wanted a number such as 0.001"),
        (
            "policy.learn.learning_rate",
            None,
            "got None, wanted a number .*; leave the key out to keep the default",
        ),
        ("policy.cuda", 1, "got 1, wanted true or false"),
        ("policy.cuda", "yes", "got 'yes', wanted true or false"),
        ("exp_name", 3, "got 3, wanted a string such as 'run'"),
        ("policy.model.sizes", 128, r"got 128, wanted a list such as \[128, 64\]; write \[128\]"),
        ("policy.model.sizes", "128", r"got '128', wanted a list such as \[128, 64\]; write \['128'\]"),
        (
            "policy.model.sizes",
            [64, "64"],
            r"\[1\]: got '64', wanted an integer such as 128; remove the quotes",
        ),
        ("policy.learn", 3, "got 3, wanted a section with keys of batch_size, learning_rate, target_theta"),
        ("env.env_kwargs", [1], r"got \[1\], wanted a section \(a dict\)"),
        ("env.env_kwargs", None, "got None, wanted a section"),
    ],
)
def test_a_value_of_another_type_raises_naming_path_value_and_wanted(path, value, message):
    """B56: a number given as a string, and other wrong types."""
    with pytest.raises(ConfigError, match=rf"^{re.escape(path)}(: |\[1\]: )?.*{message}"):
        merge(DEFAULTS, _user(path, value))


def test_a_firm_section_is_strict_inside_a_lenient_one_and_where_it_is_empty_by_default():
    defaults = {"policy": {"a": 1, "learn": {"learner": {"freq": 1}}, "collector": {}, "free": {}}}
    firm = ["policy.learn.learner", "policy.collector"]
    kept = {"policy": {"b": 2, "learn": {"c": 3}, "free": {"d": 4}}}
    assert merge(defaults, kept, lenient=["policy"], firm=firm).policy.learn.c == 3
    wrong = {"policy": {"learn": {"learner": {"frq": 3}}, "collector": {"x": 1}}}
    with pytest.raises(ConfigError) as caught:
        merge(defaults, wrong, lenient=["policy"], firm=firm)
    assert str(caught.value).splitlines() == [
        "policy.learn.learner.frq: unknown key; did you mean policy.learn.learner.freq?",
        "policy.collector.x: unknown key; keys here: none",
    ]


def test_rules_see_the_merged_config_and_their_lines_join_the_others():
    seen = []

    def rules(cfg):
        seen.append(cfg)
        return ["a line"]

    with pytest.raises(ConfigError, match=r"^policy.cuda: got 3, wanted true or false\na line$"):
        merge(DEFAULTS, {"policy": {"cuda": 3}, "exp_name": "x"}, rules=rules)
    assert (seen[0].policy.cuda, seen[0].exp_name) == (DEFAULTS["policy"]["cuda"], "x")


def test_merge_changes_neither_input_and_shares_nothing():
    defaults, user = copy.deepcopy(DEFAULTS), EasyDict(policy=dict(model=dict(sizes=[1, 2])))
    cfg = merge(defaults, user)
    cfg.policy.model.sizes.append(3)
    cfg.policy.learn.batch_size = 1
    cfg.env.env_kwargs.x = 1
    assert defaults == DEFAULTS
    assert user == {"policy": {"model": {"sizes": [1, 2]}}}
    assert merge(DEFAULTS, {}) == DEFAULTS


def test_deep_merge_defaults_keeps_what_a_later_layer_does_not_name():
    layers = ({"a": {"x": 1, "y": 2}, "b": {}}, {"a": {"y": 3}, "b": {"z": 1}}, {"a": {"w": None}})
    assert deep_merge_defaults(*layers) == {"a": {"x": 1, "y": 3, "w": None}, "b": {"z": 1}}
    assert layers[0] == {"a": {"x": 1, "y": 2}, "b": {}}
    with pytest.raises(ConfigError, match=r"a.b: 3 would replace a section with keys c"):
        deep_merge_defaults({"a": {"b": {"c": 1}}}, {"a": {"b": 3}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=1e-3", {"a": {"b": 1e-3}}),
        ("a=[64, 64]", {"a": [64, 64]}),
        ("a.b={start: 1.0, end: on}", {"a": {"b": {"start": 1.0, "end": "on"}}}),
        ("a=x=y", {"a": "x=y"}),
        ("a=", {"a": None}),
        ("a='64'", {"a": "64"}),
        (" a =true", {"a": True}),
    ],
)
def test_parse_set_reads_the_value_as_yaml(text, value):
    assert parse_set(text) == value


@pytest.mark.parametrize("text", ["a.b", "=3", "a..b=3", ".a=1", ""])
def test_parse_set_without_key_or_value_says_what_was_wanted(text):
    with pytest.raises(ConfigError, match=r"wanted KEY=VALUE, such as policy.learn.batch_size=64"):
        parse_set(text)
    with pytest.raises(ConfigError, match=r"--set a.b, line 1: not valid YAML"):
        parse_set("a.b=[1")


def test_apply_sets_writes_over_a_copy_and_the_last_wins():
    base = {"policy": {"learn": {"batch_size": 64, "lr": 1}}}
    got = apply_sets(base, ["policy.learn.batch_size=8", "policy.learn.batch_size=9", "env.type=x"])
    assert got == {"policy": {"learn": {"batch_size": 9, "lr": 1}}, "env": {"type": "x"}}
    assert base == {"policy": {"learn": {"batch_size": 64, "lr": 1}}}
    with pytest.raises(ConfigError, match=r"--set: policy.learn.lr is 1, not a section"):
        apply_sets(base, ["policy.learn.lr.x=1"])


def test_a_set_value_replaces_the_other_places_of_the_same_value():
    base = {"env": {"collector_env_num": 8}, "policy": {"collect": {"env_num": 8}}}
    assert apply_sets(base, ["env.collector_env_num=4"]) == {"env": {"collector_env_num": 4}}
    assert apply_sets(base, ["policy.collect.env_num=4"]) == {"policy": {"collect": {"env_num": 4}}}


def test_none_is_a_value_where_the_owner_says_so():
    defaults = {"learn": {"clip": 0.5, "lr": 0.1}}
    merged = merge(defaults, {"learn": {"clip": None}}, path="policy", nullable=["policy.learn.clip"])
    assert merged.learn == {"clip": None, "lr": 0.1}
    with pytest.raises(ConfigError, match="got None"):
        merge(defaults, {"learn": {"lr": None}}, path="policy", nullable=["policy.learn.clip"])
