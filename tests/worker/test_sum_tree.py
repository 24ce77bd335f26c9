"""The sum tree against sums and searches over its plain leaves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.worker.replay_buffer import SumTree

SIZES = st.tuples(st.integers(1, 70), st.integers(1, 5))


def inner_nodes(tree):
    """The levels above the leaves, by adding neighbours up."""
    level, levels = tree._nodes[tree._base :], []
    for _ in range(tree.depth):
        level = level[0::2] + level[1::2]
        levels.append(level)
    return np.concatenate([np.empty(0), *levels[::-1]])


def check(tree, leaves):
    """Leaves, inner nodes and the total are those of a tree of these leaves, to the last bit."""
    np.testing.assert_array_equal(tree.leaves, leaves)
    np.testing.assert_array_equal(tree._nodes[tree._top : tree._base], inner_nodes(tree))
    fresh = SumTree(len(leaves), tree._top)
    fresh.load(leaves)
    assert tree.total == fresh.total == pytest.approx(math.fsum(leaves), rel=1e-12)


def random_updates(tree, rounds, batch, seed=0):
    """Leaves of numbers of very different size; returns what they should be."""
    rng, leaves = np.random.default_rng(seed), np.zeros(len(tree.leaves))
    for _ in range(rounds):
        index = rng.integers(0, len(leaves), batch)
        value = rng.random(batch) * 10.0 ** rng.integers(-9, 9, batch) * (rng.random(batch) < 0.9)
        tree.set(index, value)
        for i, v in zip(index.tolist(), value.tolist()):
            leaves[i] = v
    return leaves


def test_nothing_drifts_over_a_million_updates():
    tree = SumTree(200_000)
    check(tree, random_updates(tree, 4000, 256))
    assert tree.depth == 8


@given(SIZES, st.data())
def test_any_writes_give_the_tree_of_the_leaves(size, data):
    tree, leaves = SumTree(*size), [0.0] * size[0]
    number = st.floats(0, 1e300)
    for _ in range(data.draw(st.integers(0, 4))):
        pairs = data.draw(st.lists(st.tuples(st.integers(0, size[0] - 1), number), max_size=12))
        index, value = np.array([i for i, _ in pairs], np.int64), np.array([v for _, v in pairs])
        tree.set(index, value)
        for i, v in pairs:  # of equal ones the last counts
            leaves[i] = v
        check(tree, np.array(leaves))


def test_duplicates_update_one_leaf_once():
    """Case B21: leaves 1, 1, 1 updated with ids [0, 0, 1] to [5, 5, 2] give 5, 2, 1 and a total of 8 (fault: 12)."""
    tree = SumTree(3, top=1)
    tree.load(np.ones(3))
    tree.set(np.array([0, 0, 1]), np.array([5.0, 5.0, 2.0]))
    assert tree.leaves.tolist() == [5, 2, 1] and tree.total == 8


@given(SIZES, st.data())
def test_a_mass_falls_on_the_leaf_that_a_search_of_all_leaves_gives(size, data):
    """With integers, sums are exact; a mass on an edge belongs to the leaf that starts there."""
    leaves = np.array(data.draw(st.lists(st.integers(0, 5), min_size=size[0], max_size=size[0])), float)
    tree = SumTree(*size)
    tree.set(np.arange(size[0]), leaves)
    if not leaves.any():
        with pytest.raises(ValueError, match="all leaves of the sum tree are 0"):
            tree.find(np.zeros(1))
        return
    mass = np.arange(0, leaves.sum(), 0.5)
    np.testing.assert_array_equal(tree.find(mass), np.cumsum(leaves).searchsorted(mass, "right"))


@given(SIZES, st.data())
def test_a_leaf_of_zero_is_never_found_whatever_is_rounded_away(size, data):
    number = st.one_of(st.just(0.0), st.floats(0, 1e300), st.sampled_from([5e-324, 1e-17, 0.1, 0.3, 1.0, 1e17]))
    leaves = np.array(data.draw(st.lists(number, min_size=size[0], max_size=size[0]).filter(any)))
    tree = SumTree(*size)
    tree.load(leaves)
    edges = np.concatenate([[0.0, tree.total], np.cumsum(leaves), np.cumsum(leaves[::-1])])
    mass = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])
    found = tree.find(np.clip(mass, 0, tree.total))
    assert (leaves[found] > 0).all()


def test_a_mass_that_rounding_puts_behind_the_last_leaf_finds_that_leaf():
    """With h = 2^-52: 1.5 h + (1 + 2 h) rounds to 1 + 4 h, and of the mass 1 + 3 h, less 1.5 h, 1 + 2 h is left."""
    h = 2.0**-52
    tree = SumTree(4, top=1)
    tree.load(np.array([1.5 * h, 0.0, 1 + 2 * h, 0.0]))
    assert tree.total == 1 + 4 * h
    assert tree.find(np.array([1 + 3 * h])).tolist() == [2]


def test_frequencies_are_those_of_the_leaves():
    rng = np.random.default_rng(0)
    leaves = rng.exponential(size=3000) ** 3
    tree = SumTree(3000)
    tree.load(leaves)
    drawn = np.bincount(tree.find(rng.random(200_000) * tree.total), minlength=3000)
    groups = np.argsort(leaves).reshape(100, 30)  # sums over groups, so that every expected count is large
    expected = 200_000 * leaves[groups].sum(1) / leaves.sum()
    keep = expected > 5
    chi = ((drawn[groups].sum(1) - expected) ** 2 / expected)[keep].sum()
    assert chi < keep.sum() + 4 * math.sqrt(2 * keep.sum())
