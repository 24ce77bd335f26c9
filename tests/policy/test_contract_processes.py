"""Every policy of the contract list collects in worker processes: `parallel`, and `async` where lag does no harm."""

from functools import partial

import pytest
import torch

from ding_like.entry import serial_pipeline
from tests.helpers import result
from tests.policy.contract import CONTRACT, Toy, action_of, config_of

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("in_tmp")]


def weights(name, net, mode):
    """Of a short run whose two env columns are in a worker each; none under serial."""
    config = config_of(name, net, collect=dict(collector=dict(sampler="local", num_workers=2)))
    config["env"]["n_evaluator_episode"] = config["env"]["evaluator_env_num"] = 1
    env = partial(Toy, "vector", action_of(name, net))
    policy = serial_pipeline(config, env_setting=env, max_train_iter=6, mode=mode, exp_name=mode)
    assert result(mode)["train_iter"] == 6
    return dict(policy.get_model().named_parameters())


@pytest.mark.parametrize("name", [name for name, entry in CONTRACT.items() if "parallel" in entry.modes])
def test_a_run_in_two_workers_is_the_one_in_this_process(name):
    """But for the last bits."""
    net = CONTRACT[name].nets[-1]
    torch.testing.assert_close(weights(name, net, "parallel"), weights(name, net, "serial"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name, entry in CONTRACT.items() if "async" in entry.modes])
def test_a_run_whose_workers_collect_while_it_learns_trains(name):
    net = CONTRACT[name].nets[0]
    assert all(torch.isfinite(p).all() for p in weights(name, net, "async").values())
    assert result("async")["env_step"] >= 12
