"""`Block` and `RowLink`: next observations by reference equal those written out."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block, RowLink, torchify, tree_map


def block(ends: np.ndarray, starts: int | None = None) -> tuple[Block, np.ndarray]:
    """A block whose row t of column b shows 10 t + b, final observations < 0; and next obs written out."""
    ends = np.asarray(ends, bool)
    length, columns = ends.shape
    rows = {"x": (10 * np.arange(length + 1)[:, None] + np.arange(columns)).astype(np.float64)}
    final = -1.0 - np.arange(ends.size).reshape(ends.shape)
    at = np.flatnonzero(ends)
    link = RowLink(rows, at, {"x": final.reshape(-1)[at]}, columns)
    fields = dict(obs={"x": rows["x"][:-1]}, done=ends, reward=rows["x"][:-1] * 2)
    return Block(fields, length if starts is None else starts, link), np.where(ends, final, rows["x"][1:])


flags = st.tuples(st.integers(1, 6), st.integers(1, 3)).flatmap(
    lambda s: st.lists(st.booleans(), min_size=s[0] * s[1], max_size=s[0] * s[1]).map(lambda b: np.reshape(b, s))
)


@settings(max_examples=60, deadline=None)
@given(flags, st.data())
def test_next_obs_is_the_next_row_or_the_final_observation(ends, data):
    b, wanted = block(ends)
    np.testing.assert_array_equal(b["next_obs"]["x"], wanted)
    starts = data.draw(st.integers(1, len(ends)))
    hop = np.zeros((starts, ends.shape[1]), np.int64)
    for t, c in np.ndindex(hop.shape):  # any distance up to the next end is a legal one
        stop = next((s for s in range(t, len(ends)) if ends[s, c]), len(ends) - 1)
        hop[t, c] = data.draw(st.integers(1, stop - t + 1))
    seen = b.link.with_hop(hop).materialise(starts)["x"]
    for t, c in np.ndindex(hop.shape):
        assert seen[t, c] == wanted[t + hop[t, c] - 1, c]


def test_materialised_observations_are_their_own_memory():
    b, _ = block([[0], [1], [0]])
    assert not np.shares_memory(b["next_obs"]["x"], b.link.rows["x"])
    assert b["next_obs"] is b["next_obs"]


def test_next_obs_is_a_field_for_readers_without_being_stored():
    b, wanted = block([[0, 1], [0, 0]])
    assert "next_obs" in b and "next_obs" not in dict.keys(b)
    assert Block(dict.items(b), 2).link is None and "next_obs" not in Block(dict.items(b), 2)
    np.testing.assert_array_equal(b.get("next_obs")["x"], wanted)


@pytest.mark.parametrize("key", [1, slice(0, 1), np.array([1, 0]), (slice(None), 1)])
def test_indexing_gives_plain_rows_with_next_obs(key):
    b, wanted = block([[0, 1], [0, 0]])
    part = b[key]
    assert type(part) is ArrayDict
    np.testing.assert_array_equal(part["next_obs"]["x"], wanted[key])
    np.testing.assert_array_equal(part["reward"], b["reward"][key])


def test_an_assigned_next_obs_replaces_the_link():
    b, _ = block([[0], [0]])
    assert b.linked
    b["next_obs"] = {"x": np.full((2, 1), 5.0)}
    assert not b.linked and (b["next_obs"]["x"] == 5).all() and (b[:1]["next_obs"]["x"] == 5).all()


def test_a_transformed_obs_is_no_longer_linked_to_the_rows():
    b, _ = block([[0], [0]])
    b["obs"] = {"x": b["obs"]["x"] / 255}
    assert not b.linked


def test_flat_lists_every_start_once_with_its_next_obs():
    b, wanted = block([[0, 1], [0, 0], [1, 0]], starts=2)
    flat = b.flat()
    assert len(flat) == 4
    np.testing.assert_array_equal(flat["obs"]["x"], [0, 1, 10, 11])
    np.testing.assert_array_equal(flat["next_obs"]["x"], wanted[:2].reshape(-1))


@pytest.mark.parametrize("clone", [copy.deepcopy, Block.copy, lambda b: pickle.loads(pickle.dumps(b))])
def test_copies_keep_starts_and_next_obs(clone):
    b, wanted = block([[0, 1], [0, 0]], starts=1)
    other = clone(b)
    assert other.starts == 1
    np.testing.assert_array_equal(other["next_obs"]["x"], wanted)


def test_tree_map_gives_plain_rows_with_next_obs():
    b, wanted = block([[0, 1], [0, 0]])
    out = tree_map(lambda a: a[:, 0] + 1.0, b)
    assert type(out) is ArrayDict
    np.testing.assert_array_equal(out["next_obs"]["x"], wanted[:, 0] + 1)


def test_tensors_of_a_block_include_next_obs():
    b, wanted = block([[0, 1], [0, 0]])
    np.testing.assert_array_equal(torchify(b)["next_obs"]["x"], wanted)
