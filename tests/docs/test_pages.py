"""What the documentation says is run, linked and named right."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ding_like.utils.log as log
from ding_like.config import ALIASES
from ding_like.config.translate import ENV_FLAGS, OBSOLETE, ON_POLICY, RENAMED
from ding_like.entry.build import full_config

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"))]
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REACHED = {"your_own": "stop value 0.6 reached", "recurrence": "stop value 195 reached"}
SHORT = {"quick_start"}  # pages whose trainings are cut after a few hundred env steps


def text_of(path):
    return path.read_text(encoding="utf-8")


def files_of(page):
    """The blocks with a title, by that title: files of the page's folder."""
    blocks = [(info, body) for _, info, body in BLOCK.findall(text_of(page)) if info.startswith("title=")]
    return {info.removeprefix("title="): body for info, body in blocks}


def runs():
    """One parameter for each block marked `run`."""
    for page in PAGES:
        scripts = [body for language, info, body in BLOCK.findall(text_of(page)) if info == "run"]
        for number, script in enumerate(scripts):
            yield pytest.param(page, script, id=f"{page.stem}-{number}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """page -> its folder, with the page's files, the recipes, and `ding` and `python` of this environment."""
    made = {}

    def folder(page):
        if page not in made:
            made[page] = path = tmp_path_factory.mktemp(page.stem)
            shutil.copytree(ROOT / "dizoo_configs", path / "dizoo_configs")
            for name, body in files_of(page).items():
                (path / name).write_text(body, encoding="utf-8")
            cut = 'case "$*" in *"-m serial"*) set -- "$@" --env-step 300;; esac' if page.stem in SHORT else ""
            _script(path / "bin" / "python", f'exec {sys.executable} "$@"')
            _script(path / "bin" / "ding", f'{cut}\nexec {sys.executable} -m ding_like.entry.cli "$@"')
        return made[page]

    return folder


def _script(path, body):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.system
@pytest.mark.parametrize(("page", "script"), list(runs()))
def test_the_commands_of_a_page_run(folders, page, script):
    folder = folders(page)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if page.stem in REACHED:  # these trainings reach their stop value, so the code shown does learn; but for short ones
        whole = len(re.findall(r"-m serial(?!.*--env-step 1000\b)", script))
        assert done.stderr.count(REACHED[page.stem]) == whole


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_the_guides_is_either_a_file_or_run(page):
    if page.stem not in ("benchmarks", "config_reference"):
        assert [info for _, info, _ in BLOCK.findall(text_of(page)) if not re.match("title=|run$", info)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_the_guides_is_formatted(page, tmp_path):
    for name, body in files_of(page).items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(body)
    settings = ["--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["format", "--check"], ["check", "--ignore", "I001,SIM115"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *settings], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = page if not name else (page.parent / name).resolve()
        assert linked.exists(), f"{page.name} links to {target}"
        assert ROOT in linked.parents or linked == ROOT
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_names_of_the_package_exist(page):
    for name in re.findall(r"`(ding_like(?:\.\w+)+)`", text_of(page)):
        _resolve(name)


def test_names_of_di_engine_in_the_migration_guide_keep_their_places():
    names = re.findall(r"`(?:ding|dizoo)(\.[\w.]+)`", text_of(ROOT / "docs" / "migration.md"))
    roots = re.findall(r"`(ding|dizoo)\.\w", text_of(ROOT / "docs" / "migration.md"))
    assert len(names) > 20
    for root, name in zip(roots, names, strict=True):
        _resolve({"ding": "ding_like", "dizoo": "dizoo_configs"}[root] + name)


def _resolve(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} does not exist")


def test_config_keys_of_the_guides_exist():
    """Every `policy.a.b` or `env.a` in backticks is a key of the reference, or a section of one; in the migration guide
    also a key of DI-engine's that is translated.
    """
    reference = text_of(ROOT / "docs" / "config_reference.md")
    known = {*re.findall(r"^\| `([\w.]+)`", reference, re.MULTILINE), *(alias for alias, _ in ALIASES)}
    known |= {".".join(key.split(".")[:n]) for key in known for n in range(1, key.count(".") + 1)}
    extra = {"policy.model.type", "policy.model.import_names", "policy.learn.batch_sise", "policy.batch_size"}
    old = {entry.path for entry in (*OBSOLETE, *ON_POLICY, *ENV_FLAGS)} | {name for name, _ in RENAMED}
    for page in PAGES:
        keys = set(re.findall(r"`((?:policy|env)(?:\.\w+)+)(?:=[^`]*)?`", text_of(page)))
        allowed = known | extra | (old if page.stem == "migration" else set())
        assert keys - allowed == set(), page.name


def test_the_old_on_policy_config_means_what_it_meant_and_each_old_key_is_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(log, "_warned", set())
    (tmp_path / "old.py").write_text(files_of(ROOT / "docs" / "migration.md")["old_ppo_config.py"])
    for _ in range(2):
        policy = full_config(str(tmp_path / "old.py")).policy
    assert (policy.discount_factor, policy.collect.gae_lambda, policy.collect.n_sample) == (0.98, 0.9, 320)
    learn = policy.learn
    assert (learn.grad_clip_norm, learn.epoch_per_collect, learn.value_norm, learn.clip_ratio) == (10, 4, True, 0.2)
    assert policy.model.encoder_hidden_size_list == [64, 64, 128]
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert sorted(said) == [
        "policy.collect.unroll_len",
        "policy.learn.grad_clip_type",
        "policy.learn.grad_clip_value",
        "policy.learn.ignore_done",
        "policy.learn.ppo_param_init",
        "policy.on_policy",
        "policy.other.replay_buffer.replay_buffer_size",
        "policy.recompute_adv",
    ]


def test_messages_of_the_config_guide_are_those_given(tmp_path, monkeypatch):
    """The table `mistake | answer` of docs/configs.md, row by row."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "configs.md"
    (tmp_path / "pair_config.py").write_text(files_of(page)["pair_config.py"])
    rows = re.findall(r"^\| `([\w.]+=[^`]*)` \| `(.*)` \|$", text_of(page), re.MULTILINE)
    assert len(rows) >= 5
    for override, answer in rows:
        with pytest.raises((ValueError, KeyError)) as caught:
            full_config("pair_config.py", sets=[override])
        assert str(caught.value).startswith(answer)


def test_the_readme_names_files_that_exist_and_the_command_that_ci_runs():
    text = text_of(ROOT / "README.md")
    named = re.findall(r"(?<=[ (])[\w/.]+\.(?:py|txt|md|png)\b", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
    (command,) = re.findall(r"<!-- test command -->\n```bash\n(.*?)\n```\n", text, re.DOTALL)
    assert "pytest" in command
    assert "<!-- test command -->" in text_of(ROOT / ".ci" / "run")
