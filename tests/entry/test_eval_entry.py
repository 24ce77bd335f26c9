"""Evaluating a checkpoint: the same numbers as at the end of training, and everything that does not fit."""

import json

import pytest
import torch

from ding_like.config import ConfigError
from ding_like.entry import eval as evaluate
from ding_like.entry import serial_pipeline
from ding_like.model import DQN
from ding_like.torch_utils.checkpoint import CheckpointError
from tests.envs.toys import Count
from tests.helpers import Constant, ding, metrics, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")

LAST = "run/ckpt/iteration_25.pth.tar"


@pytest.fixture
def trained(in_tmp):
    serial_pipeline(tiny_config(), seed=0, max_train_iter=25)
    return metrics("run")[-1]


def test_a_checkpoint_gives_the_value_of_the_last_evaluation_and_again(trained):
    first = evaluate(tiny_config(), seed=0, load_path=LAST)
    assert first["eval_value"] == trained["eval_value"] and first["n_episode"] == 3 == len(first["returns"])
    assert evaluate(tiny_config(), seed=0, load_path=LAST) == first
    assert evaluate("run/total_config.yaml", seed=0, load_path=LAST) == first


def test_another_seed_than_that_of_the_run_plays_other_episodes_and_needs_no_word(trained, caplog):
    caplog.set_level("INFO", "ding_like")
    caplog.clear()
    first, other, again = (evaluate("run/total_config.yaml", seed=seed, load_path=LAST) for seed in (0, 7, None))
    assert first == again and first["returns"] != other["returns"]
    assert [r.getMessage() for r in caplog.records if "seed" in r.getMessage()] == []


def test_the_best_checkpoint_gives_the_best_value(trained):
    best = max(line["eval_value"] for line in metrics("run") if line["section"] == "eval")
    assert evaluate(tiny_config(), load_path="run/ckpt/ckpt_best.pth.tar")["eval_value"] == best


def test_episodes_and_settings_may_be_given(trained):
    assert evaluate(tiny_config(), load_path=LAST, n_episode=5)["n_episode"] == 5
    assert evaluate(tiny_config(), load_path=LAST, sets=("env.n_evaluator_episode=1",))["n_episode"] == 1


def test_a_model_brings_its_own_weights():
    out = evaluate(tiny_config(), model=Constant(0.0, 1.0), env_setting=lambda: Count(6))
    assert (out["eval_value"], out["eval_value_raw"]) == (6.0, 6.0)


def test_evaluation_writes_nothing(trained, in_tmp):
    before = sorted(str(p) for p in in_tmp.rglob("*"))
    evaluate(tiny_config(), load_path=LAST)
    assert sorted(str(p) for p in in_tmp.rglob("*")) == before


def test_without_weights_it_says_where_they_are():
    with pytest.raises(ConfigError, match=r"eval needs a checkpoint: give --load-path run/ckpt/ckpt_best\.pth\.tar"):
        evaluate(tiny_config())


def test_a_checkpoint_of_another_network_is_named(trained):
    with pytest.raises(CheckpointError, match=r"is of another network: encoder.* has shape"):
        evaluate(tiny_config(model=dict(encoder_hidden_size_list=[32])), load_path=LAST)
    with pytest.raises(CheckpointError, match=r"is of another network: .*is missing"):
        evaluate(tiny_config(model=dict(dueling=False)), load_path=LAST)


def test_a_checkpoint_of_another_policy_is_named(trained):
    content = torch.load(LAST)
    content["policy"] = "c51"
    torch.save(content, "other.pth.tar")
    with pytest.raises(CheckpointError, match=r"is of policy 'c51', the config's policy.type is 'dqn'"):
        evaluate(tiny_config(), load_path="other.pth.tar")


def test_no_episodes_is_refused(trained):
    with pytest.raises(ValueError, match="n_evaluator_episode is 0"):
        evaluate(tiny_config(), load_path=LAST, n_episode=0)


@pytest.mark.system
def test_the_command_ends_with_one_json_line_in_a_new_process(trained, in_tmp):
    done = ding("-m", "eval", "-c", "run/total_config.yaml", "--load-path", LAST, cwd=in_tmp)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got == {"eval_value": trained["eval_value"], "eval_value_raw": trained["eval_value_raw"], "n_episode": 3}


def test_a_network_that_comes_as_an_object_is_not_checked_against_the_default_one():
    main, create = tiny_config(model=dict(mine=1))
    net = DQN(4, 2, [8])
    assert evaluate((main, create), model=net)["n_episode"] == 3
    with pytest.raises(ConfigError, match=r"policy.model.mine: model 'dqn' has no such argument"):
        evaluate((main, create), load_path=LAST)
