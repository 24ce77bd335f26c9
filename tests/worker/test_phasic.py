"""The store of phasic policy gradient: rollouts as ever, and all of a phase once more."""

import numpy as np
import pytest

from ding_like.config import CfgDict
from ding_like.data import ArrayDict
from ding_like.worker.replay_buffer import PhasicRollout, Rollout

CFG = CfgDict(policy_phases=3, aux_epochs=2, aux_batch_size=5)


def items(first, n=4):
    at = np.arange(first, first + n)
    return ArrayDict(obs=at[:, None].astype(np.float32), reward=at)


def rounds(store, count, first=0, taken=None):
    """The batches of so many rollouts, of policy and of auxiliary phases; `taken` of a round at most."""
    policy, auxiliary = [], []
    for i in range(count):
        store.push(items(4 * (first + i)))
        for j, batch in enumerate(store.batches(1, 2)):
            if j == taken:
                break
            (auxiliary if "auxiliary" in batch else policy).append(batch)
    return policy, auxiliary


def test_policy_phases_are_those_of_a_rollout():
    policy, _ = rounds(PhasicRollout(CFG, 3), 3)
    wanted, _ = rounds(Rollout(None, 3), 3)
    assert [b["reward"].tolist() for b in policy] == [b["reward"].tolist() for b in wanted]


def test_an_auxiliary_phase_passes_all_of_its_rollouts_and_nothing_before():
    _, batches = rounds(PhasicRollout(CFG), 6)
    assert len(batches) == 2 * 2 * 3  # phases, epochs, minibatches of at most 5 of 12
    for phase in (0, 1):
        for epoch in (0, 1):
            part = batches[6 * phase + 3 * epoch :][:3]
            seen = np.concatenate([b["reward"] for b in part])
            assert sorted(seen) == list(range(12 * phase, 12 * phase + 12))
    for batch in batches:
        assert "index" not in batch and batch["auxiliary"].shape == batch["reward"].shape == (4,)
        np.testing.assert_array_equal(batch["obs"][:, 0], batch["reward"])


def test_a_rollout_whose_updates_were_broken_off_is_in_the_phase_all_the_same():
    store = PhasicRollout(CFG)
    rounds(store, 2, taken=1)
    _, batches = rounds(store, 1, first=2)
    assert set(np.concatenate([b["reward"] for b in batches])) == set(range(12))


def test_no_new_rollout_is_no_phase():
    store = PhasicRollout(CFG)
    rounds(store, 2)
    assert list(store.batches(1, 2)) == [] and store.count == 0


@pytest.mark.parametrize("before", [0, 1, 2, 4])
def test_what_follows_a_state_is_what_would_have_followed(before):
    one, other = PhasicRollout(CFG, 1), PhasicRollout(CFG, 2)
    rounds(one, before)
    other.load_state_dict(one.state_dict())
    a, b = (rounds(store, 5, first=before) for store in (one, other))
    for mine, its in zip(a, b):
        assert [x["reward"].tolist() for x in mine] == [x["reward"].tolist() for x in its]
