"""IMPALA learns within budgets that chance does not reach, without and with a memory."""

import pytest

from ding_like.entry import serial_pipeline
from tests.helpers import result
from tests.learning.test_on_policy import recipe

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("in_tmp")]


@pytest.mark.parametrize(
    ("name", "budget", "value"),
    [
        ("classic_control.cartpole.config.cartpole_impala", 40_000, 200),  # a random policy: about 22
        ("classic_control.cartpole.config.cartpole_hidden_impala", 60_000, 150),
    ],
)
def test_a_recipe_passes_what_chance_does_not_reach(name, budget, value):
    serial_pipeline(recipe(name), max_env_step=budget, sets=(f"env.stop_value={value}",), exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= value
