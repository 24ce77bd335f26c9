"""The reference of all config keys, read from the sources: each default with the comment beside it."""

import ast
import importlib.util
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A dict of defaults: where it sits in the config, and where it is written (`Class.config` or a global)."""

    title: str
    section: str
    module: str
    name: str


class Key(NamedTuple):
    """One documented key."""

    path: str
    default: str
    meaning: str


SOURCES = (
    Source("Every policy", "policy", "ding_like.policy.base_policy", "Policy.config"),
    Source("Policy `dqn`", "policy", "ding_like.policy.dqn", "DQNPolicy.config"),
    Source(
        "Replay buffer `replay`",
        "policy.other.replay_buffer",
        "ding_like.worker.replay_buffer.replay",
        "ReplayBuffer.config",
    ),
)

_HEADER = """# Config reference

Generated from the classes by `ding config reference --write docs/config_reference.md`; do not edit.

A key is written as its path: `policy.learn.batch_size` is `main_config = dict(policy=dict(learn=dict(batch_size=64)))`,
or `--set policy.learn.batch_size=64`. A value must have the type of its default; where the default is `None`,
anything but a number in quotes will do.
"""


def keys_of(source: Source) -> list[Key]:
    """Return the keys of one dict of defaults, sections left out unless empty.

    Raises:
        LookupError: the module has no such dict.
    """
    spec = importlib.util.find_spec(source.module)
    if spec is None or spec.origin is None:
        raise LookupError(f"module {source.module} is not found")
    text = Path(spec.origin).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in source.name.split("."):
        node = _member(node, part, source)
    return list(_walk(node, source.section, _comments(text)))


def reference() -> str:
    """Return the whole reference as Markdown."""
    parts = [_HEADER]
    for source in SOURCES:
        rows = [f"| `{path}` | `{default}` | {meaning} |" for path, default, meaning in keys_of(source)]
        parts.append("\n".join([f"## {source.title}", "", "| key | default | meaning |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _member(node: ast.AST, name: str, source: Source) -> ast.AST:
    for child in getattr(node, "body", []):
        if isinstance(child, ast.ClassDef) and child.name == name:
            return child
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return child.value
    raise LookupError(f"{source.module} has no {source.name}")


def _comments(text: str) -> dict[int, str]:
    """Return line number -> comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _items(node: ast.AST) -> list[tuple[str, ast.expr]] | None:
    """Return the (key, value) nodes of a dict display or a `dict(...)` call; None for anything else."""
    if isinstance(node, ast.Dict):
        return [(str(ast.literal_eval(key)), value) for key, value in zip(node.keys, node.values) if key]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    return None


def _walk(node: ast.AST, section: str, comments: dict[int, str]) -> Iterator[Key]:
    for name, value in _items(node) or []:
        path = f"{section}.{name}" if section else name
        if _items(value):
            yield from _walk(value, path, comments)
        else:
            meaning = comments.get(value.end_lineno or 0) or comments.get(value.lineno - 1, "")
            yield Key(path, ast.unparse(value), meaning.replace("|", "\\|"))
