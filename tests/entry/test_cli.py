import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ding_like
from ding_like.config import ConfigError
from ding_like.entry import build, cli, eval_entry, serial_entry
from ding_like.entry.run_folder import RunFolderError
from ding_like.entry.stop import Terminated


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("DING_DEBUG", raising=False)


@pytest.fixture
def runs(monkeypatch):
    """What the command line asked the serial pipeline for; nothing is trained."""
    calls = []
    monkeypatch.setattr(serial_entry, "serial_pipeline", lambda config, **options: calls.append((config, options)))
    return calls


def _main(line):
    return cli.main(line.split())


def _fails_with(monkeypatch, error):
    def fail(config, **_):
        raise error

    monkeypatch.setattr(serial_entry, "serial_pipeline", fail)


def test_a_run_gets_the_options_that_were_given_and_no_others(runs):
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 0
    assert runs == [("x.py", {"seed": None, "sets": (), "exp_name": None})]


def test_every_option_reaches_the_pipeline(runs):
    argv = "-m serial -c x.py -s 3 --env-step 1e5 --train-iter 200 --exp-name e --load-path c.tar"
    assert cli.main([*argv.split(), "--on-exists", "error", "--set", "a.b=1", "--set", "c=[1, 2]"]) == 0
    options = dict(seed=3, sets=("a.b=1", "c=[1, 2]"), exp_name="e", max_env_step=100000, max_train_iter=200)
    assert runs == [("x.py", {**options, "load_path": "c.tar", "on_exists": "error"})]


@pytest.mark.parametrize("mode", ["parallel", "async"])
def test_a_mode_with_workers_reaches_the_pipeline(runs, mode):
    assert _main(f"-m {mode} -c x.py -s 0 -s 1 --exp-name e") == 0
    assert [options["mode"] for _, options in runs] == [mode, mode]


def test_each_of_several_seeds_gets_a_folder_below_the_runs_own(runs, monkeypatch):
    assert _main("-m serial -c x.py -s 3 -s 5 --exp-name e") == 0
    assert [(o["seed"], o["exp_name"]) for _, o in runs] == [(3, "e/seed_3"), (5, "e/seed_5")]
    monkeypatch.setattr(build, "full_config", lambda config, sets: ding_like.config.CfgDict(exp_name="from_file"))
    assert _main("-m serial -c x.py -s 0 -s 1") == 0
    assert [o["exp_name"] for _, o in runs[2:]] == ["from_file/seed_0", "from_file/seed_1"]


def test_an_evaluation_ends_with_one_json_line(monkeypatch, capsys):
    def fake(config, **options):
        print("a line of the env's own")
        assert (config, options) == ("x.py", {"seed": 4, "load_path": "c.tar", "sets": ("a=1",)})
        return {"eval_value": 1.5, "eval_value_raw": 2.0, "n_episode": 8, "returns": [1.5]}

    monkeypatch.setattr(eval_entry, "eval", fake)
    assert _main("-m eval -c x.py -s 4 --load-path c.tar --set a=1") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == {"eval_value": 1.5, "eval_value_raw": 2.0, "n_episode": 8}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("-m serial", "-c FILE is missing; a run needs both, as in: ding -m serial -c FILE -s 0"),
        ("-c x.py", "-m MODE is missing"),
        ("-m dist -c x.py", "'dist' is not one of 'serial', 'serial_onpolicy', 'parallel', 'async', 'eval'"),
        ("-m serial -c x.py --env-step 1.5", "'1.5' is not a whole number such as 100000 or 1e5"),
        ("-m serial -c x.py --env-step -3", "'-3' is not a whole number"),
        ("-m serial -c x.py --train-iter inf", "'inf' is not a whole number"),
        ("-m serial -c x.py --trainiter 3", "No such option '--trainiter'"),
        ("-m eval -c x.py --env-step 3", "--env-step: no meaning with -m eval"),
        ("-m eval -c x.py -s 1 -s 2", "more than one seed: no meaning with -m eval"),
        ("-m serial config check x.py", "-m and -c do not go with the command 'config'"),
        ("config check", "Missing argument 'FILE'"),
        ("train", "No such command 'train'"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_exits_with_2(runs, capsys, argv, message):
    assert _main(argv) == 2
    assert message in capsys.readouterr().err
    assert runs == []


@pytest.mark.parametrize("error", [ConfigError("policy.x: unknown key"), RunFolderError("run folder e exists")])
def test_a_users_mistake_is_one_line_and_exit_1(monkeypatch, capsys, error):
    _fails_with(monkeypatch, error)
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == f"Error: {error}"


def test_debug_shows_the_traceback_of_a_mistake_too(monkeypatch, capsys):
    _fails_with(monkeypatch, ConfigError("policy.x: unknown key"))
    assert cli.main(["-m", "serial", "-c", "x.py", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("DING_DEBUG", "1")
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_shows_its_traceback(monkeypatch, capsys):
    _fails_with(monkeypatch, ZeroDivisionError("division by zero"))
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: division by zero" in err


def test_a_plain_error_is_a_message_only_if_our_code_raised_it_on_purpose(tmp_path, monkeypatch, capsys):
    """A ValueError of ours is a message; one of the user's own files, or of a line that failed, is a bug."""
    purpose = tmp_path / "purpose.py"
    purpose.write_text(
        "def purpose():\n    raise ValueError('n is 0; wanted at least 1')\n\ndef slip():\n    int('x')\n"
    )
    namespace = {}
    exec(compile(purpose.read_text(), str(purpose), "exec"), namespace)
    for package, function, shown in [
        (str(tmp_path), "purpose", "Error: n is 0; wanted at least 1\n"),
        (str(tmp_path), "slip", None),
        ("/elsewhere", "purpose", None),
    ]:
        monkeypatch.setattr(cli, "_PACKAGE", package)
        monkeypatch.setattr(serial_entry, "serial_pipeline", lambda _, f=function, **__: namespace[f]())
        assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
        err = capsys.readouterr().err
        assert err.startswith(shown) if shown else "Traceback" in err


def test_ctrl_c_exits_with_130(monkeypatch, capsys):
    _fails_with(monkeypatch, KeyboardInterrupt())
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 130
    assert "Interrupted." in capsys.readouterr().err


def test_version_help_and_names(capsys):
    assert cli.main(["-v"]) == 0
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ding_like {ding_like.__version__}\n" * 2
    assert cli.main([]) == 0
    without = capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert capsys.readouterr().out == without
    assert "[serial|serial_onpolicy|parallel|async|eval|collect]" in without
    assert cli.main(["-q", "policy"]) == 0
    assert "dqn" in capsys.readouterr().out.split()


def test_an_unknown_registry_names_the_nearest(capsys):
    assert cli.main(["-q", "polcy"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: no registry is called 'polcy'. Did you mean 'policy'? Registries: env, ")


def test_the_working_folder_is_importable_but_behind_everything(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 0
    assert sys.path[-1] == os.getcwd()


def test_the_command_line_starts_without_torch():
    code = "import sys, ding_like.entry.cli as c; c.main(['--help']); print('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(ding_like.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_place_in_a_users_own_file_is_told_also_where_it_is_the_cause(tmp_path, monkeypatch, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("def step():\n    raise ValueError('boom')\n")
    namespace = {}
    exec(compile(mine.read_text(), str(mine), "exec"), namespace)

    def pipeline(*_, **__):
        try:
            namespace["step"]()
        except ValueError as err:
            raise ConfigError("it raised boom") from err

    monkeypatch.setattr(serial_entry, "serial_pipeline", pipeline)
    monkeypatch.setattr(cli, "_PACKAGE", str(Path(__file__).parent))  # where `pipeline` lies
    real = Path(cli.__file__).parents[1]
    monkeypatch.setattr(cli.sysconfig, "get_path", lambda name, get=cli.sysconfig.get_path: str(real))
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
    err = capsys.readouterr().err
    assert err == f"Error: it raised boom\n  in {mine}, line 2, in step (--debug shows the traceback)\n"


def test_an_error_of_the_packages_own_names_no_file(tmp_path, capsys):
    assert cli.main(["-m", "serial", "-c", str(tmp_path / "no.yaml")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: config file") and len(err.splitlines()) == 1


@pytest.mark.parametrize("code", [0, None, 3])
def test_sys_exit_in_a_run_is_an_error(monkeypatch, capsys, code):
    _fails_with(monkeypatch, SystemExit(code))
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 1
    shown = "" if code is None else code
    assert f"Error: the run's own code called sys.exit({shown}), which ends nothing here" in capsys.readouterr().err


def test_sigterm_exits_with_143(monkeypatch, capsys):
    _fails_with(monkeypatch, Terminated("SIGTERM"))
    assert cli.main(["-m", "serial", "-c", "x.py"]) == 143
    assert "Terminated." in capsys.readouterr().err


def test_notes_of_an_error_are_shown_and_a_huge_one_is_cut(runs, monkeypatch, capsys):
    error = ValueError("x" * 5000)
    error.add_note("sampler worker 1 (env columns 4 to 7)")
    _fails_with(monkeypatch, error)
    assert _main("-m serial -c x.py --debug") == 1
    capsys.readouterr()
    monkeypatch.setattr(cli, "_is_deliberate", lambda error: True)
    assert _main("-m serial -c x.py") == 1
    shown = capsys.readouterr().err
    assert "xxx ... (5000 characters)" in shown and "  sampler worker 1 (env columns 4 to 7)" in shown
    assert len(shown) < 4400
