"""Windows of stacked frames, and samples that come on their own: as they were put in, each distinct frame kept once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import tree_index, tree_map
from ding_like.rl_utils.stream import WindowStream
from ding_like.worker.replay_buffer import frame_pool
from tests.helpers import fingerprint
from tests.worker.frame_steps import FrameSteps, feeds, store_of


@st.composite
def window_feeds(draw):
    steps, _, sizes, _ = draw(feeds().filter(lambda feed: not feed[0].masked and not feed[0].cuts))
    plan = dict(burnin=draw(st.integers(0, 3)), unroll_len=draw(st.integers(2, 5)), tail=1)
    return steps, sizes, dict(plan, stride=plan["unroll_len"] - 1)


def windows_of(steps, sizes, plan):
    """What a window stream gives out of blocks of so many rows."""
    stream = WindowStream(steps.columns, **plan)
    stop = 0
    for size in sizes:
        start, stop = max(0, stop - stream.carry), stop + size
        windows = stream.take(steps.block(start, stop, 0, set()), stop - start - size)
        if windows is not None:
            windows["prev_state"] = windows["reward"][:, :1]
            yield windows


@settings(max_examples=60, deadline=None)
@given(window_feeds(), st.integers(1, 12))
def test_windows_of_frames_are_drawn_as_windows_of_whole_stacks(feed, size):
    """While the ring of windows wraps, and pushes are larger than it."""
    plain, frames = store_of(None, size), store_of(feed[0].k, size)
    for windows in windows_of(*feed):
        assert plain.push(windows) == frames.push(windows)
        assert fingerprint(plain.sample(9)) == fingerprint(frames.sample(9))
        held = plain.ring.gather(np.arange(plain.ring.first, plain.ring.end))["obs"]
        image = held["image"] if feed[0].nested else held
        distinct = np.unique(image.reshape(-1, 2 * feed[0].channels), axis=0)
        assert frames._pooled._pools[0].distinct == len(distinct)


def one_episode(rows=41, k=4):
    """Windows of 10 slots at a stride of 5 of one episode; the first begins with null slots, the last ends in some."""
    flags = np.zeros((rows, 1), int)
    flags[-1] = 2
    return next(windows_of(FrameSteps(flags, k), [rows], dict(unroll_len=7, burnin=3, stride=5, tail=2)))


def test_a_frame_of_many_windows_is_kept_once():
    windows = one_episode()
    store = store_of(4)
    store.push(windows)
    assert windows["null"].any() and windows["obs"].shape == (9, 10, 4, 2)
    assert store._pooled._pools[0].distinct == 42  # 41 rows and the final one; the padded start shows the first again
    assert store.nbytes < windows["obs"].nbytes + store.ring.nbytes


def test_places_of_overwritten_windows_are_used_again():
    windows, store, sizes = one_episode(), store_of(4, 20), []
    for number in range(40):
        store.push(tree_map(np.copy, {**windows, "obs": windows["obs"] + 10_000 * number}))
        sizes.append(store._pooled.nbytes)
    assert max(sizes) == sizes[3]


def test_frames_of_one_hash_are_kept_apart(monkeypatch):
    monkeypatch.setattr(frame_pool, "hash", lambda content: 7, raising=False)
    windows, plain, frames = one_episode(), store_of(None, 12), store_of(4, 12)
    for number in range(6):
        changed = {**windows, "obs": windows["obs"] + 100 * number}
        plain.push(changed), frames.push(changed)
        assert fingerprint(plain.sample(30)) == fingerprint(frames.sample(30))


def test_a_restored_pool_goes_on_bit_for_bit():
    windows = one_episode()
    one, two = store_of(4, 20), store_of(4, 20)
    for number in range(5):
        one.push({**windows, "obs": windows["obs"] + 100 * number})
    two.load_state_dict(one.state_dict())
    for number in range(7, 12):
        changed = {**windows, "obs": windows["obs"] + 100 * number}
        one.push(changed), two.push(changed)
        assert fingerprint(one.state_dict()) == fingerprint(two.state_dict())
        assert fingerprint(one.sample(8)) == fingerprint(two.sample(8))


def test_a_pool_grows_where_observations_are_no_moved_on_stacks():
    """Then a window has more distinct frames than there is room for at first."""
    obs = np.arange(6 * 5 * 8).reshape(6, 5, 4, 2)
    windows = dict(obs=obs, null=np.zeros((6, 5), bool))
    store = store_of(4, 6)
    store.push(windows)
    assert store._pooled._pools[0].distinct == 6 * 5 * 4
    drawn = store.sample(20)
    np.testing.assert_array_equal(drawn["obs"], obs[drawn["index"]])


def test_single_transitions_are_pooled_too_with_next_obs():
    steps = FrameSteps(np.where(np.arange(60).reshape(30, 2) % 9 == 8, 1, 0), nested=True)
    items = steps.block(0, 30, 0, set()).flat()
    plain, frames = store_of(None, 25), store_of(4, 25)
    for start in range(0, 60, 12):
        part = tree_index(items, slice(start, start + 12))
        plain.push(part), frames.push(part)
        assert fingerprint(plain.sample(15)) == fingerprint(frames.sample(15))


def test_samples_without_stacks_are_named():
    with pytest.raises(ValueError, match="frame_stack is 4, but the observation has the shape"):
        store_of(4).push(dict(obs=np.zeros((5, 3))))
