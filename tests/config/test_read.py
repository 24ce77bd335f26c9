import copy
import sys
from textwrap import dedent

import pytest
from easydict import EasyDict

from ding_like.config import ConfigError, join_config, read_config, split_config

MAIN = {"exp_name": "run", "env": {"collector_env_num": 8}, "policy": {"learn": {"batch_size": 64}}}
CREATE = {"env": {"type": "CartPole-v1"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}
SINGLE = {
    "exp_name": "run",
    "env": {"collector_env_num": 8, "type": "CartPole-v1"},
    "policy": {"learn": {"batch_size": 64}, "type": "dqn"},
    "env_manager": {"type": "base"},
}
YAML = """
exp_name: run
env: {collector_env_num: 8, type: CartPole-v1}
env_manager: {type: base}
policy:
  type: dqn
  learn: {batch_size: 64}
"""


@pytest.fixture(autouse=True)
def _clean_import_state(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def _write(path, text):
    path.write_text(dedent(text))
    return path


def test_every_form_gives_the_same_two_dicts(tmp_path):
    py = _write(tmp_path / "my_config.py", f"main_config = {MAIN!r}\ncreate_config = {CREATE!r}\n")
    pair_yaml = _write(tmp_path / "pair.yaml", f"main_config: {MAIN!r}\ncreate_config: {CREATE!r}\n")
    forms = [
        (MAIN, CREATE),
        (EasyDict(MAIN), EasyDict(CREATE)),
        [MAIN, CREATE],
        SINGLE,
        {"main_config": MAIN, "create_config": CREATE},
        py,
        str(py),
        _write(tmp_path / "c.yaml", YAML),
        _write(tmp_path / "c.yml", YAML),
        pair_yaml,
    ]
    for form in forms:
        assert read_config(form) == (MAIN, CREATE)


def test_inputs_are_never_changed_and_nothing_is_shared(tmp_path):
    main, create = copy.deepcopy(MAIN), copy.deepcopy(CREATE)
    got_main, _ = read_config((main, create))
    got_main.policy.learn.batch_size = 1
    assert (main, create) == (MAIN, CREATE)
    py = _write(tmp_path / "twice.py", f"main_config = {MAIN!r}\ncreate_config = {CREATE!r}\n")
    read_config(py)[0].policy.learn.batch_size = 1
    assert read_config(py) == (MAIN, CREATE)


def test_split_is_the_inverse_of_join():
    assert join_config(MAIN, CREATE) == SINGLE
    assert split_config(SINGLE) == (MAIN, CREATE)


def test_a_path_with_different_values_in_main_and_create_raises():
    with pytest.raises(ConfigError, match=r"policy.type: main_config says 'sac', create_config 'dqn'; keep one"):
        read_config(({"policy": {"type": "sac"}}, CREATE))
    assert read_config(({"policy": {"type": "dqn"}}, CREATE))[1].policy.type == "dqn"


def test_a_python_config_runs_in_its_own_place(tmp_path):
    """DI-engine copies the file away first, so `__file__`, relative data and neighbours break."""
    (tmp_path / "size.txt").write_text("17")
    _write(tmp_path / "neighbour_of_config.py", "BATCH = 5\n")
    py = _write(
        tmp_path / "placed_config.py",
        """
        import pathlib
        from neighbour_of_config import BATCH
        size = int(pathlib.Path(__file__).with_name('size.txt').read_text())
        main_config = dict(env=dict(size=size), policy=dict(learn=dict(batch_size=BATCH)))
        create_config = dict(env=dict(type='x'), policy=dict(type='dqn'))
        if __name__ == '__main__':
            raise RuntimeError('run as a program')
        """,
    )
    main, _ = read_config(py)
    assert (main.env.size, main.policy.learn.batch_size) == (17, 5)


def test_an_unchanged_file_runs_once_and_an_edited_one_again(tmp_path):
    py = _write(
        tmp_path / "counted_config.py",
        """
        import pathlib
        log = pathlib.Path(__file__).with_name('runs')
        log.write_text((log.read_text() if log.exists() else '') + 'x')
        main_config, create_config = dict(), dict(policy=dict(type='dqn'))
        """,
    )
    read_config(py)
    read_config(py)
    assert (tmp_path / "runs").read_text() == "x"
    py.write_text(py.read_text().replace("dqn", "my_dqn"))
    assert read_config(py)[1].policy.type == "my_dqn"


def test_a_file_named_like_a_loaded_module_does_not_replace_it(tmp_path):
    py = _write(tmp_path / "json.py", f"main_config = {MAIN!r}\ncreate_config = {CREATE!r}\n")
    loaded = sys.modules["json"]
    assert read_config(py)[0] == MAIN
    assert sys.modules["json"] is loaded


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.py",
            "main_config = {}\ncreat_config = {}",
            "no create_config.*it has creat_config, was that meant",
        ),
        ("b.py", "x = 1", "no main_config and no create_config; a Python config defines both dicts"),
        (
            "c.py",
            "main_config = [1]\ncreate_config = {}",
            r"c.py: main_config is a list \(\[1\]\), wanted a dict",
        ),
        ("d.py", "main_config = {", "d.py, line 1: '{' was never closed"),
        ("e.yaml", "main_config: {}", "e.yaml: has main_config but no create_config"),
        ("f.yaml", "[1, 2]", r"f.yaml: holds a list \(\[1, 2\]\), wanted sections"),
        (
            "g.yaml",
            "policy: {learn: {}}",
            "g.yaml: policy.type is missing; name a policy there, such as 'dqn'",
        ),
        ("h.yaml", "policy: {type: 3}", r"policy.type is missing \(got 3\)"),
        ("i.yaml", "a: [1", "i.yaml, line 1: not valid YAML: expected ',' or ']'"),
        ("j.toml", "", "unknown kind '.toml', wanted .py, .yaml or .yml"),
        ("k.yaml", "", "k.yaml: holds nothing, wanted sections"),
    ],
)
def test_a_bad_file_raises_naming_file_and_what_was_wanted(tmp_path, name, text, message):
    with pytest.raises(ConfigError, match=message):
        read_config(_write(tmp_path / name, text))


def test_a_missing_file_names_the_one_that_was_meant(tmp_path):
    _write(tmp_path / "cartpole_dqn_config.py", "")
    with pytest.raises(ConfigError, match=r"does not exist, did you mean .*cartpole_dqn_config.py?"):
        read_config(tmp_path / "cartpole_dqn_confg.py")
    with pytest.raises(ConfigError, match=r"is a folder"):
        read_config(tmp_path)


@pytest.mark.parametrize("source", [None, 3, (MAIN,), (MAIN, CREATE, {})])
def test_another_kind_of_object_raises_naming_the_forms(source):
    with pytest.raises(ConfigError, match=r"wanted a .py or .yaml file, a .main_config, create_config. pair"):
        read_config(source)
    with pytest.raises(ConfigError, match=r"create_config is nothing, wanted a dict"):
        read_config((MAIN, None))


def test_an_error_inside_a_config_file_comes_out_as_it_is(tmp_path):
    py = _write(tmp_path / "raising_config.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        read_config(py)
    assert "raising_config" not in sys.modules


def test_sys_exit_in_a_config_is_an_error_of_that_file(tmp_path):
    py = _write(tmp_path / "exits.py", "import sys\nsys.exit(0)\n")
    with pytest.raises(ConfigError, match=r"exits\.py called sys\.exit\(0\); a config is imported"):
        read_config(py)


@pytest.mark.parametrize("value", [3, ["dqn"], "dqn"])
def test_a_policy_that_is_no_section_is_named(value):
    with pytest.raises(ConfigError, match=r"config: policy is a \w+ \(.*\), wanted a section such as dict"):
        read_config({"policy": value})
