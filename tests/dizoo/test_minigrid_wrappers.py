"""MiniGrid's observation as one binary vector."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs.env_wrappers import WordNumbers
from dizoo_configs.memory.minigrid.envs.minigrid_wrappers import MiniGridOneHot
from tests.envs.toys import AnySpace, Count


def test_each_cell_becomes_the_one_hots_of_object_colour_and_state():
    high = np.broadcast_to(np.uint8([10, 5, 2]), (2, 3, 3))
    image = spaces.Box(np.zeros_like(high), high, dtype=np.uint8)
    env = MiniGridOneHot(AnySpace(spaces.Dict(image=image, direction=spaces.Discrete(4), mission=spaces.Text(5))))
    env.env.observation_space.seed(7)
    seen = env.env.observation_space.sample()
    wanted = []
    for cell in seen["image"].reshape(-1, 3):
        wanted += [int(cell[0] == i) for i in range(11)]
        wanted += [int(cell[1] == i) for i in range(6)] + [int(cell[2] == i) for i in range(3)]
    wanted += [int(seen["direction"] == i) for i in range(4)]
    obs = env.observation(seen)
    np.testing.assert_array_equal(obs, wanted)
    assert env.observation_space.contains(obs)


def test_the_mission_stays_where_it_was_read():
    pytest.importorskip("minigrid")
    plain = MiniGridOneHot(gymnasium.make("BabyAI-OpenDoorDebug-v0"))
    env = MiniGridOneHot(WordNumbers(gymnasium.make("BabyAI-OpenDoorDebug-v0")))
    obs = env.reset(seed=3)[0]
    assert env.observation_space.contains(obs) and (obs["mission"] > 0).sum() == len(env.unwrapped.mission.split())
    np.testing.assert_array_equal(obs["cells"], plain.reset(seed=3)[0])


def test_another_observation_is_refused_by_name():
    with pytest.raises(ValueError, match="minigrid_one_hot got the observation space Box"):
        MiniGridOneHot(Count())


def test_it_reads_a_real_one():
    pytest.importorskip("minigrid")
    env = MiniGridOneHot(gymnasium.make("MiniGrid-MemoryS7-v0"))
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs) and obs.sum() == 3 * 49 + 1
