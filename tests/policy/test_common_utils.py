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


def test_a_collated_tree_keeps_its_arrays_and_gets_a_weight_and_a_float_done():
    tree = ArrayDict(obs=torch.zeros(2, 3), reward=torch.ones(2, 1), done=torch.tensor([True, False]))
    out = default_preprocess_learn(tree, use_nstep=True)
    assert out["obs"] is tree["obs"] and out["reward"] is tree["reward"]
    assert out["weight"] is None and (1 - out["done"]).tolist() == [0, 1]
    assert tree["done"].dtype == torch.bool and "weight" not in tree
    assert default_preprocess_learn(tree, ignore_done=True)["done"].tolist() == [0, 0]


def test_a_collated_tree_keeps_its_weight_and_needs_no_done():
    weight = torch.tensor([0.5, 1.0])
    out = default_preprocess_learn({"obs": torch.zeros(2, 3), "weight": weight})
    assert out["weight"] is weight and "done" not in out


def test_what_is_neither_a_list_nor_a_dictionary_passes_unchanged():
    data = (torch.zeros(2), torch.ones(2))
    assert default_preprocess_learn(data) is data


def test_read_only_rows_of_a_collector_are_collated_without_a_warning(recwarn):
    row = np.arange(3, dtype=np.float32)
    row.flags.writeable = False
    assert default_preprocess_learn([{"obs": row}])["obs"].tolist() == [[0, 1, 2]]
    assert not recwarn.list


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
