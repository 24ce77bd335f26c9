"""The queue: first in, first out, whole batches, replay of what has trained."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import CfgDict
from ding_like.data import ArrayDict
from ding_like.worker.replay_buffer.queue import Queue
from tests.helpers import chi_limit, chi_square, fingerprint


def items(n, start=0):
    at = np.arange(start, start + n)
    return ArrayDict(
        obs={"a": at[:, None, None].astype(np.float32)}, logit=(at, at * 2.0), origin=np.stack([at, -at], 1)
    )


def queue(share=0.0, size=10, seed=0):
    return Queue(CfgDict(replay_share=share, replay_buffer_size=size), seed)


def numbers(batch):
    assert set(batch) == {"obs", "logit", "origin"} and batch["origin"].shape == (len(batch["logit"][0]), 2)
    np.testing.assert_array_equal(batch["origin"][:, 0], batch["obs"]["a"][:, 0, 0])
    np.testing.assert_array_equal(batch["logit"][1], 2 * batch["logit"][0])
    return batch["logit"][0].tolist()


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 7))
def test_items_come_in_order_in_whole_batches_and_the_rest_waits(pushes, size):
    store, total, found = queue(), 0, []
    for n in pushes:
        assert store.push(items(n, total)) == n
        total += n
        for batch in store.batches(1, size):
            assert len(numbers(batch)) == size
            found += numbers(batch)
        assert store.count == total - len(found) < size
    assert found == list(range(len(found)))


def test_what_is_pushed_is_copied():
    memory, store = items(4), queue()
    store.push(memory)
    memory["obs"]["a"][:] = -1
    assert [numbers(batch) for batch in store.batches(1, 4)] == [[0, 1, 2, 3]]
    assert store.push([]) == 0
    assert store.push([{"obs": torch.ones(2), "reward": 1.0}] * 3) == store.count == 3


def test_a_share_is_drawn_of_the_newest_that_have_trained():
    store, total, fresh, seen = queue(0.5, 8), 0, [], np.zeros(2000)
    for _ in range(150):
        store.push(items(3, total))
        total += 3
        for batch in store.batches(1, 8):
            new, old = (numbers(batch), []) if not fresh else (numbers(batch)[:4], numbers(batch)[4:])
            assert all(fresh[-1] - 8 < number <= fresh[-1] for number in old)
            np.add.at(seen, np.array(old, int), 1)
            fresh += new
    assert fresh == list(range(len(fresh))) and total - len(fresh) < 8
    places = seen[8 : len(fresh) - 8].reshape(-1, 4).sum(0)  # wherever in a batch, an item is drawn as often
    assert chi_square(places, places.mean()) < chi_limit(4)


def test_the_share_never_fills_a_batch_and_updates_repeat_it():
    store = queue(0.9, 5)
    store.push(items(6))
    found = [numbers(batch) for batch in store.batches(2, 2)]
    assert found[::2] == found[1::2] and [batch[0] for batch in found[::2]] == [0, 2, 3, 4, 5]
    assert store.count == 0


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_restored_queue_goes_on_as_the_first_would_have(share):
    first, second = queue(share), queue(share, seed=1)
    for start in (0, 7):
        first.push(items(7, start))
        list(first.batches(1, 5))
    state = first.state_dict()
    second.load_state_dict(state)
    for store in (first, second):
        store.push(items(9, 14))
        store.cut()
        store.update(np.arange(2), np.ones(2))
    assert [fingerprint(b) for b in first.batches(1, 5)] == [fingerprint(b) for b in second.batches(1, 5)]
    assert fingerprint(first.state_dict()) == fingerprint(second.state_dict())
    with pytest.raises(ValueError, match=r"replay_share (to 0|above 0), as it was"):
        queue(0.5 - share).load_state_dict(state)


def test_a_share_that_leaves_nothing_new_is_a_named_error():
    with pytest.raises(ValueError, match=r"replay_share is 1\.0; wanted a number from 0 to below 1"):
        queue(1.0)
