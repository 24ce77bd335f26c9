"""The list of 57 Atari games: every game is made and stepped, all with the same spaces."""

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnvManager, make_env_fns
from dizoo_configs.multitask.atari57.config.atari57_impala_config import main_config


@pytest.mark.system
def test_every_game_is_made_and_steps_with_all_18_actions():
    pytest.importorskip("ale_py")
    env = main_config["env"]
    manager = BaseEnvManager(make_env_fns(env, 57, "collect"))
    try:
        assert manager.action_space == spaces.Discrete(18)
        assert manager.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
        manager.launch(0)
        drawn = np.array([len(np.unique(one)) for one in manager.ready_obs])
        for action in (0, 1, 9, 17):
            step = manager.step(np.full(57, action))
            assert step.obs.shape == (57, 4, 84, 84) and np.isfinite(step.reward).all()
        assert (drawn > 1).sum() > 50, "the games show something"
    finally:
        manager.close()
