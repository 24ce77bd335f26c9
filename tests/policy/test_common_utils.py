"""DI-engine's batch helper on lists of transition dictionaries."""

import numpy as np
import torch

from ding_like.data import ArrayDict
from ding_like.policy.common_utils import default_preprocess_learn


def rows(reward=None, **more):
    return [
        {
            "obs": np.float32([i, i]),
            "action": i,
            "reward": np.float32([i] if reward is None else reward),
            "done": i == 2,
            **more,
        }
        for i in range(3)
    ]


def test_a_collated_tree_passes_unchanged():
    tree = ArrayDict(obs=torch.zeros(2, 3))
    assert default_preprocess_learn(tree) is tree


def test_a_list_is_collated_with_float_flags_and_flat_rewards():
    out = default_preprocess_learn(rows())
    assert out["obs"].shape == (3, 2) and out["action"].tolist() == [0, 1, 2]
    assert out["reward"].tolist() == [0, 1, 2] and out["weight"] is None
    assert out["done"].dtype == torch.float32 and out["done"].tolist() == [0, 0, 1]
    assert default_preprocess_learn(rows(), ignore_done=True)["done"].tolist() == [0, 0, 0]


def test_nstep_rewards_become_time_major():
    out = default_preprocess_learn(rows([1, 2, 3, 4]), use_nstep=True)
    assert out["reward"].shape == (4, 3) and out["reward"][:, 0].tolist() == [1, 2, 3, 4]


def test_importance_weights_are_taken_where_asked_for():
    assert (
        default_preprocess_learn(rows(IS=0.5), use_priority=True, use_priority_IS_weight=True)["weight"].tolist()
        == [0.5] * 3
    )
    assert default_preprocess_learn(rows(IS=0.5))["weight"] is None
    assert default_preprocess_learn(rows(weight=2.0))["weight"].tolist() == [2.0] * 3
