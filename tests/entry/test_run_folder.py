import json
import math
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import ding_like
from ding_like.config import load_config
from ding_like.entry.run_folder import RunFolder, RunFolderError

RESULT = dict(
    env_step=1000,
    train_iter=50,
    stop=True,
    eval_value=475.5,
    eval_value_raw=470.0,
    seed=3,
    wall_time_s=1.23456,
    reason="limit reached",
)


def test_a_run_gets_its_folder_with_parents_and_fixed_names(tmp_path):
    folder = RunFolder(tmp_path / "a" / "run")
    assert folder.path == tmp_path / "a" / "run"
    assert folder.ckpt_best == folder.path / "ckpt" / "ckpt_best.pth.tar"
    assert folder.ckpt_iteration(200) == folder.path / "ckpt" / "iteration_200.pth.tar"
    assert folder.ckpt_best.parent.is_dir()


def test_an_existing_folder_is_left_alone_and_the_next_number_is_said(tmp_path, caplog):
    caplog.set_level("INFO")
    paths = [RunFolder(tmp_path / "run").path.name for _ in range(3)]
    assert paths == ["run", "run_1", "run_2"]
    assert f"run folder {tmp_path / 'run'} exists; this run takes {tmp_path / 'run_2'}" in caplog.text
    (tmp_path / "file").write_text("x")
    assert RunFolder(tmp_path / "file").path.name == "file_1"


def test_on_exists_error_raises_and_touches_nothing(tmp_path):
    RunFolder(tmp_path / "run", on_exists="error")
    with pytest.raises(RunFolderError, match=r"run folder .*run exists; choose another exp_name"):
        RunFolder(tmp_path / "run", on_exists="error")
    assert os.listdir(tmp_path) == ["run"]


def test_runs_that_start_together_get_a_folder_each(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        paths = list(pool.map(lambda _: RunFolder(tmp_path / "run").path, range(32)))
    assert len(set(paths)) == 32
    assert all((path / "ckpt").is_dir() for path in paths)


def test_the_result_has_every_key_and_replaces_the_old_one_whole(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.save_result(**{**RESULT, "eval_value": None, "eval_value_raw": math.inf})
    path = folder.save_result(**RESULT)
    assert json.loads(path.read_text()) == {**RESULT, "wall_time_s": 1.235, "version": ding_like.__version__}
    assert sorted(os.listdir(folder.path)) == ["ckpt", "result.json"]


def test_a_result_without_an_evaluation_is_valid_json(tmp_path):
    path = RunFolder(tmp_path / "run").save_result(**{**RESULT, "eval_value": None, "eval_value_raw": math.nan})
    text = path.read_text()
    assert "NaN" not in text
    assert json.loads(text)["eval_value"] is None


def test_the_config_is_saved_and_loads_back(tmp_path):
    cfg = {"policy": {"learn": {"lr": 1e-05}}, "stop_value": math.inf}
    assert load_config(RunFolder(tmp_path / "run").save_config(cfg)) == cfg


@pytest.mark.parametrize("name", ["", "."])
def test_an_empty_name_raises(name):
    with pytest.raises(ValueError, match=r"exp_name: got '.?', wanted the path of a new folder"):
        RunFolder(name)


def test_an_unknown_on_exists_raises(tmp_path):
    with pytest.raises(ValueError, match=r"on_exists: got 'overwrite', wanted 'number' or 'error'"):
        RunFolder(tmp_path / "run", on_exists="overwrite")


def test_a_place_that_cannot_be_written_is_named_with_the_cause(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match=r"run folder .*run cannot be written: .*; give the run another exp_name"):
        RunFolder(tmp_path / "file" / "run")
    folder = RunFolder(tmp_path / "run")
    (folder.path / "result.json").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot be written: Is a directory"):
        folder.save_result(**RESULT)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder("~/x").path == tmp_path / "x"


def test_a_result_that_does_not_fit_the_disk_leaves_no_part(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")

    def full(path, *_, **__):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(RunFolderError, match=r"result .*result\.json cannot be written: No space.*; free some space"):
        folder.save_result(**RESULT)
    assert os.listdir(folder.path) == ["ckpt"]
