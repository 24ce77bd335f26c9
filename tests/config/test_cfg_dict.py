import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from easydict import EasyDict

from ding_like.config import CfgDict, to_plain


def test_sections_are_attributes_at_every_depth_also_inside_lists():
    cfg = CfgDict({"policy": {"learn": {"batch_size": 64}}, "agents": [{"lr": 1e-3}, ({"lr": 2e-3},)]})
    assert cfg.policy.learn.batch_size == 64
    assert cfg.agents[0].lr == 1e-3
    assert cfg.agents[1][0].lr == 2e-3
    cfg.policy.learn.batch_size = 32
    cfg.policy.extra = {"deep": {"x": 1}}
    assert cfg["policy"]["learn"]["batch_size"] == 32
    assert cfg.policy.extra.deep.x == 1


def test_missing_attribute_and_key_name_the_nearest():
    cfg = CfgDict(batch_size=64, lr=1e-3)
    with pytest.raises(AttributeError, match=r"config has no key 'batch_sise', did you mean 'batch_size'?"):
        cfg.batch_sise  # noqa: B018
    with pytest.raises(KeyError, match=r"did you mean 'batch_size'"):
        cfg["batch_sise"]
    with pytest.raises(AttributeError, match=r"config has no key 'zzzzzz'; its keys: 'batch_size', 'lr'"):
        cfg.zzzzzz  # noqa: B018
    with pytest.raises(AttributeError, match=r"'batch_size'"):
        del cfg.batch_sise
    assert not hasattr(cfg, "batch_sise")
    assert cfg.get("batch_sise") is None


def test_integer_keys_and_method_names_survive():
    cfg = CfgDict({0: {"lr": 1}, "items": 3, "keys": 4, "update": 5})
    assert cfg[0].lr == 1
    assert (cfg["items"], cfg["keys"], cfg["update"]) == (3, 4, 5)
    assert dict(cfg.items()) == {0: {"lr": 1}, "items": 3, "keys": 4, "update": 5}
    assert to_plain(cfg) == {0: {"lr": 1}, "items": 3, "keys": 4, "update": 5}


def test_an_easydict_whose_key_hides_a_method_is_read_right():
    hidden = EasyDict({"a": {"items": [1, 2], "keys": 1}})
    cfg = CfgDict(hidden)
    assert cfg == {"a": {"items": [1, 2], "keys": 1}}
    assert type(cfg.a) is CfgDict
    assert type(to_plain(hidden)["a"]) is dict


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda cfg: pickle.loads(pickle.dumps(cfg))])
def test_deepcopy_and_pickle_give_an_equal_cfg_that_shares_nothing(clone):
    cfg = CfgDict({"a": {"b": [1, {"c": 2}]}, 3: None})
    other = clone(cfg)
    assert other == cfg
    assert type(other.a.b[1]) is CfgDict
    other.a.b[1].c = 9
    assert cfg.a.b[1].c == 2


def test_dict_methods_wrap_too():
    cfg = CfgDict()
    cfg.update({"a": {"x": 1}}, b={"y": 2})
    assert cfg.setdefault("c", {"z": 3}).z == 3
    cfg |= {"d": {"w": 4}}
    assert (cfg.a.x, cfg.b.y, cfg.d.w) == (1, 2, 4)
    assert (cfg | {"e": {"v": 5}}).e.v == 5
    assert type(cfg.copy()) is CfgDict


def test_to_plain_leaves_only_yaml_types_and_shares_nothing():
    source = EasyDict(a=(1, np.float64(0.5)), b={"c": np.arange(3), "d": np.bool_(True)}, e=Path("x/y"), f=None)
    plain = to_plain(CfgDict(source))
    assert plain == {"a": [1, 0.5], "b": {"c": [0, 1, 2], "d": True}, "e": "x/y", "f": None}
    assert [type(x) for x in plain["a"]] == [int, float]
    assert type(plain["b"]) is dict
    assert type(plain["b"]["c"]) is list
    assert type(plain["b"]["d"]) is bool
    plain["a"].append(1)
    assert len(source.a) == 2
