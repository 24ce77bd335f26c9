"""Every recipe of `dizoo_configs`, run twice with one seed, gives the same numbers and the same weights."""

import numpy as np
import pytest
import torch

from tests.helpers import fingerprint, metrics, result
from tests.test_configs import CONFIGS, entry_of, name_of, small_sets

ITERS = 24  # several collects of every recipe
PACKAGES = {"atari": "ale_py", "box2d": "Box2D", "minatar": "minatar"}  # that a family of recipes needs
SLOW = {"atari", "box2d", "minatar", "multitask", "babyai", "mujoco"}  # above a second for two runs
SHORTER = {
    "pong_dqn": ["env.max_episode_steps=30", "policy.random_collect_size=200"],
    "pong_impala": ["policy.learn_unroll_len=4"],
    "atari57_impala": [
        "policy.learn_unroll_len=2",
        "policy.eval.evaluator.where=here",
    ],  # another process logs when it is done
}


def recipe(path):
    marks = [pytest.mark.system] if path.parts[-4] in SLOW else []
    return pytest.param(path, id=name_of(path), marks=marks)


def run(path, folder, seed=0):
    """The numbers of one short run: its metrics, its result, and the state of policy and optimiser byte for byte."""
    sets = [*small_sets(path, folder.with_suffix(".npz")), *SHORTER.get(name_of(path), [])]
    policy = entry_of(path)(str(path), seed=seed, max_train_iter=ITERS, exp_name=str(folder), sets=sets)
    ended = {key: value for key, value in result(folder).items() if key != "wall_time_s"}
    return metrics(folder), ended, fingerprint(policy.learn_mode.state_dict())


@pytest.mark.parametrize("path", [recipe(path) for path in CONFIGS])
def test_a_recipe_with_the_same_seed_gives_the_same_numbers(path, tmp_path):
    if (family := path.parts[-4]) in PACKAGES:
        pytest.importorskip(PACKAGES[family], reason=f"recipes of {family} need {PACKAGES[family]}")
    first_metrics, first_result, first_state = run(path, tmp_path / "first")
    np.random.random(7), torch.rand(7)  # what happened in the process before must not matter
    second_metrics, second_result, second_state = run(path, tmp_path / "second")
    assert first_result["train_iter"] == ITERS
    assert second_metrics == first_metrics
    assert second_result == first_result
    assert second_state == first_state


def test_another_seed_gives_other_weights(tmp_path):
    path = next(path for path in CONFIGS if name_of(path) == "cartpole_dqn")
    assert run(path, tmp_path / "zero")[2] != run(path, tmp_path / "one", seed=1)[2]
