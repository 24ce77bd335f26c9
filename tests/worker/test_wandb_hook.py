"""The hook for Weights & Biases: with a stand-in for its package and, where that is installed, offline for real."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.utils.log import Logger
from ding_like.worker import Learner

CONFIG = {"exp_name": "x", "policy": {"type": "dqn"}}


class Service:
    """A stand-in for wandb: what it was given, and which of its calls fail."""

    def __init__(self, fails=()):
        self.fails, self.options, self.rows, self.finished, self.id = fails, None, [], 0, "abc123"

    def init(self, **options):
        self._fail("init")
        self.options = options
        return self

    def log(self, row, step):
        self._fail("log")
        self.rows.append((step, row))

    def finish(self):
        self._fail("finish")
        self.finished += 1

    def _fail(self, call):
        if call in self.fails:
            raise RuntimeError(f"no network for {call}")


@pytest.fixture
def service(monkeypatch):
    def install(**options):
        made = Service(**options)
        module = ModuleType("wandb")
        module.init = made.init
        monkeypatch.setitem(sys.modules, "wandb", module)
        return made

    return install


def learner(folder, **arguments):
    cfg = CfgDict(deep_merge_defaults(Learner.config, {"hooks": [dict(type="wandb", **arguments)]}))
    policy = SimpleNamespace(get_attribute={"device": torch.device("cpu"), "time_major": False}.__getitem__)
    made = Learner(cfg, policy)
    made.run = SimpleNamespace(folder=folder, cfg=CfgDict(CONFIG))
    return made


def run(made, folder):
    with Logger(folder, tensorboard=False, console=False) as logger:
        made.logger = logger
        made.call_hook("before_run")
        logger.log({"eval_value": 9.5}, 0, 0, "eval")
        logger.log({"total_loss": torch.tensor(0.5), "name": "a"}, 64, 10, "learner")


def test_config_and_all_that_is_logged_go_there_at_their_env_steps(service, tmp_path):
    wandb = service()
    run(learner(tmp_path, project="p", tags=["a", "b"], mode="offline", group="g"), tmp_path)
    assert wandb.options == dict(
        config=CONFIG, project="p", tags=["a", "b"], mode="offline", group="g", entity=None,
        name=tmp_path.name, dir=str(tmp_path),
    )  # fmt: skip
    assert type(wandb.options["config"]) is dict
    assert wandb.rows == [
        (0, {"eval/eval_value": 9.5, "envstep": 0, "train_iter": 0}),
        (64, {"learner/total_loss": 0.5, "learner/name": "a", "envstep": 64, "train_iter": 10}),
    ]
    assert wandb.finished == 1


def test_an_evaluation_that_comes_late_is_not_dropped_there(service, tmp_path):
    """W&B wants steps that do not fall."""
    wandb, made = service(), learner(tmp_path)
    with Logger(tmp_path, tensorboard=False, console=False) as made.logger:
        made.call_hook("before_run")
        made.logger.log({"total_loss": 0.5}, 64, 10, "learner")
        made.logger.log({"eval_value": 9.5}, 32, 5, "eval")
    assert wandb.rows[1] == (64, {"eval/eval_value": 9.5, "envstep": 32, "train_iter": 5})


def test_a_run_that_fails_is_finished_there_too(service, tmp_path):
    wandb, made = service(), learner(tmp_path)
    with pytest.raises(FloatingPointError), Logger(tmp_path, tensorboard=False) as made.logger:
        made.call_hook("before_run")
        raise FloatingPointError
    assert wandb.finished == 1


def test_a_resumed_run_goes_on_under_its_id(service, tmp_path):
    service()
    first = learner(tmp_path)
    run(first, tmp_path)
    wandb, again = service(), learner(tmp_path)
    again.load_state_dict(first.state_dict())
    run(again, tmp_path)
    assert (wandb.options["id"], wandb.options["resume"]) == ("abc123", "allow")


@pytest.mark.parametrize("fails", [("init",), ("log", "finish")])
def test_failures_of_the_service_are_said_once_and_end_nothing(service, tmp_path, caplog, fails):
    service(fails=fails)
    run(learner(tmp_path), tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"hook 'wandb': RuntimeError: no network for {fails[0]}; the run goes on without it"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"hook 'wandb' needs the package wandb: pip install 'ding_like\[wandb\]'"):
        learner(tmp_path)


@pytest.mark.system
def test_the_real_package_writes_an_offline_run_into_the_run_folder(tmp_path, caplog):
    wandb = pytest.importorskip("wandb")
    run(learner(tmp_path, mode="offline"), tmp_path)
    wandb.teardown()  # its own process writes the file
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    data = file.read_bytes()
    assert b"eval/eval_value" in data and b"learner/total_loss" in data
    assert "goes on without it" not in caplog.text
