"""The frame ring against plain Python: every stack as the env showed it, each frame kept once, refusals by name."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import CfgDict
from ding_like.data import Block, RowLink, tree_index, tree_map
from ding_like.envs.env_wrappers import FrameStack
from ding_like.worker import Replay
from ding_like.worker.replay_buffer.ring import Ring
from tests.helpers import Constant, fingerprint, make_collector, make_policy
from tests.worker.frame_steps import FrameSteps, feeds, store_of


def everything(ring):
    """Valid items with their serial numbers, oldest first; rows that are no transition left out."""
    serial = np.arange(ring.first, ring.end)
    serial = np.delete(serial, ring.idle(serial))
    return serial, ring.gather(serial)


def image(obs):
    """The stack, and that the leaves beside it belong to it."""
    if not isinstance(obs, dict):
        return obs
    np.testing.assert_array_equal(obs["deep"]["more"], obs["image"][:, :, :1] * 3)
    np.testing.assert_array_equal(obs["deep"]["vector"], obs["image"][:, 0, 0])
    return obs["image"]


@settings(max_examples=80, deadline=None)
@given(feeds())
def test_every_item_is_the_reference_item_through_starts_ends_crashes_and_wraps(feed):
    steps, nstep, sizes, capacity = feed
    ring = Ring(capacity * steps.columns, steps.k)

    def look(pushed):
        serial, got = everything(ring)
        rows = [divmod(s, steps.columns) for s in serial.tolist()]
        wanted_rows = [
            (t, b)
            for t in range(max(0, pushed - capacity), pushed)
            for b in range(steps.columns)
            if not steps.idle[t, b]
        ]
        assert rows == wanted_rows and ring.count == len(rows)
        if not rows:
            return
        obs, reward, discount, next_obs = (np.array(part) for part in zip(*[steps.item(t, b, nstep) for t, b in rows]))
        np.testing.assert_array_equal(image(got["obs"]), obs)
        np.testing.assert_allclose(got["reward"], reward, rtol=1e-6)
        np.testing.assert_allclose(got["discount"], discount, rtol=1e-6)
        np.testing.assert_array_equal(image(got["next_obs"]), next_obs)

    steps.feed(ring, sizes, nstep, look)


def batches_of(store, number=3):
    return [store.sample(5) for _ in range(number) if store.count]


@settings(max_examples=40, deadline=None)
@given(feeds(), st.booleans())
def test_batches_hold_the_items_of_a_plain_ring_prioritised_too(feed, priority):
    """Stale priorities go nowhere, and what is drawn is there."""
    steps, nstep, sizes, capacity = feed
    cfg = dict(Replay.config, replay_buffer_size=capacity * steps.columns, priority=priority)
    plain, frames = Replay(CfgDict(cfg)), Replay(CfgDict(cfg, frame_stack=steps.k))
    wanted, drawn = {}, []

    def look(pushed):
        for batch in batches_of(frames):
            drawn.append((batch, pushed))
            if priority:
                for old, _ in drawn:
                    frames.update(old["index"], old["reward"] + old["index"] % 3)

    steps.feed(frames, sizes, nstep, look)
    steps.feed(plain, sizes, nstep, lambda pushed: wanted.update({pushed: everything(plain.ring)}))
    for batch, pushed in drawn:
        serial, items = wanted[pushed]
        at = np.searchsorted(serial, batch["index"])
        np.testing.assert_array_equal(serial[at], batch["index"])
        for name in ("obs", "next_obs", "reward", "discount", "action"):
            tree_map(np.testing.assert_array_equal, batch[name], tree_index(items[name], at))


@settings(max_examples=40, deadline=None)
@given(feeds(), st.integers(0, 9))
def test_a_restored_store_goes_on_bit_for_bit(feed, when):
    steps, nstep, sizes, capacity = feed
    cfg = CfgDict(Replay.config, replay_buffer_size=capacity * steps.columns, frame_stack=steps.k)
    stores = [Replay(cfg), Replay(cfg)]

    class Both:
        """Pushes into the first store, and into the second one once it was restored."""

        calls = 0

        def push(self, items):
            for store in stores if self.calls > when else stores[:1]:
                store.push(items)
            if self.calls == when:
                stores[1].load_state_dict(stores[0].state_dict())
            self.calls += 1

        def cut(self):
            for store in stores if self.calls > when else stores[:1]:
                store.cut()

    steps.feed(Both(), sizes, nstep)
    if when < len(sizes):
        assert fingerprint(stores[0].state_dict()) == fingerprint(stores[1].state_dict())
        assert fingerprint(batches_of(stores[0])) == fingerprint(batches_of(stores[1]))


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("size", range(1, 8))
def test_the_frames_of_the_oldest_item_outlive_the_wrap_at_every_offset(size, nstep):
    """One endless episode, a ring of 7 rows, pushes of every size: the write cursor comes to stand at every row."""
    steps = FrameSteps(np.zeros((60, 2), int), k=4)
    ring, cursors = Ring(14, 4), set()

    def look(pushed):
        cursors.add(ring._cursor)
        oldest = np.arange(ring.first, ring.first + 2)
        np.testing.assert_array_equal(ring.gather(oldest)["obs"], steps.obs[max(0, pushed - 7)])

    steps.feed(ring, [size] * (56 // size), nstep, look)
    assert len(cursors) == len({size * i % ring._rows for i in range(1, 1 + 56 // size)})


def test_a_state_refers_to_the_frames_and_holds_the_rows_ever_written():
    steps = FrameSteps(np.zeros((9, 2), int), k=3)
    store = Replay(CfgDict(replay_buffer_size=100_000, frame_stack=3))
    steps.feed(store, [3, 3], 1)
    frames = store.state_dict()["ring"]["frames"]
    assert np.shares_memory(frames["frames"][0][0], store.ring._frames._frames[0])
    assert all(len(column) == 7 for column in frames["frames"][0]) and len(frames["refs"]) == 14


# ---------------------------------------------------------------- bytes
def kept(first, episodes=50, length=20, k=4, capacity=10_000):
    """Frames kept beside those of the rows: heads of episodes, final frames."""
    flags = np.zeros((episodes * length + 1, 1), int)
    flags[length - 1 :: length] = 1
    ring = Ring(capacity, k)
    FrameSteps(flags, k, first=first).feed(ring, [length] * episodes, 1)
    return np.count_nonzero(ring._frames._owner >= 0), np.count_nonzero(ring._finals.slot >= 0)


def test_no_frame_is_kept_twice():
    """An episode's rows cost a frame each, its end one more; padding costs nothing, or what differs, once."""
    assert kept("repeat") == (0, 50)
    assert kept("zeros") == (2, 50)  # the first push begins two episodes
    assert kept("own") == (3 * 51, 50)


def test_a_column_that_stands_still_costs_no_more_than_one_that_moves():
    """That of a worker which is gone: rows that are no transition and show the same stack again and again."""
    steps = FrameSteps(np.zeros((400, 2), int), first="own", masked=True)
    steps.obs[20:, 1], steps.idle[19:, 1] = steps.obs[20, 1], True
    ring, sizes = Ring(80, 4), []
    steps.feed(ring, [5] * 79, 1, lambda _: sizes.append(ring.nbytes))
    assert ring.count == 40 and np.count_nonzero(ring._frames._owner >= 0) <= 2 * 3 + 5 * 3
    serial, got = everything(ring)
    np.testing.assert_array_equal(got["obs"], steps.obs[355:395, 0])


def test_heads_and_finals_reuse_the_places_of_overwritten_episodes():
    ring, sizes = Ring(40, 4), []
    flags = np.where(np.arange(2000) % 5 == 4, 1, 0).reshape(-1, 2)
    FrameSteps(flags, 4, first="own").feed(ring, [10] * 99, 1, lambda _: sizes.append(ring.nbytes))
    assert max(sizes[6:]) == sizes[6]


def image_store(capacity, columns=8, rows=32, pushes=60):
    """A store of 84x84 stacks of 4, an end in every third block; its bytes after every push."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (rows + 4, columns, 84, 84), dtype=np.uint8)
    frames[rows:] = frames[:4]  # the block goes round
    obs = np.stack([frames[i : i + rows + 1] for i in range(4)], 2)
    zero = np.zeros((rows, columns))
    fields = dict(action=zero.astype(np.int64), reward=zero.astype(np.float32), discount=zero.astype(np.float32))
    store, sizes = Replay(CfgDict(replay_buffer_size=capacity, frame_stack=4)), []
    for number in range(pushes):
        ends = np.array([rows * columns - 3] if number % 3 == 0 else [], np.int64)
        finals = obs[-1, -3:-2] if len(ends) else None
        store.push(Block({"obs": obs[:-1], **fields}, rows, RowLink(obs, ends, finals, columns)))
        sizes.append(store.ring.nbytes)
    return store, sizes


def test_a_step_of_84x84_stacks_costs_at_most_a_frame_and_a_tenth_and_memory_is_flat():
    """Case B52: at most 1.3 frames a step with frame sharing, flat after the first fill."""
    store, sizes = image_store(4000)
    assert store.count == 4000 and store.sample(2)["obs"].dtype == np.uint8
    assert sizes[-1] <= 1.1 * 84 * 84 * 4000
    assert sizes[-1] <= 1.01 * sizes[16]  # full since the sixteenth push


# ---------------------------------------------------------------- what is refused
def one_block(obs, ends=(), finals=None, **fields):
    rows, columns = len(obs) - 1, obs.shape[1]
    fields = dict(reward=np.zeros((rows, columns), np.float32), **fields)
    return Block(dict(obs=obs[:-1], **fields), rows, RowLink(obs, np.array(ends, np.int64), finals, columns))


def stacked(rows=6, columns=2, k=4):
    return FrameSteps(np.zeros((rows, columns), int), k).obs.copy()


def test_an_env_that_does_not_stack_is_named():
    obs = np.arange(7 * 2 * 8).reshape(7, 2, 4, 2)
    with pytest.raises(ValueError, match=r"frame_stack is 4, but an observation of env column 0 is not the one before"):
        store_of(4).push(one_block(obs))
    with pytest.raises(ValueError, match="env column 1 is not the one before"):
        obs = stacked()
        obs[3, 1, 2, 0] += 1
        store_of(4).push(one_block(obs))


def test_a_stack_the_other_way_round_is_named():
    with pytest.raises(ValueError, match="the newest last, one new a step"):
        store_of(4).push(one_block(stacked()[:, :, ::-1]))


def test_a_final_observation_that_does_not_move_on_is_named():
    obs = stacked()
    store_of(4).push(one_block(obs, [5], obs[3, 1:]))  # that of column 1 in row 2
    with pytest.raises(ValueError, match="env column 1 is not the one before"):
        store_of(4).push(one_block(obs, [5], obs[4, 1:]))


def test_an_env_that_stops_stacking_later_is_named_though_few_pixels_are_compared():
    store, _ = image_store(3000, pushes=12)
    rng = np.random.default_rng(1)
    obs = rng.integers(0, 255, (33, 8, 4, 84, 84), dtype=np.uint8)
    zero = np.zeros((32, 8))
    fields = dict(action=zero.astype(np.int64), discount=zero.astype(np.float32))
    with pytest.raises(ValueError, match="not the one before"):
        store.push(one_block(obs, **fields))


@pytest.mark.parametrize("shape, told", [((4,), r"\(4,\)"), ((6, 3), r"\(6, 3\)")])
def test_an_observation_without_stacks_is_named(shape, told):
    with pytest.raises(ValueError, match=f"frame_stack is 4, but the observation has the shape {told}; wanted"):
        store_of(4).push(one_block(np.zeros((3, 2, *shape))))


@pytest.mark.parametrize("wrong", [1, 0, -4, 2.0, True, "4"])
def test_no_number_of_frames_is_named(wrong):
    with pytest.raises(ValueError, match=f"frame_stack is {wrong!r}; wanted the number of stacked frames, at least 2"):
        store_of(wrong)


def test_observations_that_the_policy_replaced_are_refused():
    block = one_block(stacked())
    block["next_obs"] = np.zeros((6, 2, 4, 2))
    with pytest.raises(ValueError, match="the policy stores other observations than those of the env"):
        store_of(4).push(block)


def test_a_state_with_other_stacks_is_named():
    with pytest.raises(ValueError, match=r"frame_stack=4, this one of a run with None"):
        store_of(None).load_state_dict(store_of(4).state_dict())


# ---------------------------------------------------------------- with real wrappers
class Noise(gymnasium.Env):
    """Random images; terminates with probability 0.1."""

    observation_space = gymnasium.spaces.Box(0, 255, (3, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._image(), {}

    def step(self, action):
        return self._image(), 1.0, self.np_random.random() < 0.1, False, {}

    def _image(self):
        return self.np_random.integers(0, 256, (3, 3), np.uint8)


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: FrameStack(env, 4),
        lambda env: gymnasium.wrappers.FrameStackObservation(env, 4),
        lambda env: gymnasium.wrappers.FrameStackObservation(env, 4, padding_type="zero"),
    ],
    ids=["ours", "gymnasium", "zeros"],
)
def test_what_the_wrapper_showed_comes_back(wrap, nstep):
    envs = [wrap(gymnasium.wrappers.TimeLimit(Noise(), 12)) for _ in range(3)]
    policy = make_policy(model=Constant(0.0, 1.0), nstep=nstep, other=dict(eps=dict(start=1.0, end=1.0)))
    collector = make_collector(policy, *envs, n_sample=15)
    plain, frames = store_of(None, 60), store_of(4, 60)
    for _ in range(20):
        collector.collect(lambda items: min(plain.push(items), frames.push(items)))
        assert fingerprint(plain.sample(40)) == fingerprint(frames.sample(40))
    assert frames.ring._frames is not None and frames.nbytes < plain.nbytes
