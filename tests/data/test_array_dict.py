"""`ArrayDict`: string keys are fields, every other key indexes all leaves."""

import copy
import pickle

import numpy as np
import pytest
import torch

from ding_like.data import ArrayDict, tree_leaves


def data() -> ArrayDict:
    return ArrayDict(obs=ArrayDict(x=np.arange(10.0).reshape(5, 2)), reward=np.arange(5.0), note=None)


def test_membership_keys_items_and_iteration_go_over_fields():
    d = data()
    assert "reward" in d and "x" not in d and 0 not in d
    assert list(d) == list(d.keys()) == ["obs", "reward", "note"]
    assert dict(d.items())["reward"] is d["reward"]
    assert isinstance(d, dict) and {**d}.keys() == d.keys()


def test_length_is_the_leading_axis_and_truth_is_having_fields():
    assert len(data()) == 5 and len(data()[:2]) == 2
    assert not ArrayDict() and data()[:0]


def test_other_keys_index_every_leaf_and_keep_types():
    d = data()
    for key in (3, slice(1, -1), np.array([4, 0]), np.arange(5) > 2, [1, 1]):
        part = d[key]
        assert type(part) is type(part["obs"]) is ArrayDict and part["note"] is None
        np.testing.assert_array_equal(part["obs"]["x"], d["obs"]["x"][key])
        np.testing.assert_array_equal(part["reward"], d["reward"][key])


def test_a_slice_of_a_field_can_be_stored_as_a_new_field():
    """The statement of R2D2's window slicing, for array and dictionary observations alike."""
    d, burnin, n = data(), 1, 2
    d["main_obs"] = d["obs"][burnin:-n]
    d["action"] = d["reward"][burnin:-n]
    assert len(d["main_obs"]) == 2 and d["action"].tolist() == [1, 2]


def test_nested_plain_dictionaries_follow_the_same_rule():
    d = ArrayDict(obs={"x": {"y": np.arange(4)}})
    assert d["obs"][1:]["x"]["y"].tolist() == [1, 2, 3]
    assert d["obs"]["x"][0]["y"] == 0
    d["other"] = {"z": np.arange(4)}
    assert d["other"][-1]["z"] == 3


def test_assignment_writes_a_row_or_broadcasts_into_every_leaf():
    d = data()
    leaves = tree_leaves(d)
    d[1] = ArrayDict(obs={"x": np.array([7.0, 8.0])}, reward=9.0, note=None)
    d[3:] = 0
    assert all(a is b for a, b in zip(leaves, tree_leaves(d)))
    np.testing.assert_array_equal(d["obs"]["x"], [[0, 1], [7, 8], [4, 5], [0, 0], [0, 0]])
    np.testing.assert_array_equal(d["reward"], [0, 9, 2, 0, 0])
    with pytest.raises(KeyError, match="'reward' is missing"):
        d[1] = {"obs": {"x": 1.0}}


def test_fields_are_replaced_and_deleted_by_name():
    d = data()
    d["reward"] = np.ones(5)
    del d["note"]
    assert d.pop("reward").sum() == 5 and list(d) == ["obs"]
    with pytest.raises(KeyError, match=r"no field 'rewrd'.*\['obs'\]"):
        d["rewrd"]
    assert d.get("rewrd") is None


def test_torch_leaves_follow_the_same_rule():
    d = ArrayDict(x=torch.arange(4), y=torch.zeros(4, 2))
    d[1:3] = ArrayDict(x=torch.tensor([8, 9]), y=1.0)
    assert d[1]["x"] == 8 and d[np.array([0, 3])]["x"].tolist() == [0, 3] and d["y"].sum() == 4


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_pickle_and_deepcopy_give_the_same_fields_in_new_memory(clone):
    d = data()
    other = clone(d)
    assert type(other) is type(other["obs"]) is ArrayDict and list(other) == list(d)
    np.testing.assert_array_equal(other["obs"]["x"], d["obs"]["x"])
    assert not np.shares_memory(other["obs"]["x"], d["obs"]["x"])


def test_copy_shares_arrays_but_not_fields():
    d = data()
    other = d.copy()
    other["reward"] = None
    assert type(other) is ArrayDict and d["reward"] is not None and other["obs"]["x"] is d["obs"]["x"]


def test_map_reaches_nested_leaves_and_repr_shows_shapes():
    d = data().map(lambda a: a + 1)
    assert type(d) is ArrayDict and d["obs"]["x"][0, 0] == 1
    assert "reward=float64[5]" in repr(d) and repr(ArrayDict()) == "ArrayDict()"
