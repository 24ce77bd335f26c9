"""It learns with a memory: R2D2 and PPO within budgets that no policy without one, and no chance, reaches."""

import importlib

import pytest

from ding_like.entry import serial_pipeline
from tests.helpers import result

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("in_tmp")]


def recipe(name):
    module = importlib.import_module(f"dizoo_configs.{name}_config")
    return module.main_config, module.create_config


@pytest.mark.parametrize("seed", [0, 1])
def test_r2d2_recalls_a_cue(seed):
    """Lead-in up to twice the window; one who forgets the cue names half of them right."""
    serial_pipeline(recipe("memory.corridor.config.corridor_r2d2"), seed=seed, max_env_step=40_000, exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= 0.95


def test_r2d2_balances_a_pole():
    """A random policy reaches about 22."""
    sets = ("env.stop_value=200", "policy.eval.evaluator.eval_freq=100")
    cartpole = recipe("classic_control.cartpole.config.cartpole_r2d2")
    serial_pipeline(cartpole, max_env_step=15_000, sets=sets, exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= 200


def test_ppo_balances_a_pole_whose_velocities_are_hidden():
    """Without a memory it stays below 50."""
    hidden = recipe("classic_control.cartpole.config.cartpole_hidden_ppo")
    serial_pipeline(hidden, max_env_step=40_000, sets=("env.stop_value=200",), exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= 200
