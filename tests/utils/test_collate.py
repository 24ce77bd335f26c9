"""Lists of samples become one tree of tensors."""

from collections import namedtuple

import numpy as np
import pytest
import torch

from ding_like.data import ArrayDict
from ding_like.utils.collate import default_collate

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
        assert default_collate(tree) is tree


def test_mistakes_are_named():
    with pytest.raises(KeyError, match=r"samples have different fields: \['a'\] and \['b'\]"):
        default_collate([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="empty list"):
        default_collate([])
    with pytest.raises(TypeError, match="cannot collate samples of type set"):
        default_collate([{"a": {1}}])
