"""A policy is one short file that shares no code by copying, and nothing outside of it asks which one it is."""

import ast
import inspect
from itertools import combinations
from pathlib import Path

import pytest

from ding_like.policy import Policy
from ding_like.utils import POLICY_REGISTRY
from tests.test_architecture import PACKAGE, modules, name_of, where

NAMES = {name: POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.query() if name in POLICY_REGISTRY._builtin}
POLICY_FILES = sorted((PACKAGE / "policy").glob("*.py"))
LONGEST, ALIKE = 300, 6


def files_of_policies():
    """Files that define a policy, or what some have in common; not the base of all."""
    found = {cls for module in modules() for cls in vars(module).values() if inspect.isclass(cls)}
    ours = [cls for cls in found if issubclass(cls, Policy) and cls is not Policy]
    return sorted({Path(inspect.getfile(cls)) for cls in ours if cls.__module__.startswith("ding_like.")})


def test_policies_are_short_files():
    files = files_of_policies()
    assert {Path(inspect.getfile(cls)) for cls in NAMES.values()} <= set(files)
    assert {name_of(path): n for path in files if (n := len(path.read_text().splitlines())) > LONGEST} == {}


# ---------------------------------------------------------------- copies
def code_of(text):
    """Lines of code with a word in them, without comments, docstrings and imports, stripped; each with its number."""
    tree, lines = ast.parse(text), text.splitlines()
    skipped = set()
    for node in ast.walk(tree):
        words = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if words or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, node.end_lineno + 1))
    stripped = [(number, line.split("  #")[0].strip()) for number, line in enumerate(lines, 1) if number not in skipped]
    return [(number, line) for number, line in stripped if any(map(str.isalnum, line)) and not line.startswith("#")]


def blocks_of(text):
    """Every so many lines of code in a row, and the number of the first."""
    code = code_of(text)
    runs = [code[i : i + ALIKE] for i in range(len(code) - ALIKE + 1)]
    return {tuple(line for _, line in run): run[0][0] for run in runs}


def copies(one, other):
    """Where in the first text lines stand in a row as they do in the second; of both, what `blocks_of` gives."""
    return sorted(one[block] for block in one.keys() & other.keys())


def test_no_two_policy_files_have_six_lines_in_common():
    blocks = {path.name: blocks_of(path.read_text()) for path in POLICY_FILES}
    found = {(a, b): at for a, b in combinations(blocks, 2) if (at := copies(blocks[a], blocks[b]))}
    assert found == {}


def test_a_copy_is_found_whatever_comments_and_blanks_say():
    body = "a = 1\nb = 2\n\nc = f(\n    a,  # why\n    b,\n)\nc = 4\n"
    other = '"""Doc."""\nimport os\nz = 0\n' + body.replace("# why", "# else").replace("\n\n", "\n# here\n")
    one, two = blocks_of(body + "d = 3"), blocks_of(other + "d = 3")
    assert copies(one, two) == [1, 2] and copies(blocks_of(body), two) == [1]
    assert copies(blocks_of(body.replace("b = 2", "b = 3")), two) == []


# ---------------------------------------------------------------- names
def asks(node, names, classes):
    """Whether a node compares something with a policy's name, looks it up by one, or asks for the class of one."""
    looked_in = None
    if isinstance(node, ast.Compare):
        parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.Subscript):
        parts, looked_in = [], node.value
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        if called in ("isinstance", "issubclass"):
            return any({getattr(part, "id", None), getattr(part, "attr", None)} & classes for part in ast.walk(node))
        parts = node.args if called in ("startswith", "endswith") else []
        looked_in = node.func.value if called == "get" and isinstance(node.func, ast.Attribute) else None
    else:
        return False
    keys = looked_in.keys if isinstance(looked_in, ast.Dict) else []
    return any(isinstance(part, ast.Constant) and part.value in names for part in [*parts, *keys])


def test_nothing_asks_which_policy_it_is():
    classes = {cls.__name__ for cls in NAMES.values()}
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = {name for name, cls in NAMES.items() if Path(inspect.getfile(cls)) == path}
        tree = ast.parse(path.read_text())
        found += [where(path, node) for node in ast.walk(tree) if asks(node, set(NAMES) - own, classes)]
    assert found == []


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("kind == 'dqn'", True),
        ("cfg.policy.type in ('ppo', 'a2c')", True),
        ("'sac' != kind", True),
        ("kind.startswith('sac')", True),
        ("isinstance(policy, (DQNPolicy, int))", True),
        ("issubclass(cls, policy.DQNPolicy)", True),
        ("{'dqn': 1}[kind]", True),
        ("{'dqn': 1, **others}.get(kind, 2)", True),
        ("match kind:\n    case 'dqn':\n        pass", True),
        ("isinstance(policy, Policy)", False),
        ("kind == 'continuous'", False),
        ("POLICY_REGISTRY.get('dqn')", False),
        ("registry = {'dqn': 'ding_like.policy.dqn'}", False),
    ],
)
def test_asking_is_told_from_naming(code, wanted):
    assert any(asks(node, {"dqn", "ppo", "a2c", "sac"}, {"DQNPolicy"}) for node in ast.walk(ast.parse(code))) == wanted
