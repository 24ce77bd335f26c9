"""It learns on policy: PPO and A2C within budgets that chance does not reach, over every kind of action."""

import importlib

import pytest

from ding_like.entry import serial_pipeline
from tests.helpers import result

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("in_tmp")]


def recipe(name):
    module = importlib.import_module(f"dizoo_configs.{name}_config")
    return module.main_config, module.create_config


@pytest.mark.parametrize(
    ("name", "budget", "value"),
    [
        ("classic_control.cartpole.config.cartpole_ppo", 12_000, 200),
        ("classic_control.cartpole.config.cartpole_a2c", 30_000, 150),
        ("classic_control.cartpole.config.cartpole_ppg", 20_000, 200),
        ("classic_control.cartpole.config.cartpole_vector_ppo", 200_000, 300),
        ("toy.dials.config.dials_ppo", 20_000, 18),  # a random policy reaches 5.2
        ("classic_control.pendulum.config.pendulum_ppo", 80_000, -500),  # about -1,200
    ],
)
def test_a_recipe_passes_what_chance_does_not_reach(name, budget, value):
    serial_pipeline(recipe(name), max_env_step=budget, sets=(f"env.stop_value={value}",), exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= value
