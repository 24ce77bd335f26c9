"""The ring against plain-Python n-step items: every valid item right, none lost, none twice, memory bounded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block, tree_leaves
from ding_like.worker.replay_buffer.ring import Ring
from tests.helpers import Steps, fingerprint, make_policy, rows_of

GAMMA = 0.9


POLICIES = {n: make_policy(nstep=n, discount_factor=GAMMA, fields=["collect"]) for n in range(1, 6)}


@st.composite
def feeds(draw):
    columns, nstep = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    rows = sum(sizes) + nstep - 1
    flag = st.sampled_from([0, 0, 0, 1, 2])
    flags = draw(st.lists(flag, min_size=rows * columns, max_size=rows * columns))
    capacity = draw(st.integers(max(sizes), max(sizes) + 12))
    return np.reshape(flags, (rows, columns)), nstep, sizes, capacity, draw(st.booleans())


def dict_obs(x):
    return ArrayDict(a=ArrayDict(b=x), c=x[:, 0].astype(np.int64))


def everything(ring):
    """All valid items, oldest first."""
    return ring.gather(np.arange(ring.first, ring.end))


@settings(max_examples=150)
@given(feeds())
def test_every_valid_item_is_the_reference_item_through_blocks_ends_and_wraps(feed):
    flags, nstep, sizes, capacity, nested = feed
    steps = Steps(flags, dict_obs if nested else lambda x: x)
    wanted = steps.items(nstep, GAMMA)
    ring = Ring(capacity * steps.columns)
    pushed = 0
    for block in steps.blocks(sizes, nstep):
        pushed += ring.push(POLICIES[nstep]._get_train_sample(block)) // steps.columns
        first = max(0, pushed - capacity)
        assert ring.count == (pushed - first) * steps.columns
        got = everything(ring)
        if nested:
            np.testing.assert_array_equal(got["next_obs"]["a"]["b"][:, 0].astype(np.int64), got["next_obs"]["c"])
            got["obs"], got["next_obs"] = got["obs"]["a"]["b"], got["next_obs"]["a"]["b"]
        reference = [wanted[t, b] for t in range(first, pushed) for b in range(steps.columns)]
        np.testing.assert_allclose(rows_of(got), np.array(reference).reshape(-1, 5), rtol=1e-6)
    assert pushed == sum(sizes)


@given(feeds())
def test_a_restored_ring_goes_on_as_the_first(feed):
    flags, nstep, sizes, capacity, _ = feed
    steps = Steps(flags)
    ring, other = Ring(capacity * steps.columns), Ring(capacity * steps.columns)
    half = len(sizes) // 2
    for i, block in enumerate(steps.blocks(sizes, nstep)):
        items = POLICIES[nstep]._get_train_sample(block)
        ring.push(items)
        if i == half:
            other.load_state_dict(ring.state_dict())
        elif i > half:
            other.push(items)
    assert rows_of(everything(ring)) == rows_of(everything(other))
    assert fingerprint(ring.state_dict()) == fingerprint(other.state_dict())


def targets(ring, q=20.0):
    got = everything(ring)
    return dict(zip(got["obs"][:, 0].astype(int).tolist(), (got["reward"] + got["discount"] * q).tolist()))


def fill(ring, flags, nstep=3, size=1, reward=1.0):
    """One column's steps, reward 1, in blocks that start `size` items."""
    steps = Steps(np.reshape(flags, (-1, 1)))
    steps.reward[:] = reward
    for block in steps.blocks([size] * ((len(flags) - nstep + 1) // size), nstep):
        ring.push(POLICIES[nstep]._get_train_sample(block))


def test_window_never_joins_the_newest_step_to_the_oldest():
    """Case B12: 8 slots, steps 0..10 of one unfinished episode; steps 9 and 10 wait for their future."""
    ring = Ring(8)
    fill(ring, [0] * 11)
    got = targets(ring)
    assert list(got) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(v == pytest.approx(1 + 0.9 + 0.81 + 0.729 * 20) for v in got.values())  # 17.29


def test_steps_without_their_future_are_not_sampled_and_terminal_tails_are_exact():
    """Case B13: 5 unfinished steps in a ring of 100; then the same with step 4 terminated."""
    ring = Ring(100)
    fill(ring, [0] * 5)
    assert sorted(targets(ring)) == [0, 1, 2]
    ring = Ring(100)
    fill(ring, [0, 0, 0, 0, 1, 0, 0])
    got = targets(ring)
    assert [got[t] for t in (2, 3, 4)] == pytest.approx([2.71, 1.9, 1.0])


def test_tail_of_a_truncated_episode_bootstraps_with_its_true_distance():
    """Case B14 in the ring: reward sums 2.71, 2.71, 1.9, 1 and bootstrap discounts .729, .729, .81, .9."""
    ring = Ring(100)
    fill(ring, [0, 0, 0, 2, 0, 0])
    got = ring.gather(np.arange(4))
    assert got["reward"].tolist() == pytest.approx([2.71, 2.71, 1.9, 1.0])
    assert got["discount"].tolist() == pytest.approx([0.729, 0.729, 0.81, 0.9])
    assert got["next_obs"][:, 0].tolist() == [3, -4, -4, -4]


def test_one_push_may_fill_the_ring_but_not_exceed_it():
    ring = Ring(4)
    fill(ring, [0] * 8, nstep=1, size=4)
    assert list(targets(ring)) == [4, 5, 6, 7]
    with pytest.raises(ValueError, match=r"one collect brings 5 items and .*replay_buffer_size is 4; raise it"):
        fill(Ring(4), [0] * 5, nstep=1, size=5)
    with pytest.raises(ValueError, match="replay_buffer_size is 0"):
        Ring(0)


def test_size_is_rounded_up_to_whole_rows():
    ring = Ring(7)
    steps = Steps(np.zeros((12, 3), int))
    for block in steps.blocks([1] * 12, 1):
        ring.push(POLICIES[1]._get_train_sample(block))
    assert ring.count == 9


def test_memory_is_flat_once_the_ring_is_full_and_stacks_cost_one_copy():
    """Case B52: 4x84x84 uint8 stacks; next_obs is the following row, so a transition costs one stack and a bit."""
    columns, capacity = 2, 2000
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (4, 84, 84), dtype=np.uint8)
    flags = np.where(rng.random((3002, columns)) < 0.005, 2, 0)
    steps = Steps(flags, lambda x: np.broadcast_to(frames, (len(x), 4, 84, 84)))
    ring, sizes = Ring(capacity), []
    for block in steps.blocks([100] * 30, 3):
        ring.push(POLICIES[3]._get_train_sample(block))
        sizes.append(ring.nbytes)
    assert ring.count == capacity and ring._fields["obs"].dtype == np.uint8
    assert sizes[-1] <= 4.2 * 84 * 84 * capacity
    assert sizes[-1] / sizes[11] < 1.02  # full since the tenth block


def test_final_observations_reuse_the_slots_of_overwritten_ends():
    """Case B52: ends in every third row, a hundred times the ring's size."""
    rows = 100 * 20
    steps = Steps(np.where(np.arange(rows * 2).reshape(rows, 2) % 3 == 0, 2, 0))
    ring, sizes = Ring(40), []
    for block in steps.blocks([20] * 100, 1):
        ring.push(POLICIES[1]._get_train_sample(block))
        sizes.append(ring.nbytes)
    assert max(sizes[5:]) == sizes[5]


# ---------------------------------------------------------------- what is not a linked block
def flat(start, n):
    at = np.arange(start, start + n)
    return dict(obs=np.float32(at)[:, None], action=at % 3, extra={"a": at * 2, "none": None})


def test_flat_trees_are_kept_and_the_oldest_overwritten():
    ring = Ring(5)
    assert ring.push(flat(0, 3)) == 3 and ring.count == 3
    ring.push(flat(3, 4))
    got = everything(ring)
    assert got["obs"][:, 0].tolist() == [2, 3, 4, 5, 6] and got["extra"]["a"].tolist() == [4, 6, 8, 10, 12]
    ring.push(flat(7, 12))  # more than the ring holds: the last ones stay
    assert everything(ring)["obs"][:, 0].tolist() == [14, 15, 16, 17, 18]


def test_a_field_that_is_none_is_left_out():
    ring = Ring(5)
    ring.push(dict(flat(0, 3), weight=None))
    assert "weight" not in everything(ring)


def test_block_whose_policy_replaced_next_obs_keeps_its_own():
    ring = Ring(10)
    for block in Steps(np.zeros((6, 2), int)).blocks([3, 3], 1):
        items = POLICIES[1]._get_train_sample(block)
        items["next_obs"] = items["obs"] + 500
        ring.push(items)
    got = everything(ring)
    assert ring.count == 10
    np.testing.assert_array_equal(got["next_obs"], got["obs"] + 500)


def test_layouts_do_not_mix():
    blocks = [POLICIES[1]._get_train_sample(b.copy()) for b in Steps(np.zeros((6, 2), int)).blocks([3, 3], 1)]
    ring = Ring(10)
    ring.push(blocks[0])
    other = Block(dict(dict.items(blocks[1]), next_obs=blocks[1]["next_obs"]), 3)
    with pytest.raises(ValueError, match="keeps one layout"):
        ring.push(other)
    with pytest.raises(ValueError, match="columns"):
        ring.push(blocks[0].flat())


def test_state_of_another_size_is_named():
    ring = Ring(10)
    fill(ring, [0] * 4, nstep=1)
    with pytest.raises(ValueError, match="the saved replay buffer has size 10, this one 20"):
        Ring(20).load_state_dict(ring.state_dict())


def test_a_state_refers_to_the_ring_and_loading_copies_it():
    ring, other = Ring(4), Ring(4)
    fill(ring, [0, 2, 0, 0], nstep=1)
    state = ring.state_dict()
    assert np.shares_memory(state["fields"]["obs"], ring._fields["obs"])
    other.load_state_dict(state)
    fill(ring, [1, 1, 1, 1], nstep=1, reward=9.0)
    assert targets(other) == {0: 19, 1: 19, 2: 19, 3: 19}
    assert other.gather(np.array([1]))["next_obs"].tolist() == [[-2]]


def test_a_state_holds_the_rows_ever_written_and_no_other():
    ring = Ring(1_000_000)
    fill(ring, [0, 2] * 50, nstep=3)
    state = ring.state_dict()
    assert sum(a.nbytes for a in tree_leaves(state) if isinstance(a, np.ndarray)) < 10_000
    other = Ring(1_000_000)
    other.load_state_dict(state)
    assert other.nbytes == ring.nbytes and targets(other) == targets(ring)


def test_a_ring_restored_before_anything_was_pushed_takes_any_layout():
    ring = Ring(5)
    ring.load_state_dict(Ring(5).state_dict())
    ring.push(flat(0, 3))
    assert everything(ring)["obs"][:, 0].tolist() == [0, 1, 2]


def test_nested_fields_are_saved_as_plain_containers_and_come_back_as_they_were():
    ring, other = Ring(6), Ring(6)
    for block in Steps(np.zeros((6, 2), int), lambda x: ArrayDict(a=(x, ArrayDict(b=x)))).blocks([2, 3], 1):
        ring.push(POLICIES[1]._get_train_sample(block))
    state = ring.state_dict()
    kinds = {type(node) for node in (state, state["fields"]["obs"], state["fields"]["obs"]["a"][1])}
    assert kinds == {dict}
    other.load_state_dict(state)
    before, after = everything(ring), everything(other)
    assert type(after["obs"]["a"][1]) is ArrayDict
    assert fingerprint(dict(before)) == fingerprint(dict(after))


def test_serial_numbers_count_items_as_they_come():
    ring = Ring(5)
    for start in range(0, 24, 4):
        ring.push(flat(start, 4))
        serial = everything(ring)["obs"][:, 0].astype(int)
        assert serial.tolist() == list(range(ring.first, ring.end))
        assert ring.serial(ring.address(serial)).tolist() == serial.tolist()
        assert (ring.first, ring.end) == (max(0, start - 1), start + 4)


# ---------------------------------------------------------------- envs that start anew
@pytest.mark.parametrize("capacity", [3, 5, 50])
@pytest.mark.parametrize("pushed", [1, 3, 4, 11])
def test_after_a_cut_the_newest_items_keep_their_next_observation(capacity, pushed):
    """Another run's rows overwrite the look-ahead row; columns that ended in the newest row have their final one."""
    rng = np.random.default_rng(pushed)
    ring, restarted = Ring(2 * capacity), Steps(rng.choice([0, 0, 2], (3, 2)))
    for block in Steps(rng.choice([0, 0, 1, 2], (pushed, 2))).blocks([1] * pushed, 1):
        ring.push(POLICIES[1]._get_train_sample(block))
    before, kept = everything(ring), min(capacity, pushed) - max(0, min(capacity, pushed) + 2 - capacity)
    ring.cut()
    ring.cut()
    assert fingerprint(dict(everything(ring))) == fingerprint(dict(before))
    for block in restarted.blocks([1, 1], 1):
        ring.push(POLICIES[1]._get_train_sample(block))
    after = everything(ring)
    assert ring.count == 2 * kept + 4
    for name in before:
        np.testing.assert_array_equal(after[name][:-4], before[name][len(before[name]) - 2 * kept :])
    np.testing.assert_array_equal(after["next_obs"][-4:].reshape(2, 2, 1), restarted.next_obs[:2])


def test_without_a_cut_the_newest_items_would_bootstrap_from_another_episode():
    ring = Ring(10)
    fill(ring, [0, 0], nstep=1)
    fill(ring, [0], nstep=1)
    assert everything(ring)["next_obs"][:, 0].tolist() == [1, 0, 1]


def test_a_cut_changes_nothing_where_no_look_ahead_row_can_be_lost():
    empty, plain, ahead = Ring(5), Ring(5), Ring(5)
    plain.push(flat(0, 3))
    fill(ahead, [0] * 6, nstep=3)
    for ring in (empty, plain, ahead):
        before = fingerprint(ring.state_dict())
        ring.cut()
        assert fingerprint(ring.state_dict()) == before
