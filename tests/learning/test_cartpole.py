"""It learns: DQN on CartPole-v1 passes a mean return of 150 within a budget that chance does not reach."""

import pytest

from ding_like.entry import serial_pipeline
from dizoo_configs.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config
from tests.helpers import result

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("in_tmp")]

SETS = ("env.stop_value=150", "env.n_evaluator_episode=10", "policy.eval.evaluator.eval_freq=100")


@pytest.mark.parametrize("seed", [0, 1])
def test_cartpole_dqn_passes_150(seed):
    """A random policy reaches about 22, an untrained network about 9."""
    serial_pipeline((main_config, create_config), seed=seed, max_env_step=8000, sets=SETS, exp_name="run")
    assert result("run")["stop"] is True and result("run")["eval_value"] >= 150


def test_truncation_is_not_learned_as_a_death():
    """Reward 1 a step, cut off at step 10 with nothing in the obs that tells time: V is 1 / (1 - gamma)."""
    import gymnasium
    import numpy as np
    import torch

    class Forever(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.ones(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.ones(1, np.float32), 1.0, False, self.t == 10, {}

    sets = (
        "policy.discount_factor=0.9",
        "policy.eval.evaluator.eval_freq=100000",
        "policy.learn.target_update_freq=20",
        "policy.model.encoder_hidden_size_list=[16]",
    )
    policy = serial_pipeline(
        (main_config, create_config), env_setting=Forever, max_train_iter=1500, sets=sets, exp_name="run"
    )
    with torch.no_grad():
        q = policy.get_model()(torch.ones(1, 1))["logit"]
    assert q.max().item() == pytest.approx(10.0, rel=0.05)
