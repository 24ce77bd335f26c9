"""Running statistics equal float64 mean and variance of everything fed; they are part of the model's state."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data import torchify
from ding_like.model.normalizer import NormalizedModel, RunningStatistics
from ding_like.model.template.q_learning import DQN
from tests.envs.toys import Count
from tests.helpers import fingerprint, make_collector, make_manager, make_policy


class Show(torch.nn.Module):
    """A model that returns what it is given."""

    def forward(self, x, **kwargs):
        return {"seen": x, **kwargs}


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 2**31), st.floats(-1e3, 1e3))
def test_statistics_equal_mean_and_variance_of_all_rows_however_split(sizes, seed, shift):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(shift, rng.uniform(0.1, 10), (n, 3)) for n in sizes]
    statistics = RunningStatistics((3,))
    for part in parts:
        statistics.update(part)
    rows = np.concatenate(parts)
    np.testing.assert_allclose(statistics.mean.numpy(), rows.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(statistics.var.numpy(), rows.var(0), rtol=1e-6, atol=1e-9)
    assert statistics.count == len(rows)


def test_no_rows_change_nothing():
    statistics = RunningStatistics((3,))
    for _ in range(2):
        before = fingerprint(statistics.state_dict())
        statistics.update(np.zeros((0, 3)))
        assert fingerprint(statistics.state_dict()) == before
        statistics.update(np.random.default_rng(0).normal(size=(4, 3)))


def test_float32_rows_far_from_zero_keep_their_variance():
    rows = (1e4 + np.random.default_rng(0).normal(size=(10000, 1))).astype(np.float32)
    statistics = RunningStatistics((1,))
    for part in np.split(rows, 100):
        statistics.update(part)
    np.testing.assert_allclose(statistics.var.numpy(), rows.astype(np.float64).var(0), rtol=1e-9)


def test_the_inner_model_sees_normalised_and_clipped_vectors():
    model = NormalizedModel(Show(), 2, clip=1.5)
    model.update(np.array([[0.0, 10.0], [2.0, 30.0]]))  # mean [1, 20], standard deviation [1, 10]
    seen = model(torch.tensor([[2.0, 15.0], [-9.0, 99.0]]))["seen"]
    torch.testing.assert_close(seen, torch.tensor([[1.0, -0.5], [-1.5, 1.5]]))
    assert seen.dtype == torch.float32


def test_before_any_row_observations_pass_unchanged():
    x = torch.tensor([[0.5, -3.0]])
    torch.testing.assert_close(NormalizedModel(Show(), 2)(x)["seen"], x)


def test_images_and_one_hot_parts_pass_unchanged():
    spec = {"v": 2, "pic": [1, 4, 4], "n": {"@one_hot": [3]}, "t": {"@tuple": [[2, 2], {"@one_hot": [2]}]}}
    model = NormalizedModel(Show(), spec)
    obs = {
        "v": np.full((5, 2), 7.0),
        "pic": np.full((5, 1, 4, 4), 9, np.uint8),
        "n": np.arange(5) % 3,
        "t": (np.full((5, 2, 2), 3.0), np.arange(5) % 2),
    }
    model.update(obs)
    seen = model(torchify(obs))["seen"]
    assert (seen["v"] == 0).all() and (seen["t"][0] == 0).all()
    assert (seen["pic"] == 9).all() and seen["n"].tolist() == [0, 1, 2, 0, 1] and seen["t"][1].dtype == torch.int64


def test_time_and_column_axes_both_count():
    a, b = NormalizedModel(Show(), 2), NormalizedModel(Show(), 2)
    obs = np.random.default_rng(0).normal(size=(4, 3, 2))
    a.update(obs)
    b.update(obs.reshape(12, 2))
    assert fingerprint(a.state_dict()) == fingerprint(b.state_dict())


def test_a_recurrent_input_has_its_obs_normalised():
    model = NormalizedModel(Show(), 1)
    model.update(np.array([[1.0], [3.0]]))
    out = model({"obs": torch.tensor([[3.0]]), "prev_state": "state"}, inference=True)
    assert out["seen"]["obs"].item() == pytest.approx(1.0) and out["seen"]["prev_state"] == "state"
    assert out["inference"] is True


@pytest.mark.parametrize("spec", [{"a": {"b": 1}, "a_b": 1}, {"type": 1, "x.y": 1}])
def test_every_part_has_statistics_of_its_own(spec):
    model = NormalizedModel(Show(), spec)
    assert len(model.statistics) == 2


def test_an_observation_without_vectors_is_refused():
    with pytest.raises(ValueError, match="has no vector part to normalise"):
        NormalizedModel(Show(), [1, 4, 4])


def test_statistics_are_in_the_state_dict_and_load():
    a, b = NormalizedModel(DQN(2, 2), 2), NormalizedModel(DQN(2, 2), 2)
    a.update(np.random.default_rng(0).normal(5, 2, (50, 2)))
    assert [k.split(".")[-1] for k in a.state_dict() if k.startswith("statistics")] == ["mean", "var", "count"]
    b.load_state_dict(a.state_dict())
    x = torch.rand(3, 2)
    torch.testing.assert_close(a(x)["logit"], b(x)["logit"], rtol=0, atol=0)


def test_acting_leaves_nothing_that_hinders_gradients_or_goes_stale():
    model = NormalizedModel(Show(), 2)
    model.update(np.array([[0.0, 10.0], [2.0, 30.0]]))
    x = torch.tensor([[2.0, 15.0]], requires_grad=True)
    with torch.inference_mode():
        model(x.detach())
    model(x)["seen"].sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[1.0, 0.1]]))
    for change in (
        lambda m: m.update(np.array([[1.0, 20.0]])),
        lambda m: m.load_state_dict(NormalizedModel(Show(), 2).state_dict()),
        lambda m: m.load_state_dict(fresh().state_dict(), assign=True),
    ):
        change(model)
        wanted = NormalizedModel(Show(), 2)
        wanted.load_state_dict(model.state_dict())
        torch.testing.assert_close(model(x)["seen"], wanted(x)["seen"], rtol=0, atol=0)


def fresh():
    made = NormalizedModel(Show(), 2)
    made.update(np.array([[5.0, 5.0], [6.0, 7.0]]))
    return made


@pytest.mark.parametrize("nstep", [1, 3])
def test_a_policy_learns_the_statistics_of_what_it_collected_and_evaluation_leaves_them(nstep):
    """Case B54: every row counts once, before the next collect; evaluation changes nothing."""
    policy = make_policy(norm_obs={"use_norm": True}, nstep=nstep)
    model = policy.get_model()
    collector = make_collector(policy, Count(4), n_sample=6)
    statistics = model.statistics[0]
    collector.collect(lambda items: items.starts)
    assert statistics.count == 0
    for rows in (6 + nstep - 1, 12 + nstep - 1):
        collector.collect(lambda items: items.starts)
        assert statistics.count == rows
        assert statistics.mean.item() == pytest.approx(np.mean(np.arange(rows) % 4))
    before = fingerprint(model.state_dict())
    manager = make_manager(Count(7), role="eval")
    manager.launch(0)
    for _ in range(5):
        manager.step(policy.eval_mode.forward(manager.ready_obs)["action"])
    assert fingerprint(model.state_dict()) == before


def test_a_model_of_the_users_own_is_normalised_too():
    policy = make_policy(model=DQN(1, 2, [8]), norm_obs={"use_norm": True})
    assert isinstance(policy.get_model(), NormalizedModel)


def test_nothing_is_observed_between_collecting_and_learning_also_where_the_next_block_is_begun_then():
    policy = make_policy(model=None, norm_obs=dict(use_norm=True))
    collector, counts = make_collector(policy, Count(5), Count(7), n_sample=8), []
    for _ in range(3):
        collector.collect()
        counts.append(int(policy.get_model().statistics[0].count))
        collector.begin()
        assert int(policy.get_model().statistics[0].count) == counts[-1]
    assert counts == [0, 8, 16]
