"""YAML as a config needs it: `1e-3` is a number, `on` a word, a key given twice an error."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ding_like.config.paths import ConfigError

# PyYAML follows YAML 1.1, where 1e-3 is a string, `on` true, 010 eight, 1:30 ninety and 2026-01-01 a date.
_RESOLVERS = {
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|None|", "~nN\0"),
    "tag:yaml.org,2002:int": (r"[-+]?(?:0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
        r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.?(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789iI",
    ),
    "tag:yaml.org,2002:merge": (r"<<", "<"),
}
UNSAVED = "!unsaved"  # what a saved config holds in place of an object that no text can hold


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    by_first_char: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, first_chars) in _RESOLVERS.items():
        for char in first_chars:
            entry = (tag, re.compile(rf"(?:{pattern})\Z"))
            by_first_char.setdefault("" if char == "\0" else char, []).append(entry)
    return by_first_char


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _resolvers()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                kind = "mapping" if isinstance(key, yaml.MappingNode) else "list"
                raise ConfigError(f"{self.name}, line {line}: a key is a {kind}; wanted a word or a number")
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise ConfigError(f"{self.name}, line {line}: the key {key.value!r} is given twice; keep one")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_unsaved(self, node: yaml.Node) -> Any:
        where = f"{self.name}, line {node.start_mark.line + 1}"
        raise ConfigError(f"{where}: the run that wrote this was given {node.value}, which no file can hold")


class _Dumper(yaml.SafeDumper):
    # The loader's resolvers, so that every string the loader would take for a number is quoted.
    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_sequence(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict | list) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


def _represent_object(dumper: yaml.SafeDumper, data: Any) -> yaml.Node:
    return dumper.represent_scalar(UNSAVED, repr(data))


_Loader.add_constructor(UNSAVED, _Loader.construct_unsaved)
_Dumper.add_representer(list, _represent_sequence)
_Dumper.add_representer(None, _represent_object)  # type: ignore[arg-type]


def parse_yaml(text: str, name: str = "YAML") -> Any:
    """Return the value of a YAML text.

    Raises:
        ConfigError: not YAML, a key given twice, or a section inside itself; says where.
    """
    try:
        loader = _Loader(text)
        loader.name = name
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
        _check_finite_depth(value, name, (), set())
    except yaml.reader.ReaderError as error:
        where = f"{name}, line {text.count(chr(10), 0, error.position) + 1}"
        raise ConfigError(f"{where}: holds the character {chr(error.character)!r}, which no YAML may hold") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigError(f"{where}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: sections are nested too deep") from error
    return value


def _check_finite_depth(value: Any, name: str, above: tuple[int, ...], seen: set[int]) -> None:
    """Raise ConfigError where an alias makes a section or list part of itself."""
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        raise ConfigError(f"{name}: an alias (*) puts a section inside itself; write the value out instead")
    if id(value) in seen:
        return
    seen.add(id(value))
    for item in value.values() if isinstance(value, dict) else value:
        _check_finite_depth(item, name, (*above, id(value)), seen)


def load_yaml(path: str | Path) -> Any:
    """Return the value of a YAML file; errors as `parse_yaml`, and ConfigError for one that is not UTF-8."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text (byte {error.object[error.start]:#04x} at position {error.start}); save it as "
            "UTF-8"
        ) from error
    return parse_yaml(text, str(path))


def dump_yaml(value: Any) -> str:
    """Return plain data as YAML that `parse_yaml` reads back equal."""
    # Escapes instead of allow_unicode: PyYAML writes some line separators bare and reads them back as spaces.
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=100)
