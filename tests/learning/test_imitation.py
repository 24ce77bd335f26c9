"""It learns from a dataset: behavioural cloning of a teacher who balances a pole, seeing velocities or remembering."""

import importlib

import pytest
import torch
from torch import nn

from ding_like.entry import collect_dataset, serial_pipeline
from tests.helpers import result

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("in_tmp")]
CARTPOLE = "dizoo_configs.classic_control.cartpole.config.cartpole"


class Teacher(nn.Module):
    """Pushes towards where the pole falls; without velocities it takes the difference of two angles."""

    def __init__(self, hidden):
        super().__init__()
        self.w, self.hidden = nn.Parameter(torch.zeros(1)), hidden
        self.last = None  # position and angle of the step before, by column

    def forward(self, x):
        if self.hidden:
            last = self.last if self.last is not None and len(self.last) == len(x) else x
            same = (x - last).abs().max(-1, keepdim=True).values < 0.06  # else an episode began
            v = torch.where(same, (x - last) / 0.02, 0.0)
            self.last = x.clone()
            x = torch.stack([x[:, 0], v[:, 0], x[:, 1], v[:, 1]], -1)
        push = x[:, 2] + 0.3 * x[:, 3] + 0.05 * x[:, 0] + 0.1 * x[:, 1] + 0 * self.w
        return {"logit": torch.stack([-push, push], -1)}


@pytest.mark.parametrize("name", ["bc", "hidden_bc"])
def test_the_recipe_balances_the_pole_as_its_teacher_does(name):
    module = importlib.import_module(f"{CARTPOLE}_{name}_config")
    recipe, hidden = (module.main_config, module.create_config), name != "bc"
    told = collect_dataset(recipe, model=Teacher(hidden), episodes=10, out="d.npz")
    assert told["mean_return"] >= 475
    sets = ("policy.other.replay_buffer.path=d.npz",)
    serial_pipeline(recipe, max_train_iter=3000, exp_name="run", sets=sets)
    assert result("run")["stop"] is True
