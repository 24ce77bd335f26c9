"""Lists of samples become one tree of tensors."""

from collections import namedtuple

import numpy as np
import pytest
import torch

from ding_like.data import ArrayDict
from ding_like.utils.collate import collate_items, default_collate
from ding_like.utils.data import timestep_collate

Point = namedtuple("Point", ["x", "y"])


@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ([1, 2], torch.tensor([1, 2])),
        ([np.int32(1), np.int32(2)], torch.tensor([1, 2])),
        ([0.5, 2.0], torch.tensor([0.5, 2.0])),
        ([np.float64(0.5)], torch.tensor([0.5])),
        ([True, False], torch.tensor([True, False])),
        ([torch.ones(1), torch.zeros(1)], torch.tensor([1.0, 0.0])),
        ([torch.ones(2), torch.zeros(2)], torch.tensor([[1.0, 1.0], [0.0, 0.0]])),
        ([torch.tensor(3), torch.tensor(4)], torch.tensor([3, 4])),
        ([np.ones(2, np.uint8), np.zeros(2, np.uint8)], torch.tensor([[1, 1], [0, 0]], dtype=torch.uint8)),
        ([np.ones(1, np.float32)], torch.tensor([1.0])),
    ],
    ids=str,
)
def test_leaves(samples, wanted):
    torch.testing.assert_close(default_collate(samples), wanted, rtol=0, atol=0)


def test_nested_samples():
    samples = [{"a": {"b": i}, "p": Point(float(i), (i, None)), "s": "x"} for i in range(3)]
    out = default_collate(samples)
    assert out["a"]["b"].tolist() == [0, 1, 2] and out["s"] == ["x"] * 3
    assert isinstance(out["p"], Point) and out["p"].x.tolist() == [0, 1, 2]
    assert out["p"].y[0].tolist() == [0, 1, 2] and out["p"].y[1] == [None] * 3


def test_a_collated_tree_passes_unchanged():
    for tree in (ArrayDict(a=np.zeros(2)), {"a": torch.zeros(2)}, torch.zeros(3), np.zeros(2)):
        assert default_collate(tree) is tree and timestep_collate(tree) is tree


def windows(lists=True):
    """Two windows of three steps: x = 10 n + u."""
    steps = [
        [
            dict(
                obs={"a": np.float32([x, -x])},
                action=torch.tensor([x]),
                reward=np.float32([x, 0.5]),
                done=u == 2,
                prev_state={"h": np.full((1, 2), x, np.float32)},
            )
            for u, x in enumerate([10 * n, 10 * n + 1, 10 * n + 2])
        ]
        for n in range(2)
    ]
    if not lists:
        return steps
    keys = ("action", "reward", "done", "prev_state")
    return [{"obs": {"a": [s["obs"]["a"] for s in w]}, **{k: [s[k] for s in w] for k in keys}, "n": 5} for w in steps]


def test_windows_become_time_major():
    """Dictionaries of lists: `[U, N, ...]`, of the state the first step alone."""
    for batch in (windows(), windows(lists=False)):
        out = timestep_collate(batch)
        assert out["action"].tolist() == [[0, 10], [1, 11], [2, 12]] and out["obs"]["a"].shape == (3, 2, 2)
        assert out["obs"]["a"][2].tolist() == [[2, -2], [12, -12]] and out["reward"].shape == (3, 2, 2)
        assert out["done"].tolist() == [[False] * 2, [False] * 2, [True] * 2]
        assert out["prev_state"]["h"].shape == (1, 2, 1, 2)
        assert out["prev_state"]["h"][0, :, 0, 0].tolist() == [0, 10]
    assert timestep_collate(windows())["n"].tolist() == [5, 5]


def test_a_store_keeps_windows_by_item():
    out, time_major = collate_items(windows()), timestep_collate(windows())
    assert out["prev_state"]["h"].shape == (2, 1, 1, 2) and out["n"].tolist() == [5, 5]
    for name in ("action", "reward", "done"):
        assert torch.equal(out[name], time_major[name].transpose(0, 1))
    assert torch.equal(out["obs"]["a"], time_major["obs"]["a"].transpose(0, 1))
    assert collate_items([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]


def test_lists_of_equal_length_are_transposed():
    out = default_collate([[1, (2.0, "x")], [3, (4.0, "y")]])
    assert out[0].tolist() == [1, 3] and out[1][0].tolist() == [2, 4] and out[1][1] == ["x", "y"]
    with pytest.raises(ValueError, match=r"lists of different lengths: \[1, 2\]"):
        default_collate([[1], [1, 2]])


def test_mistakes_are_named():
    with pytest.raises(KeyError, match=r"samples have different fields: \['a'\] and \['b'\]"):
        default_collate([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="empty list"):
        default_collate([])
    with pytest.raises(TypeError, match="cannot collate samples of type set"):
        default_collate([{"a": {1}}])
