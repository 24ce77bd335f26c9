"""Reading a config in any of its forms into `(main, create)`."""

import copy
import importlib.util
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ding_like.config.cfg_dict import CfgDict
from ding_like.config.paths import (
    MISSING,
    ConfigError,
    dict_items,
    get_path,
    join,
    nearest,
    pop_path,
    set_path,
)
from ding_like.config.yaml_io import load_yaml

NAMES = ("main_config", "create_config")
# Sections of a single dict that belong to `create` whole, and single keys that do.
CREATE_SECTIONS = ("env_manager", "collector", "evaluator", "learner", "replay_buffer")
CREATE_KEYS = ("env.type", "env.import_names", "policy.type", "policy.import_names")
_FORMS = "a .py or .yaml file, a (main_config, create_config) pair, or a single dict"

# An unchanged file is run once a process: running it again would register its classes a second time.
_modules: dict[Path, tuple[tuple[int, int], ModuleType]] = {}


def read_config(source: Any) -> tuple[CfgDict, CfgDict]:
    """Return `(main, create)` as fresh `CfgDict`s; the source is never changed.

    Args:
        source: path of a Python file with `main_config` and `create_config` (run in its own place, its folder
            on `sys.path`), path of a YAML file, a `(main, create)` pair, or a single dict: the deep merge of
            both at identical paths (`env.type`, `policy.import_names`, `env_manager.type`, ...).

    Raises:
        ConfigError: names the file or the value, and what was wanted.
    """
    if isinstance(source, str | Path):
        return _read_file(Path(source).expanduser())
    if isinstance(source, tuple | list) and len(source) == 2:
        return _pair(source[0], source[1], "config pair")
    if isinstance(source, Mapping):
        return _from_mapping(source, "config")
    raise ConfigError(f"config: got {_kind(source)}, wanted {_FORMS}")


def join_config(main: Mapping[Any, Any], create: Mapping[Any, Any]) -> CfgDict:
    """Return the single dict of a pair: both merged at identical paths.

    Raises:
        ConfigError: one path holds different values in the two.
    """
    single = CfgDict(copy.deepcopy(dict(dict_items(main))))
    _join_into(single, CfgDict(copy.deepcopy(dict(dict_items(create)))), "")
    return single


def split_config(single: Mapping[Any, Any]) -> tuple[CfgDict, CfgDict]:
    """Return `(main, create)` of a single dict; the inverse of `join_config`."""
    main, create = CfgDict(copy.deepcopy(dict(dict_items(single)))), CfgDict()
    for path in CREATE_SECTIONS + CREATE_KEYS:
        value = pop_path(main, path)
        if value is not MISSING:
            set_path(create, path, value)
    return main, create


def _join_into(single: CfgDict, create: CfgDict, prefix: str) -> None:
    for key, value in create.items():
        path = join(prefix, key)
        if key not in single:
            single[key] = value
        elif isinstance(single[key], CfgDict) and isinstance(value, CfgDict):
            _join_into(single[key], value, path)
        elif single[key] != value:
            raise ConfigError(f"{path}: main_config says {single[key]!r}, create_config {value!r}; keep one")


def _pair(main: Any, create: Any, where: str) -> tuple[CfgDict, CfgDict]:
    for name, value in zip(NAMES, (main, create), strict=True):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {name} is {_kind(value)}, wanted a dict")
    # Through the single form, so that every way of writing a config ends in the same two dicts.
    return _checked(split_config(join_config(main, create)), where)


def _from_mapping(mapping: Mapping[Any, Any], where: str) -> tuple[CfgDict, CfgDict]:
    given = [name for name in NAMES if name in mapping]
    if not given:
        return _checked(split_config(mapping), where)
    if len(given) == 1:
        missing = next(name for name in NAMES if name not in mapping)
        raise ConfigError(f"{where}: has {given[0]} but no {missing}; give both, or one dict of their merge")
    extra = [str(key) for key in mapping if key not in NAMES]
    if extra:
        raise ConfigError(f"{where}: {', '.join(extra)} beside main_config and create_config; move it inside")
    return _pair(mapping["main_config"], mapping["create_config"], where)


def _checked(pair: tuple[CfgDict, CfgDict], where: str) -> tuple[CfgDict, CfgDict]:
    main, create = pair
    if "policy" in main and not isinstance(main.policy, Mapping):
        raise ConfigError(f"{where}: policy is {_kind(main.policy)}, wanted a section such as dict(type='dqn')")
    if not isinstance(get_path(create, "policy.type"), str):
        got = get_path(create, "policy.type", None)
        hint = "" if got is None else f" (got {got!r})"
        raise ConfigError(f"{where}: policy.type is missing{hint}; name a policy there, such as 'dqn'")
    return main, create


def _read_file(path: Path) -> tuple[CfgDict, CfgDict]:
    if not path.is_file():
        why = "is a folder" if path.is_dir() else "does not exist"
        raise ConfigError(f"config file {path} {why}{_similar_file(path)}")
    if path.suffix in (".yaml", ".yml"):
        value = load_yaml(path)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: holds {_kind(value)}, wanted sections (env, policy, ...)")
        return _from_mapping(value, str(path))
    if path.suffix != ".py":
        raise ConfigError(f"config file {path}: unknown kind {path.suffix!r}, wanted .py, .yaml or .yml")
    module = _run_file(path.resolve())
    missing = [name for name in NAMES if not hasattr(module, name)]
    if missing:
        close = nearest(missing[0], [name for name in vars(module) if name not in NAMES and name[0] != "_"])
        hint = f"; it has {close}, was that meant?" if close else ""
        raise ConfigError(f"{path}: no {' and no '.join(missing)}; a Python config defines both dicts{hint}")
    return _pair(module.main_config, module.create_config, str(path))


def _similar_file(path: Path) -> str:
    if path.is_dir() or not path.parent.is_dir():
        return ""
    close = nearest(path.name, [other.name for other in path.parent.iterdir()])
    return f", did you mean {path.parent / close}?" if close else ""


def _run_file(path: Path) -> ModuleType:
    """Import a Python file by its path; its classes pickle by name, as its folder is on `sys.path`."""
    stat = path.stat()
    stamp = (stat.st_mtime_ns, stat.st_size)
    known = _modules.get(path)
    if known and known[0] == stamp:
        return known[1]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path):
        name = f"config_{name}_{zlib.crc32(bytes(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            where = f", line {error.lineno}" if error.lineno else ""
            raise ConfigError(f"{path}{where}: {error.msg}") from error
        if isinstance(error, SystemExit):
            raise ConfigError(
                f"{path} called sys.exit({'' if error.code is None else repr(error.code)}); a config is imported, so "
                "keep what ends a program below if __name__ == '__main__'"
            ) from error
        raise
    _modules[path] = (stamp, module)
    return module


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__} ({value!r:.60})"
