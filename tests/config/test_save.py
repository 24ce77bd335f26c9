import math

import numpy as np
import pytest

from ding_like.config import CfgDict, ConfigError, load_config, save_config


def test_a_saved_config_loads_equal_with_plain_types(tmp_path):
    """B56: the dumped full config reloads to an equal run."""
    cfg = CfgDict(
        exp_name="1e-3",
        stop_value=math.inf,
        learn={
            "lr": 1e-05,
            "clip": None,
            "sizes": (128, 64),
            "n": np.int64(3),
            "on": "on",
            "gamma": np.float32(0.5),
        },
        agents={0: {"items": "true"}},
        empty={},
        none_list=[],
        text="two\nlines: #x",
    )
    save_config(cfg, tmp_path / "total_config.yaml")
    got = load_config(tmp_path / "total_config.yaml")
    assert got == {
        "exp_name": "1e-3",
        "stop_value": math.inf,
        "learn": {"lr": 1e-05, "clip": None, "sizes": [128, 64], "n": 3, "on": "on", "gamma": 0.5},
        "agents": {0: {"items": "true"}},
        "empty": {},
        "none_list": [],
        "text": "two\nlines: #x",
    }
    assert isinstance(got.learn.lr, float)
    assert type(got.learn) is CfgDict
    assert [p.name for p in tmp_path.iterdir()] == ["total_config.yaml"]


def test_an_object_no_file_can_hold_is_said_and_refuses_to_load(tmp_path, caplog):
    save_config({"env": {"env_kwargs": {"reward_fn": max}}, "a": 1}, tmp_path / "c.yaml")
    assert "env.env_kwargs.reward_fn: <built-in function max> cannot be written" in caplog.text
    with pytest.raises(ConfigError, match=r"line 3: the run that wrote this was given <built-in function max>"):
        load_config(tmp_path / "c.yaml")
