"""Evaluation from outside: a run's checkpoints, each once, as they appear."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from ding_like.config import ConfigError
from ding_like.entry import cli, serial_pipeline
from ding_like.entry import follow as module
from ding_like.entry.follow import OFFLINE_FILE, follow
from ding_like.torch_utils.checkpoint import CheckpointError
from ding_like.utils.log import RunFolderError
from tests.helpers import metrics, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")
RUN, KEPT = Path("run"), Path("kept")


@pytest.fixture
def trained(in_tmp):
    """A run that is over, with checkpoints every 20 gradient steps."""
    often = dict(hook=dict(save_ckpt_after_iter=20))
    serial_pipeline(tiny_config(learn=dict(learner=often, learning_rate=0.05)), seed=3, max_train_iter=80)
    return [line for line in metrics("run") if line["section"] == "eval"]


def lines():
    return [json.loads(line) for line in (RUN / OFFLINE_FILE).read_text().splitlines()]


def values(records):
    keys = ("train_iter", "envstep", "eval_value", "eval_value_raw", "eval_value_std", "eval_length", "n_episode")
    return sorted(tuple(record[key] for key in keys) for record in records)


def test_a_checkpoint_gives_what_the_run_itself_saw(trained):
    best = follow("run")
    saved = {20, 40, 60, 80, best["train_iter"]}
    assert {line["train_iter"] for line in lines()} == saved
    assert values(lines()) == values(line for line in trained if line["train_iter"] in saved)
    assert best["eval_value"] == max(line["eval_value"] for line in trained)
    assert best in lines()


def test_a_second_call_evaluates_nothing_again(trained):
    best, before = follow("run"), lines()
    assert follow("run") == best and lines() == before


def test_the_config_and_the_episodes_may_be_others(trained):
    assert follow("run", seed=9, sets=("policy.eval.evaluator.n_episode=5",))["n_episode"] == 5


def test_a_run_that_goes_on_is_followed_to_its_end(trained):
    """Files come one after the other, as a run writes them; the follower starts with the first."""
    files = sorted(Path("run/ckpt").glob("iteration_*"), key=os.path.getmtime)
    KEPT.mkdir()
    for path in [*files[1:], RUN / "result.json", RUN / "ckpt/ckpt_best.pth.tar"]:
        shutil.move(path, KEPT)
    shutil.rmtree("run/ckpt/resume")
    started = threading.Event()

    def train():
        started.wait()
        for path in files[1:]:
            os.replace(shutil.copy(KEPT / path.name, f"{path}.part"), path)
            time.sleep(0.05)
        shutil.copy(KEPT / "result.json", RUN)

    other = threading.Thread(target=train)
    other.start()
    threading.Timer(0.3, started.set).start()
    follow("run", poll=0.01)
    other.join()
    assert [line["checkpoint"] for line in lines()] == [path.name for path in files]


def test_a_result_of_before_a_resume_ends_nothing(trained):
    """While a finished run goes on to a larger limit, its former result is older than its resume point."""
    assert module._is_over(RUN)
    stamp = (RUN / "result.json").stat().st_mtime_ns
    os.utime(RUN / module.POINT, ns=(stamp, stamp + 1))
    assert not module._is_over(RUN)
    os.utime(RUN / "result.json", ns=(stamp, stamp + 2))
    assert module._is_over(RUN)


def test_a_checkpoint_that_the_run_deletes_meanwhile_is_left_out(trained, monkeypatch):
    load = module.load_checkpoint

    def gone(path, policy_type):
        if path.name == "iteration_40.pth.tar":
            path.unlink()
        return load(path, policy_type)

    monkeypatch.setattr(module, "load_checkpoint", gone)
    follow("run")
    assert {20, 60, 80} <= {line["train_iter"] for line in lines()}


def test_ctrl_c_ends_it_with_the_best_so_far(trained, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", interrupt)
    (RUN / "result.json").unlink()
    best = follow("run")
    assert best["eval_value"] == max(line["eval_value"] for line in lines()) and len(lines()) >= 4
    (RUN / OFFLINE_FILE).unlink()
    shutil.rmtree("run/ckpt")
    with pytest.raises(KeyboardInterrupt):
        follow("run")


def test_what_is_no_run_or_has_no_checkpoint_is_named(trained):
    with pytest.raises(
        ConfigError, match=r"follow: got 'nowhere', wanted the folder of a run, where total_config.yaml"
    ):
        follow("nowhere")
    for path in Path("run/ckpt").glob("*.tar"):
        path.unlink()
    with pytest.raises(CheckpointError, match="the run in run is over and left no checkpoint in run/ckpt"):
        follow("run")
    Path("run/ckpt/iteration_5.pth.tar").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="iteration_5"):
        follow("run")
    (RUN / OFFLINE_FILE).write_text('{"train_iter": 1, "eval_value": 2.0}\n{"train')
    with pytest.raises(RunFolderError, match=r"eval_offline.jsonl, line 2 is no record of an evaluation"):
        follow("run")


def test_the_command_ends_with_the_line_of_the_best(trained, capsys):
    assert cli.main(["-m", "eval", "--follow", "run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 1 and json.loads(out[0]) in lines()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-m serial -c run/total_config.yaml --follow run", "--follow: no meaning with -m serial"),
        ("-m eval --follow run --load-path x", "--load-path: no meaning with -m eval --follow"),
        ("-m eval --follow run -s 1 -s 2", "more than one seed: no meaning with -m eval --follow"),
    ],
)
def test_options_that_do_not_go_with_it_are_named(line, told, capsys):
    assert cli.main(line.split()) == 2
    assert told in capsys.readouterr().err
