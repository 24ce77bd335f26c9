"""Every recipe of `dizoo_configs` runs one training iteration with the entry it names."""

import ast
import json
import math
from pathlib import Path

import pytest

import ding_like.entry
from ding_like.config import read_config
from ding_like.entry import collect_dataset
from ding_like.entry.build import full_config
from tests.helpers import Constant

RECIPES = Path(__file__).parents[1] / "dizoo_configs"
CONFIGS = sorted(RECIPES.rglob("config/*_config.py"))
SMALL = (  # what makes one iteration quick; everything else stays as the recipe has it
    "env.collector_env_num=2",
    "env.evaluator_env_num=1",
    "env.n_evaluator_episode=1",
    "env.max_episode_steps=20",
    "policy.learn.batch_size=4",
    "policy.learn.learner.hook.log_show_after_iter=1",
    "policy.collect.n_sample=8",
    "policy.random_collect_size=0",
    "policy.other.replay_buffer.replay_buffer_size=200",
)


def name_of(path):
    return path.stem.removesuffix("_config")


def entry_of(path):
    """The entry that the recipe's `__main__` block calls."""
    block = ast.parse(path.read_text(encoding="utf-8")).body[-1]
    assert isinstance(block, ast.If), f"{path} has no __main__ block at its end"
    calls = [node.func.id for node in ast.walk(block) if isinstance(node, ast.Call)]
    assert len(calls) == 1, f"{path} calls {calls}; wanted one entry"
    return getattr(ding_like.entry, calls[0])


def test_there_are_recipes():
    assert "cartpole_dqn" in [name_of(path) for path in CONFIGS]


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_recipe_has_valid_keys_and_the_names_its_path_says(path):
    cfg = full_config(path)
    env, policy = name_of(path).rsplit("_", 1)
    assert path.parts[-3] in env
    assert cfg.policy.type == policy
    assert cfg.exp_name == f"{env}_{policy}_seed0"
    assert cfg.env.stop_value is not None
    main, create = read_config(path)
    assert set(main) >= {"exp_name", "env", "policy"}
    assert set(create) >= {"env", "env_manager", "policy"}


def small_sets(path, dataset):
    """`SMALL`; for a recipe that trains from a dataset one of its env, in the place of what is said of a replay; of a
    recipe of several tasks the first two.
    """
    cfg = full_config(path)
    if tasks := cfg.env.tasks[:2]:
        return (*SMALL, f"env.tasks={json.dumps(tasks)}", "env.evaluator_env_num=2")
    if cfg.replay_buffer.type != "dataset":
        return SMALL
    collect_dataset(str(path), model=Constant(0.0, 1.0), episodes=4, out=dataset)
    return (*(one for one in SMALL if "replay_buffer_size" not in one), f"policy.other.replay_buffer.path={dataset}")


@pytest.mark.system
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_recipe_trains(path, tmp_path):
    sets = small_sets(path, tmp_path / "d.npz")
    entry_of(path)(str(path), seed=0, max_train_iter=1, exp_name=str(tmp_path / "run"), sets=sets)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["train_iter"] == 1
    segments = 8 * full_config(path).policy.get("learn_unroll_len", 0)  # as many as `SMALL` has samples of a collect
    assert result["env_step"] <= max(400, segments)  # windows and segments want more steps than transitions
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["total_loss"] for line in lines if line["section"] == "learner"]
    assert len(losses) == 1
    assert math.isfinite(losses[0])
