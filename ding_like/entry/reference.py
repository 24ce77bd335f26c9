"""The reference of all config keys, read from the sources: each default with the comment beside it."""

import ast
import importlib.util
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """Where defaults sit in the config, and where they are written.

    `name` is a dict in the module (`Class.config` or a global), or a class whose constructor takes the keys.
    """

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
    Source("The run", "", "ding_like.entry.build", "TOP_CONFIG"),
    Source("Environments", "env", "ding_like.envs.make", "ENV_CONFIG"),
    Source("A task of several", "env.tasks[i]", "ding_like.envs.tasks", "TASK_CONFIG"),
    Source("Every policy", "policy", "ding_like.policy.base_policy", "Policy.config"),
    Source("Every Q-learning policy", "policy", "ding_like.policy.q_learning", "QLearningPolicy.config"),
    Source("Policy `dqn`", "policy", "ding_like.policy.dqn", "DQNPolicy.config"),
    Source("Policy `r2d2`", "policy", "ding_like.policy.r2d2", "R2D2Policy.config"),
    Source("Policy `c51`", "policy", "ding_like.policy.c51", "C51Policy.config"),
    Source("Policy `qrdqn`", "policy", "ding_like.policy.qrdqn", "QRDQNPolicy.config"),
    Source("Policy `iqn`", "policy", "ding_like.policy.iqn", "IQNPolicy.config"),
    Source("Policy `rainbow`", "policy", "ding_like.policy.rainbow", "RainbowPolicy.config"),
    Source("Policy `sqn`", "policy", "ding_like.policy.sqn", "SQNPolicy.config"),
    Source("Policies `ppo` and `a2c`", "policy", "ding_like.policy.actor_critic", "ActorCriticPolicy.config"),
    Source("Policy `ppo`", "policy", "ding_like.policy.ppo", "PPOPolicy.config"),
    Source("Policy `a2c`", "policy", "ding_like.policy.a2c", "A2CPolicy.config"),
    Source("Policy `impala`", "policy", "ding_like.policy.impala", "IMPALAPolicy.config"),
    Source("Policy `ppg`", "policy", "ding_like.policy.ppg", "PPGPolicy.config"),
    Source(
        "Every Q-value gradient policy", "policy", "ding_like.policy.q_value_gradient", "QValueGradientPolicy.config"
    ),
    Source("Policy `ddpg`", "policy", "ding_like.policy.ddpg", "DDPGPolicy.config"),
    Source("Policy `td3`", "policy", "ding_like.policy.td3", "TD3Policy.config"),
    Source("Policy `sac`", "policy", "ding_like.policy.sac", "SACPolicy.config"),
    Source("Policy `bc`", "policy", "ding_like.policy.bc", "BehaviouralCloningPolicy.config"),
    Source("Model `dqn`", "policy.model", "ding_like.model.template.q_learning", "DQN"),
    Source("Model `drqn`", "policy.model", "ding_like.model.template.drqn", "DRQN"),
    Source("Model `vac`", "policy.model", "ding_like.model.template.vac", "VAC"),
    Source("Model `qac`", "policy.model", "ding_like.model.template.qac", "QAC"),
    Source("Learner", "policy.learn.learner", "ding_like.worker.learner.learner", "Learner.config"),
    Source(
        "Collector",
        "policy.collect.collector",
        "ding_like.worker.collector.sample_collector",
        "SampleCollector.config",
    ),
    Source("Evaluator", "policy.eval.evaluator", "ding_like.worker.collector.evaluator", "Evaluator.config"),
    Source(
        "Replay buffer `replay`",
        "policy.other.replay_buffer",
        "ding_like.worker.replay_buffer.replay",
        "Replay.config",
    ),
    Source("Store `queue`", "policy.other.replay_buffer", "ding_like.worker.replay_buffer.queue", "Queue.config"),
    Source(
        "Store `phasic`", "policy.other.replay_buffer", "ding_like.worker.replay_buffer.phasic", "PhasicRollout.config"
    ),
    Source("Store `dataset`", "policy.other.replay_buffer", "ding_like.worker.replay_buffer.dataset", "Dataset.config"),
)

_HEADER = """# Config reference

Generated from the classes by `ding config reference --write docs/config_reference.md`; do not edit.

`policy.learn.batch_size` is written `main_config = dict(policy=dict(learn=dict(batch_size=64)))`, or
`--set policy.learn.batch_size=64`. A value must have the type of its default (an integer may also be written
`1e5`) and make sense: see [what is checked](configs.md#what-is-checked).
"""


def keys_of(source: Source) -> list[Key]:
    """Return the keys of one source; a section itself only where it is empty and has a meaning of its own.

    Raises:
        LookupError: the module has no such dict or class.
    """
    spec = importlib.util.find_spec(source.module)
    if spec is None or spec.origin is None:
        raise LookupError(f"module {source.module} is not found")
    text = Path(spec.origin).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in source.name.split("."):
        node = _member(node, part, source)
    if isinstance(node, ast.ClassDef):
        return _arguments(node, source)
    return list(_walk(node, source.section, _comments(text)))


def reference() -> str:
    """Return the whole reference as Markdown."""
    parts = [_HEADER]
    for source in SOURCES:
        cells = [[f"`{key.path}`", f"`{key.default}`" if key.default else "", key.meaning] for key in keys_of(source)]
        rows = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in cells]
        table = ["key | default | meaning", "--- | --- | ---", *rows]
        parts.append("\n".join([f"## {source.title}", "", *(f"| {row} |" for row in table), ""]))
    return "\n".join(parts)


def _member(node: ast.AST, name: str, source: Source) -> ast.AST:
    for child in getattr(node, "body", []):
        if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == name:
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
            meaning = comments.get(value.end_lineno or 0, "")
            if meaning or _items(value) is None:
                yield Key(path, ast.unparse(value), meaning)


def _arguments(node: ast.ClassDef, source: Source) -> list[Key]:
    """Return the constructor's arguments with what the docstring's `Args` say."""
    init = _member(node, "__init__", source)
    assert isinstance(init, ast.FunctionDef)
    meanings = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", ast.get_docstring(node) or "", re.MULTILINE))
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = [""] * (len(names) - len(init.args.defaults)) + [ast.unparse(value) for value in init.args.defaults]
    return [
        Key(f"{source.section}.{name}", default, " ".join(meanings.get(name, "").split()).rstrip("."))
        for name, default in zip(names, defaults)
    ]
