"""The on-policy store: every item once an epoch, in parts of nearly one size, then forgotten."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block
from ding_like.worker import Rollout


def items(n, start=0):
    at = np.arange(start, start + n)
    return ArrayDict(obs={"a": at[:, None].astype(np.float32), "b": at}, reward=at * 2.0)


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70), epochs=st.integers(1, 3))
def test_an_epoch_drops_and_repeats_nothing(n, batch_size, epochs):
    store = Rollout()
    store.push(items(n))
    batches = list(store.batches(epochs, batch_size))
    each = len(batches) // epochs
    assert each == -(-n // batch_size)
    for i in range(epochs):
        part = batches[i * each : (i + 1) * each]
        sizes = [len(b["reward"]) for b in part]
        assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
        seen = np.concatenate([b["obs"]["b"] for b in part])
        assert sorted(seen) == list(range(n))
        for b in part:
            np.testing.assert_array_equal(b["reward"], 2.0 * b["obs"]["b"])
            np.testing.assert_array_equal(b["obs"]["a"][:, 0], b["index"])
    assert store.count == 0 and not list(store.batches(1, 5))


def test_epochs_have_orders_of_their_own_and_a_seed_repeats_them():
    def orders(seed):
        store = Rollout(None, seed)
        store.push(items(50))
        return [b["index"].tolist() for b in store.batches(2, 50)]

    first, second = orders(0)
    assert first != second
    assert orders(0) == [first, second] != orders(1)


def test_what_is_pushed_is_copied_and_joined():
    memory = items(4)
    store = Rollout()
    assert store.push(memory) == 4
    memory["reward"][:] = -1
    assert store.push(items(3, start=4)) == 3
    (batch,) = store.batches(1, 100)
    assert sorted(batch["reward"]) == [0, 2, 4, 6, 8, 10, 12]


def test_a_block_gives_its_real_rows_and_counts_all_its_places():
    at = np.arange(6.0).reshape(3, 2)
    mask = np.float32([[1, 1], [0, 1], [1, 1]])
    store = Rollout()
    assert store.push(Block(dict(reward=at, mask=mask), starts=3)) == 6
    assert store.count == 5
    (batch,) = store.batches(1, 100)
    assert sorted(batch["reward"]) == [0, 1, 3, 4, 5] and "mask" not in batch


@pytest.mark.parametrize("empty", [[], Block(dict(reward=np.ones((1, 2)), mask=np.zeros((1, 2))), starts=1)])
def test_nothing_to_train_on_gives_no_batch(empty):
    store = Rollout()
    store.push(empty)
    assert store.count == 0 and not list(store.batches(3, 4))


def test_segments_without_a_transition_are_counted_and_left_out():
    mask = np.float32([[1, 1], [0, 0], [0, 1]])
    store = Rollout()
    assert store.push({"adv": np.arange(6.0).reshape(3, 2), "mask": mask}) == 3
    (batch,) = store.batches(1, 8)
    assert sorted(batch["adv"].tolist()) == [[0, 1], [4, 5]] and batch["mask"].shape == (2, 2)


def test_lists_of_dictionaries_are_collated():
    store = Rollout()
    assert store.push([dict(obs=np.float32([i]), reward=float(i)) for i in range(3)]) == 3
    (batch,) = store.batches(1, 3)
    assert sorted(batch["reward"].tolist()) == [0, 1, 2]


def test_a_restored_store_goes_on_as_the_first():
    store, again = Rollout(None, 3), Rollout(None, 4)
    store.push(items(10))
    list(store.batches(1, 4))
    store.push(items(9))
    again.load_state_dict(store.state_dict())
    for a, b in zip(store.batches(2, 4), again.batches(2, 4), strict=True):
        np.testing.assert_array_equal(a["index"], b["index"])
        np.testing.assert_array_equal(a["reward"], b["reward"])
