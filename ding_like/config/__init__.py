"""Configs: reading any form of them, checking and merging, saving."""

from ding_like.config.cfg_dict import CfgDict, to_plain
from ding_like.config.merge import apply_sets, check_value, deep_merge_defaults, merge, parse_set
from ding_like.config.paths import MISSING, ConfigError, get_path, pop_path, set_path, walk
from ding_like.config.read import join_config, read_config, split_config
from ding_like.config.save import load_config, save_config
from ding_like.config.translate import ALIASES, drop_obsolete, fill_aliases, resolve_aliases

__all__ = [
    "ALIASES",
    "MISSING",
    "CfgDict",
    "ConfigError",
    "apply_sets",
    "check_value",
    "deep_merge_defaults",
    "drop_obsolete",
    "fill_aliases",
    "get_path",
    "join_config",
    "load_config",
    "merge",
    "parse_set",
    "pop_path",
    "read_config",
    "resolve_aliases",
    "save_config",
    "set_path",
    "split_config",
    "to_plain",
    "walk",
]
