"""Prioritised replay against formulas and a plain-Python reference: drawing, weights, entry, stale writes, state."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.config import CfgDict, ConfigError
from ding_like.data import Block
from ding_like.entry.build import build, full_config
from ding_like.worker import Learner, Replay
from ding_like.worker.replay_buffer import PrioritizedSampler, SumTree, UniformSampler
from tests.helpers import Steps, chi_limit, chi_square, fingerprint, make_policy, tiny_config


def store(size=20, seed=0, weighted=True, **keys):
    keys = {**Replay.config, "priority_eps": 0.0, "replay_buffer_size": size, **keys}
    return Replay(CfgDict(keys, priority=True, priority_IS_weight=weighted), seed)


def flat(start, n):
    """Items numbered from `start`, as a flat tree."""
    return {"obs": np.arange(start, start + n, dtype=np.float32)[:, None]}


def filled(priority, **keys):
    """A store of flat items with these priorities."""
    made = store(**keys)
    made.push(flat(0, len(priority)))
    made.update(np.arange(len(priority)), np.array(priority, float))
    return made


def leaves(replay):
    return replay.sampler.tree.leaves


# ---------------------------------------------------------------- drawing and weights
def two_sample_chi_square(a, b):
    """Of two samples of one size: about as many as there are cells, fewer one, where both are of one distribution."""
    return float(((a - b) ** 2 / np.maximum(a + b, 1)).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_are_those_of_a_brute_force_sampler(alpha):
    """Blocks of two columns in a ring that wrapped; 30 items with priorities of their own and 10 that just entered."""
    replay, policy = store(size=40, alpha=alpha, priority_eps=0.01), make_policy(nstep=3, fields=["collect"])
    rng = np.random.default_rng(3)
    priority = rng.exponential(size=40) * 3
    priority[30:] = priority[:30].max()
    for number, block in enumerate(Steps(rng.choice([0, 0, 0, 1, 2], (37, 2))).blocks([5] * 7, 3)):
        if number == 6:
            replay.update(np.arange(30, 60), priority[:30])
        replay.push(policy._get_train_sample(block))
    assert (replay.ring.first, replay.ring.end, priority.max() > 1) == (30, 70, True)
    chance = (priority + 0.01) ** alpha
    chance /= chance.sum()
    drawn = np.concatenate([replay.sample(16)["index"] for _ in range(1500)]) - 30
    counts = np.bincount(drawn, minlength=40)
    brute = np.bincount(np.random.default_rng(4).choice(40, len(drawn), p=chance), minlength=40)
    assert two_sample_chi_square(counts, brute) < chi_limit(40)
    assert chi_square(counts, len(drawn) * chance) < chi_limit(40)


def test_a_batch_gives_every_item_its_share_of_it():
    """Stratified: an item of 3 / 8 of the whole is drawn three times by a batch of 8, or once more or less."""
    replay = filled([1, 3, 2, 1, 1], alpha=1.0)
    for _ in range(50):
        counts = np.bincount(replay.sample(8)["index"], minlength=5)
        assert counts[1] == 3 and counts[0] == 1 and counts.tolist() == [1, 3, 2, 1, 1]


def test_weights_are_those_of_the_formula():
    """Case B19: [1.9365, 1.3693, .9682, .6847] over the batch's largest, [1, .7071, .5, .3536]."""
    replay = filled([1, 2, 4, 8], alpha=1.0, beta=0.5, size=4)
    batch = replay.sample(15)
    raw = (4 * np.array([1, 2, 4, 8]) / 15) ** -0.5
    np.testing.assert_allclose(raw, [1.9365, 1.3693, 0.9682, 0.6847], atol=5e-5)
    assert sorted(set(batch["index"].tolist())) == [0, 1, 2, 3]
    np.testing.assert_allclose(batch["weight"], (raw / raw.max())[batch["index"]], rtol=1e-6)
    assert batch["weight"].dtype == np.float32


def test_the_largest_weight_is_that_of_the_batch_not_of_the_buffer():
    replay = filled([1e-6, 2, 4], alpha=1.0, beta=0.5)
    batch = replay.sample(3)
    assert set(batch["index"].tolist()) == {1, 2}
    np.testing.assert_allclose(batch["weight"], np.where(batch["index"] == 1, 1, 0.5**0.5), rtol=1e-6)


def test_beta_rises_to_one_and_alpha_moves_linearly_over_the_batches_drawn():
    replay = filled([1, 16], alpha=1.0, alpha_end=0.5, beta=0.2, anneal_step=4)
    for batch in range(7):
        share = min(1.0, batch / 4)
        drawn = replay.sample(34)
        replay.update(np.array([0, 1]), np.array([1.0, 16.0]))  # at the alpha of after this batch
        before = 16 ** (1.0 - 0.5 * share)
        weight = drawn["weight"][drawn["index"] == 1]
        np.testing.assert_allclose(weight, before ** -(0.2 + 0.8 * share), rtol=1e-6)
        assert leaves(replay)[:2].tolist() == pytest.approx([1, 16 ** (1.0 - 0.5 * min(1.0, (batch + 1) / 4))])


def test_weights_come_only_where_they_are_wanted_and_multiply_those_of_the_items():
    assert "weight" not in filled([1, 2], weighted=False).sample(4)
    replay = store(alpha=1.0, beta=1.0)
    replay.push({**flat(0, 2), "weight": np.float32([3, 5])})
    replay.update(np.arange(2), np.array([1.0, 2.0]))
    batch = replay.sample(30)
    np.testing.assert_allclose(batch["weight"], np.where(batch["index"] == 0, 3, 2.5))


# ---------------------------------------------------------------- what enters, what is written
def test_new_items_enter_with_the_largest_priority_transformed_once():
    """Case B20: leaves 2, sqrt(10), sqrt(10) (faults: 1.7783 where transformed twice, 1 where by default)."""
    replay = filled([4, 10], alpha=0.5)
    replay.push(flat(2, 1))
    assert leaves(replay)[:3].tolist() == [2, 10**0.5, 10**0.5]
    replay.update(np.array([1, 2]), np.array([0.25, 0.25]))
    replay.push(flat(3, 1))
    assert leaves(replay)[:4].tolist() == [2, 0.5, 0.5, 10**0.5]  # the largest of all time, not of what is there


def test_the_first_item_ever_can_be_drawn():
    """Case B20."""
    replay = store(priority_eps=1e-6)
    replay.push(flat(0, 1))
    assert replay.sample(2)["index"].tolist() == [0, 0]


def test_fewer_items_than_a_batch_come_with_replacement():
    """Case B21: 3 items, batch 8, weights at most 1."""
    replay = filled([1, 2, 3])
    batch = replay.sample(8)
    assert len(batch["obs"]) == 8 and set(batch["index"].tolist()) == {0, 1, 2}
    assert batch["weight"].max() == 1
    assert not replay.ready(8)


def test_duplicates_in_a_batch_update_one_leaf_once():
    """Case B21: leaves 1, 1, 1 updated with ids [0, 0, 1] to [5, 5, 2] give 5, 2, 1 and a total of 8 (fault: 12)."""
    replay = filled([1, 1, 1], alpha=1.0)
    replay.update(np.array([0, 0, 1]), np.array([5.0, 5.0, 2.0]))
    assert leaves(replay)[:3].tolist() == [5, 2, 1] and replay.sampler.tree.total == 8


def test_a_write_for_an_item_that_was_overwritten_since_does_nothing():
    replay = filled([1, 2, 3], size=3, alpha=1.0)
    batch = replay.sample(30)
    replay.push(flat(3, 2))  # in the places of items 0 and 1, with the largest priority so far
    assert leaves(replay).tolist() == [3, 3, 3]
    replay.update(batch["index"], np.where(batch["index"] == 2, 0.5, 9.0))
    assert leaves(replay).tolist() == [3, 3, 0.5] and replay.sampler.maximum == 3
    replay.push(flat(5, 4))
    replay.update(batch["index"], np.full(30, 9.0))  # of which none is left
    assert leaves(replay).tolist() == [3, 3, 3]


def test_an_index_is_the_serial_number_of_its_item():
    replay = store(size=5)
    for start in range(0, 23, 4):
        replay.push(flat(start, 4))
        batch = replay.sample(50)
        assert batch["index"].dtype == np.int64
        np.testing.assert_array_equal(batch["index"], batch["obs"][:, 0])


@pytest.mark.parametrize(
    ("priority", "error", "says"),
    [
        ([1, np.nan, 2], FloatingPointError, r"priority\[1\] \(1 of 3 are wrong\): got nan, wanted a finite"),
        ([1, 2, np.inf], FloatingPointError, r"priority\[2\] .*: got inf, wanted a finite number"),
        ([1, -0.5, -1], ValueError, r"priority\[1\] \(2 of 3 are wrong\): got -0.5, wanted at least 0"),
        ([1, 2], ValueError, r"priority has shape \(2,\); wanted one number an item of the batch, \(3,\)"),
        ([[1], [2], [3]], ValueError, r"priority has shape \(3, 1\)"),
    ],
)
def test_what_is_no_priority_is_named_and_nothing_is_written(priority, error, says):
    replay = filled([1, 2, 3], alpha=1.0)
    with pytest.raises(error, match=says):
        replay.update(np.arange(3), torch.tensor(priority, dtype=torch.float32))
    assert leaves(replay)[:3].tolist() == [1, 2, 3] and replay.sampler.maximum == 3


@pytest.mark.parametrize("priority", [["1", "2", "3"], [1j, 2, 3], torch.tensor([1j, 2, 3]), [1, [2], 3], None])
def test_what_is_no_real_number_is_named(priority):
    replay = filled([1, 2, 3], alpha=1.0)
    with pytest.raises(ValueError, match=r"priority has dtype|priority makes no array"):
        replay.update(np.arange(3), priority)
    assert leaves(replay)[:3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_priorities_of_every_kind_of_tensor_are_written(dtype):
    replay = filled([1, 2, 3], alpha=1.0)
    replay.update(np.arange(3), torch.tensor([4.0, 0.0, 16.0]).to(dtype))
    assert leaves(replay)[:3].tolist() == [4, 0, 16]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_priorities_whose_sum_overflows_are_named_and_the_largest_others_are_drawn(alpha):
    replay = filled([1] * 8, size=8, alpha=alpha)
    with pytest.raises(FloatingPointError, match=r"priority\[0\] \(8 of 8 .*got 1e\+308, wanted one below 1\.12e\+307"):
        replay.update(np.arange(8), np.full(8, 1e308))
    replay.update(np.arange(8), np.full(8, 1.12e307))
    assert np.isfinite(replay.sampler.tree.total) and (replay.sample(8)["weight"] == 1).all()


def test_priorities_that_are_all_zero_are_named():
    replay = filled([0, 0])
    with pytest.raises(ValueError, match=r"every item .* priority 0; set .*priority_eps above 0"):
        replay.sample(1)
    with pytest.raises(ValueError, match="replay buffer is empty"):
        store().sample(1)


def test_without_alpha_or_with_an_epsilon_a_priority_of_zero_can_be_drawn():
    for replay in (filled([0, 0, 1], alpha=0.0), filled([0, 0, 0], priority_eps=1e-6)):
        assert set(replay.sample(9)["index"].tolist()) == {0, 1, 2}


# ---------------------------------------------------------------- against a reference
class Reference:
    """A dictionary from serial number to leaf, and the rules in words."""

    def __init__(self, alpha, eps):
        self.alpha, self.eps, self.leaf, self.maximum = alpha, eps, {}, 1.0

    def push(self, serials, real, first):
        for serial, counts in zip(serials, real):
            self.leaf[serial] = np.power(self.maximum + self.eps, self.alpha) if counts else 0.0
        self.leaf = {serial: leaf for serial, leaf in self.leaf.items() if serial >= first}

    def update(self, index, priority):
        for i, p in zip(index.tolist(), priority.tolist()):
            if self.leaf.get(i, 0) > 0:
                self.leaf[i] = np.power(p + self.eps, self.alpha)
                self.maximum = max(self.maximum, p)

    def check(self, replay):
        found, places = leaves(replay), replay.ring.places
        wanted = np.zeros(places)
        for serial, leaf in self.leaf.items():
            wanted[serial % places] = leaf
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
        np.testing.assert_array_equal(found > 0, wanted > 0)
        fresh = SumTree(places)
        fresh.load(found)
        np.testing.assert_array_equal(replay.sampler.tree._nodes, fresh._nodes)


@given(st.data())
def test_pushes_draws_writes_stale_ones_and_saved_states_agree_with_a_dictionary(data):
    """Blocks with rows that are no transition, n-step look-ahead, wraps; states are saved and loaded in between."""
    columns, nstep = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=10))
    capacity, rows = data.draw(st.integers(4, 9)), sum(sizes) + nstep - 1
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    masked, keys = data.draw(st.booleans()), dict(size=capacity * columns, alpha=0.6, priority_eps=0.1)
    mask = (rng.random((rows, columns)) < 0.7).astype(np.float32) if masked else None
    replay, reference = store(**keys), Reference(0.6, 0.1)
    policy, drawn, start = make_policy(nstep=nstep, fields=["collect"]), [], 0
    for size, block in zip(sizes, Steps(rng.choice([0, 0, 1], (rows, columns))).blocks(sizes, nstep)):
        items = policy._get_train_sample(block)
        real = np.ones((size, columns))
        if masked:
            real = mask[start : start + size]
            items = Block({**dict(dict.items(items)), "mask": mask[start : start + size + nstep - 1]}, size, items.link)
        replay.push(items)
        reference.push(range(start * columns, (start + size) * columns), real.ravel() > 0, replay.ring.first)
        start += size
        reference.check(replay)
        if replay.count:
            batch = replay.sample(7)
            assert all(reference.leaf[i] > 0 for i in batch["index"].tolist())
            at = 1000 * (batch["index"] % columns) + batch["index"] // columns
            np.testing.assert_array_equal(batch["obs"][:, 0], at)
            drawn.append(batch["index"])
        if drawn and data.draw(st.booleans()):
            index = data.draw(st.sampled_from([*drawn, rng.integers(-5, replay.ring.end + 5, 7)]))
            priority = rng.exponential(size=7)
            replay.update(index, priority)
            reference.update(index, priority)
            reference.check(replay)
        if data.draw(st.booleans()):
            other = store(**keys, seed=5)
            other.load_state_dict(copy.deepcopy(replay.state_dict()))
            if replay.count:
                assert fingerprint(dict(copy.deepcopy(other).sample(5))) == fingerprint(
                    dict(copy.deepcopy(replay).sample(5))
                )
            replay = other


# ---------------------------------------------------------------- state
@pytest.mark.parametrize("count", [0, 3, 10, 23])
def test_a_restored_store_goes_on_as_the_first(count):
    """Before anything was pushed, half full, full, and wrapped."""
    made, other = store(size=10, anneal_step=5), store(size=10, anneal_step=5, seed=1)
    for start in range(0, count, 3):
        made.push(flat(start, min(3, count - start)))
        made.update(made.sample(4)["index"], np.arange(4.0))
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    for replay in (made, other):
        replay.push(flat(count, 4))
        replay.update(replay.sample(3)["index"], np.array([2.0, 0.5, 7.0]))
    assert fingerprint(dict(made.sample(9))) == fingerprint(dict(other.sample(9)))
    assert fingerprint(made.state_dict()) == fingerprint(other.state_dict())


def test_a_state_is_as_small_as_what_was_written_and_refers_to_it():
    replay = filled([1.0] * 10, size=1_000_000)
    state = replay.state_dict()
    assert len(state["sampler"]["leaves"]) == 10
    assert np.shares_memory(state["sampler"]["leaves"], leaves(replay))


def test_a_state_of_the_other_way_of_drawing_is_named():
    uniform = Replay(CfgDict(Replay.config))
    with pytest.raises(ValueError, match=r"of a run with policy.priority=True, this one of a run with False"):
        uniform.load_state_dict(filled([1.0]).state_dict())


# ---------------------------------------------------------------- config, policy, learner
def store_of(config, *sets):
    cfg = full_config(config, sets=list(sets))
    return Replay(cfg.policy.other.replay_buffer)


def test_one_switch_makes_policy_and_store_prioritised():
    assert isinstance(store_of(tiny_config()).sampler, UniformSampler)
    made = store_of(tiny_config(), "policy.priority=True", "policy.other.replay_buffer.alpha=0.5").sampler
    assert isinstance(made, PrioritizedSampler) and (made._alpha, made._weighted) == (0.5, True)
    assert not store_of(tiny_config(priority=True, priority_IS_weight=False)).sampler._weighted


def test_di_engines_keys_of_the_store_mean_what_they_meant():
    section = dict(
        priority=True,
        priority_IS_weight=True,
        priority_power_factor=0.7,
        IS_weight_power_factor=0.3,
        IS_weight_anneal_train_iter=50,
        priority_max_limit=1000,
    )
    main, create = tiny_config(other=dict(replay_buffer=section))
    create["replay_buffer"] = dict(type="advanced")
    made = store_of((main, create)).sampler
    assert (made._alpha, made._beta, made._anneal_step, made._weighted) == (0.7, 0.3, 50, True)
    with pytest.raises(ConfigError, match=r"replay_buffer.priority is True but policy.priority is False; .* keep one"):
        full_config(tiny_config(priority=False, other=dict(replay_buffer=dict(priority=True))))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("policy.other.replay_buffer.alpha=1.5", "alpha: got 1.5, wanted a number from 0 to 1"),
        ("policy.other.replay_buffer.alpha_end=-1", "alpha_end: got -1, wanted a number from 0 to 1, or None"),
        ("policy.other.replay_buffer.beta=-0.1", "beta: got -0.1, wanted a number from 0 to 1"),
        ("policy.other.replay_buffer.anneal_step=0", "anneal_step: got 0, wanted an integer of at least 1"),
        ("policy.other.replay_buffer.priority_eps=-1", "priority_eps: got -1"),
        ("policy.priority=sometimes", "policy.priority: got 'sometimes'"),
        ("policy.priority_IS_weight=3", "policy.priority_IS_weight: got 3, wanted one of True, False, None"),
        (
            "policy.priority_IS_weight=True",
            "priority_IS_weight: got True, wanted None or False where",
        ),
    ],
)
def test_values_out_of_range_are_named(override, says):
    with pytest.raises(ConfigError) as caught:
        full_config(tiny_config(), sets=[override])
    assert says in str(caught.value)


def test_the_loop_writes_the_priority_of_every_sampled_item_back():
    parts = build(full_config(tiny_config(priority=True, other=dict(replay_buffer=dict(alpha=1.0)))), seed=0)
    learner, replay = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode), parts.store
    try:
        for _ in range(5):
            parts.collector.collect(replay.push)
            for batch in replay.batches(2, 8):
                info = learner.train(batch, parts.collector.envstep)
                np.testing.assert_allclose(info["priority"], abs(info["td_error"]))
                assert len(info["priority"]) == 8
                replay.update(batch["index"], info["priority"])
                written = leaves(replay)[batch["index"] % replay.ring.places]
                last = dict(zip(batch["index"].tolist(), info["priority"].tolist()))
                np.testing.assert_allclose(written, [last[i] + 1e-6 for i in batch["index"].tolist()])
        assert learner.train_iter >= 6
    finally:
        parts.close()
