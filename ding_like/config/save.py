"""Saving a full config so that it reloads to an equal run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ding_like.config.cfg_dict import CfgDict, to_plain
from ding_like.config.paths import walk
from ding_like.config.yaml_io import dump_yaml, load_yaml
from ding_like.utils.log import warn_once


def save_config(cfg: Mapping[Any, Any], path: str | Path) -> None:
    """Write a config as YAML in one step (temp file and rename); `load_config` reads it back equal.

    An object that no text can hold (a function in `env_kwargs`) is written as a mark that refuses to load; a
    warning says so.
    """
    plain = to_plain(cfg)
    for key, value in walk(plain):
        if not isinstance(value, dict | list | str | bool | int | float | None):
            warn_once(f"unsaved {key}", f"{key}: {value!r} cannot be written; {path} will not reload")
    path = Path(path)
    part = path.with_name(path.name + ".part")
    part.write_text(dump_yaml(plain), encoding="utf-8")
    os.replace(part, path)


def load_config(path: str | Path) -> CfgDict:
    """Return a saved config."""
    return CfgDict(load_yaml(path))
