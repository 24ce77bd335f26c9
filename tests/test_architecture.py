"""The rules of ARCHITECTURE.md that a machine can check."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tokenize
from itertools import pairwise
from pathlib import Path

import pytest

import ding_like
from ding_like.utils import REGISTRIES

PACKAGE = Path(ding_like.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = (
    {"data", "utils"},
    {"rl_utils", "torch_utils", "config"},
    {"model", "envs"},
    {"policy"},
    {"worker"},
    {"distributed"},
    {"entry"},
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
MAY_SEE = {  # of the rooms below, those that a room must not see
    "policy": {"envs"},
    "worker": {"envs", "model", "policy"},
    "utils": set(),
}
MAX_FILE, MAX_BODY, USUAL_BODY, MAX_DEPTH, MAX_PACKAGE = 400, 50, 30, 3, 19_633
DEVICE_FILES = {"policy/acting.py", "policy/base_policy.py", "worker/learner/learner.py"}
OPTIONAL = ("gym", "ale_py", "minatar", "cv2", "Box2D", "mujoco", "tensorboardX", "rich", "matplotlib")
OPTIONAL += ("wandb", "onnx", "onnxscript", "onnxruntime", "imageio", "imageio_ffmpeg")


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes(*kinds):
    """Pairs (file, node) of every node of these kinds in the package."""
    return [(path, node) for path in FILES for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]


def where(path, node):
    return f"{name_of(path)}:{node.lineno}"


def imported_modules(path, node):
    """Dotted names that an import statement of the package's own refers to."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level:
        package = ["ding_like", *path.relative_to(PACKAGE).parts[:-1]]
        return [".".join([*package[: len(package) - node.level + 1], node.module or ""])]
    if node.module == "ding_like":
        return [f"ding_like.{alias.name}" for alias in node.names]
    return [node.module]


def room_imports():
    """Triples (place, importing room, imported room)."""
    for path, node in nodes(ast.Import, ast.ImportFrom):
        own = name_of(path).split("/")[0]
        for module in imported_modules(path, node):
            parts = module.split(".")
            if parts[0] == "ding_like" and own in LEVEL and len(parts) > 1 and parts[1] in LEVEL:
                yield where(path, node), own, parts[1]


# ------------------------------------------------------------------ layers
def test_every_folder_of_the_package_has_a_layer():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(LEVEL)


def test_imports_go_down_only():
    upward = [
        f"{place}: {own} imports {other}"
        for place, own, other in room_imports()
        if own != other and (LEVEL[other] > LEVEL[own] or other in MAY_SEE.get(own, set()))
    ]
    assert upward == []


def test_rooms_of_one_layer_do_not_import_each_other():
    """But data and utils, and the three rooms of layer 1, may in one direction."""
    pairs = {(own, other) for _, own, other in room_imports() if own != other and LEVEL[own] == LEVEL[other]}
    assert not pairs & {("model", "envs"), ("envs", "model")}
    assert [pair for pair in pairs if pair[::-1] in pairs] == []


def test_the_package_does_not_import_recipes():
    imports = [(where(path, node), imported_modules(path, node)) for path, node in nodes(ast.Import, ast.ImportFrom)]
    assert [place for place, names in imports if any(name.startswith("dizoo_configs") for name in names)] == []


# ------------------------------------------------------------------ sizes
def body_lines(node):
    """Lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def code_lines(path):
    """Lines that hold code: no blanks, comments or docstrings."""
    docstrings = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, node.end_lineno + 1))
    skipped = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    lines = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in skipped:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def test_files_stay_short():
    long = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > MAX_FILE} == {}


def test_functions_stay_short():
    sizes = {where(path, node): body_lines(node) for path, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)}
    assert {place: lines for place, lines in sizes.items() if lines > MAX_BODY} == {}
    usual = sum(lines < USUAL_BODY for lines in sizes.values())
    assert usual >= 0.9 * len(sizes)


def test_the_package_stays_small():
    assert sum(code_lines(path) for path in FILES) <= MAX_PACKAGE


def test_the_line_counter_counts_code_alone(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text('"""Doc."""\n\n# comment\ndef f(\n    x,\n):\n    """Doc\n    string."""\n    return """a\nb"""\n')
    assert code_lines(path) == 5
    assert body_lines(tree_of(path).body[1]) == 2


# ------------------------------------------------------------------ what the interpreter sees
@functools.cache
def modules():
    found = pkgutil.walk_packages([str(PACKAGE)], "ding_like.")
    return [ding_like, *(importlib.import_module(info.name) for info in found)]


def public_objects():
    """Pairs (dotted name, object) of public classes and functions where they are defined."""
    for module in modules():
        for name, value in vars(module).items():
            plain = inspect.isclass(value) or inspect.isfunction(value)
            if plain and value.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__}.{name}", value


def test_classes_stay_shallow():
    depth = {
        name: sum(base.__module__.startswith("ding_like.") for base in value.__mro__)
        for name, value in public_objects()
        if inspect.isclass(value)
    }
    assert {name: n for name, n in depth.items() if n > MAX_DEPTH} == {}


def test_public_things_say_what_they_are():
    """A method that overrides one of a base class is described there."""
    silent = [module.__name__ for module in modules() if not module.__doc__]
    for name, value in public_objects():
        if not (value.__doc__ or "").strip():
            silent.append(name)
        if inspect.isclass(value):
            silent += [f"{name}.{key}" for key, member in vars(value).items() if _is_silent(value, key, member)]
    assert silent == []


def _is_silent(cls, key, member):
    if key.startswith("_"):
        return False
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    if not inspect.isfunction(member) or (member.__doc__ or "").strip():
        return False
    return not any(hasattr(base, key) for base in cls.__mro__[1:])


@pytest.mark.parametrize("kind", sorted(REGISTRIES))
def test_the_builtin_names_of_a_registry_are_those_its_modules_register(kind):
    registry = REGISTRIES[kind]
    modules()  # imports all
    named = {name: importlib.import_module(module) for name, module in registry._builtin.items()}
    assert set(named) <= set(registry._entries)
    ours = {name for name, entry in registry._entries.items() if entry.__module__.startswith("ding_like.")}
    assert ours <= set(named)


# ------------------------------------------------------------------ devices
def chooses_device(node):
    """Whether an expression names a device instead of following a tensor at hand.

    `.cuda()`, `torch.device('cuda')` and any `.to(...)` name one;
    `.to(x.dtype)`, `.to(torch.float32)` and the keyword `dtype` are casts, `device=x.device` follows.
    """
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return True
    if node.func.attr == "device":
        return isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    if node.func.attr == "to":
        given = node.args + [keyword.value for keyword in node.keywords if keyword.arg == "device"]
        return not all(_is_dtype(value) or _follows(value) for value in given)
    return any(
        keyword.arg == "device" and isinstance(keyword.value, ast.Constant) and keyword.value.value is not None
        for keyword in node.keywords
    )


def _is_dtype(node):
    if isinstance(node, ast.Name):
        return node.id in ("dtype", "kind")  # a parameter of that meaning
    if not isinstance(node, ast.Attribute):
        return False
    of_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
    return node.attr == "dtype" or (of_torch and re.fullmatch(r"b?float\d*|double|half|u?int\d+|long|bool", node.attr))


def _follows(node):
    """Whether it is the device of a tensor at hand: `x.device`, `self.mean.device`; not `self.device`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "device"):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in ("self", "torch"))


def test_devices_are_chosen_in_three_places_only():
    moves = {(name_of(path), where(path, node)) for path, node in nodes(ast.Call) if chooses_device(node)}
    assert {place for name, place in moves if name not in DEVICE_FILES} == set()
    assert {name for name, _ in moves} == DEVICE_FILES


@pytest.mark.parametrize(
    ("code", "chooses"),
    [
        ("x.to(device)", True),
        ("x.to(self._device, non_blocking=True)", True),
        ("x.to('cuda:0')", True),
        ("x.to(torch.float32, device)", True),
        ("x.cuda()", True),
        ("torch.device('cpu')", True),
        ("torch.zeros(3, device='cuda')", True),
        ("x.to(y.dtype)", False),
        ("x.to(torch.float32)", False),
        ("x.to(device=y.device, dtype=y.dtype)", False),
        ("torch.zeros(3, device=y.device)", False),
        ("x.cpu().numpy()", False),
    ],
)
def test_choosing_a_device_is_told_from_casting_and_following(code, chooses):
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert any(chooses_device(node) for node in calls) == chooses


# ------------------------------------------------------------------ errors
def hides(handler):
    """Whether a handler of any exception neither raises nor makes use of what it caught."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = {"Exception", "BaseException"}
    if not any(kind is None or (isinstance(kind, ast.Name) and kind.id in broad) for kind in caught):
        return False
    body = [node for statement in handler.body for node in ast.walk(statement)]
    raises = any(isinstance(node, ast.Raise) for node in body)
    return not raises and not any(isinstance(node, ast.Name) and node.id == handler.name for node in body)


def test_no_error_is_hidden():
    assert [where(path, node) for path, node in nodes(ast.ExceptHandler) if hides(node)] == []


@pytest.mark.parametrize(
    ("handler", "hidden"),
    [
        ("except Exception: pass", True),
        ("except: pass", True),
        ("except (KeyError, BaseException) as err: print('oops')", True),
        ("except Exception as err: failed.append(err)", False),
        ("except BaseException: raise", False),
        ("except KeyError: pass", False),
    ],
)
def test_hiding_is_told_from_handling(handler, hidden):
    (node,) = ast.parse(f"try: f()\n{handler}").body[0].handlers
    assert hides(node) == hidden


# ------------------------------------------------------------------ imports
@pytest.mark.parametrize("statement", ["import ding_like", "import ding_like.entry.cli"])
def test_importing_needs_no_torch(statement):
    """Nor any other package that takes a noticeable time."""
    assert loaded_by(statement, ("torch", "gymnasium", *OPTIONAL)) == []


@pytest.mark.system
def test_importing_everything_needs_no_optional_package():
    names = [module.__name__ for module in modules()]
    assert loaded_by("import " + ", ".join(names), OPTIONAL) == []


def loaded_by(statement, packages):
    code = f"import sys\n{statement}\nprint(*(p for p in {packages!r} if p in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.split()


# ------------------------------------------------------------------ ARCHITECTURE.md
def test_every_path_in_the_tables_of_the_plan_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    named = [word for row in rows for word in re.findall(r"`([\w/]+(?:\.py)?)`", row)]
    paths = [word for word in named if "/" in word or word.endswith(".py")]
    existing = [f"/{path.relative_to(ROOT).as_posix()}" for path in [*FILES, *(p.parent for p in FILES)]]
    assert len(paths) > 10
    assert [path for path in paths if not any(known.endswith(f"/{path}") for known in existing)] == []


def test_the_layers_of_the_plan_are_the_ones_tested():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"L\d ", line)]
    told = [[room for room in LEVEL if re.search(rf"\b{room}\b", line.split("  ")[0])] for line in lines]
    levels = [LEVEL[room] for rooms in told for room in rooms]
    assert sorted(levels, reverse=True) == levels
    assert sum(map(len, told)) == len(LEVEL)
    assert all(a > b for a, b in pairwise(dict.fromkeys(levels)))
