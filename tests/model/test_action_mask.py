"""Action masks: forbidden actions have the lowest logit, are never drawn, and exploration is uniform over the rest."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.data import ArrayDict
from ding_like.model import model_wrap
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.q_learning import DQN
from ding_like.model.template.vac import VAC
from tests.helpers import chi_limit, chi_square

LOWEST = torch.finfo(torch.float32).min
N = 100_000
DISCRETE = ["argmax_sample", "deterministic_sample", "eps_greedy_sample", "multinomial_sample"]


class Logits(nn.Module):
    """The logit is in the observation; a tuple of them where `sizes` are given."""

    def __init__(self, sizes=None):
        super().__init__()
        self.sizes = sizes

    def forward(self, x):
        logit = (x["obs"] if "prev_state" in x else x)["logit"]
        return {"logit": logit if self.sizes is None else logit.split(self.sizes, -1)}


def observe(logit, mask, n=None):
    logit, mask = torch.as_tensor(np.float32(logit)), torch.as_tensor(np.asarray(mask))
    if n is not None:
        logit, mask = logit.expand(n, -1), mask.expand(n, -1)
    return ArrayDict(logit=logit, action_mask=mask)


def uniforms(n, width=1, seed=0):
    return np.random.default_rng(seed).random((n, width))


def act(name, obs, model=None, **kwargs):
    width = {"width": len(model.sizes)} if model is not None and name == "multinomial_sample" else {}
    out = model_wrap(model or Logits(), wrapper_name=name, **width).forward(obs, **kwargs)
    return out["action"].numpy()


# ---------------------------------------------------------------- base
@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.float32])
def test_forbidden_logits_become_the_lowest_number_and_others_stay(kind):
    mask = np.array([[1, 0, 1], [0, 1, 0]]).astype(kind)
    out = model_wrap(Logits()).forward(observe([[1, 2, 3], [4, 5, 6]], mask))
    assert out["logit"].tolist() == [[1, LOWEST, 3], [LOWEST, 5, LOWEST]]


def test_masks_of_several_actions_lie_side_by_side():
    out = model_wrap(Logits([2, 3])).forward(observe([[1, 2, 3, 4, 5]], [[0, 1, 1, 1, 0]]))
    assert [part.tolist() for part in out["logit"]] == [[[LOWEST, 2]], [[3, 4, LOWEST]]]


def test_the_mask_is_found_beside_a_recurrent_state():
    obs = observe([[1, 2, 3]], [[1, 1, 0]])
    out = model_wrap(Logits()).forward({"obs": obs, "prev_state": None})
    assert out["logit"].tolist() == [[1, 2, LOWEST]]


def test_the_learner_may_see_rows_that_allow_nothing():
    """Observations after the end of an episode have such masks; gradients stay finite."""
    net = VAC({"pos": 2}, 3)
    obs = ArrayDict(pos=torch.rand(4, 2, 2), action_mask=torch.zeros(4, 2, 3, dtype=torch.int8))  # [T, B]
    out = model_wrap(net).forward(obs)
    assert out["logit"].shape == (4, 2, 3) and (out["logit"] == LOWEST).all()
    (torch.log_softmax(out["logit"], -1).sum() + out["value"].sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_masks_reach_q_values_and_leave_values_alone():
    mask = torch.tensor([[1, 0], [0, 1]])
    obs = ArrayDict(pos=torch.rand(2, 3), action_mask=mask)
    normal = NormalizedModel(DQN({"pos": 3}, 2), {"pos": 3})
    assert ((model_wrap(normal).forward(obs)["logit"] == LOWEST) == (mask == 0)).all()
    critic = model_wrap(VAC({"pos": 3}, 2)).forward(obs, mode="compute_critic")
    assert list(critic) == ["value"] and critic["value"].shape == (2,)


def test_a_mask_on_continuous_actions_is_refused():
    obs = ArrayDict(pos=torch.rand(2, 3), action_mask=torch.ones(2, 2))
    with pytest.raises(ValueError, match="action_mask, but the actions are continuous"):
        model_wrap(VAC({"pos": 3}, 2, "continuous")).forward(obs)


@pytest.mark.parametrize("name", ["base", *DISCRETE])
def test_a_mask_of_another_shape_is_named_with_both(name):
    with pytest.raises(ValueError, match=r"action_mask.*2, 2\D.*2, 3\D"):
        model_wrap(Logits(), wrapper_name=name).forward(observe(np.zeros((2, 3)), np.ones((2, 2))))
    with pytest.raises(ValueError, match=r"action_mask.*2, 4\D.*2, 5\D"):
        model_wrap(Logits([2, 3]), wrapper_name=name).forward(observe(np.zeros((2, 5)), np.ones((2, 4))))


# ---------------------------------------------------------------- sampling
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
def test_multinomial_draws_allowed_actions_alone_by_their_share(alpha):
    logit, mask = np.array([2.0, 0.5, 9.0, -1.0, 1.0]), np.array([0, 1, 0, 1, 1])
    action = act("multinomial_sample", observe(logit, mask, N), alpha=alpha, noise=uniforms(N))
    counts = np.bincount(action, minlength=5)
    assert counts[mask == 0].tolist() == [0, 0]
    weight = np.exp(logit[mask == 1] / alpha)
    assert chi_square(counts[mask == 1], N * weight / weight.sum()) < chi_limit(3)


def test_extreme_uniforms_draw_no_forbidden_action():
    noise = np.array([[0.0], [np.nextafter(1.0, 0.0)], [1 - 2**-25], [5e-324]])
    for allowed in range(4):
        mask = np.eye(4, dtype=bool)[allowed]
        assert (act("multinomial_sample", observe([5.0, 9, -80, 9], mask, 4), noise=noise) == allowed).all()


def test_masks_may_differ_by_column():
    rng = np.random.default_rng(3)
    mask = rng.random((5000, 6)) < 0.4
    mask[np.arange(5000), rng.integers(6, size=5000)] = True
    obs = observe(rng.normal(size=(5000, 6)), mask)
    for name, kwargs in (
        *((name, {}) for name in DISCRETE if "eps" not in name),
        ("eps_greedy_sample", {"eps": 0.5}),
        ("eps_greedy_sample", {"eps": 1.0}),
    ):
        action = act(name, obs, **kwargs)
        assert mask[np.arange(5000), action].all()
        assert len(np.unique(action)) == 6


def test_several_actions_are_masked_each_by_its_part():
    mask = [1, 0, 0, 1, 1]
    drawn = act("multinomial_sample", observe([0, 9, 9, 0, 1], mask, N), Logits([2, 3]), noise=uniforms(N, 2))
    assert (drawn[:, 0] == 0).all()
    share = 1 / (1 + np.e)
    assert chi_square(np.bincount(drawn[:, 1], minlength=3)[1:], [N * share, N * (1 - share)]) < chi_limit(2)
    for name in ("argmax_sample", "deterministic_sample"):
        assert act(name, observe([0, 9, 9, 0, 1], mask, 2), Logits([2, 3])).tolist() == [[0, 2]] * 2


def test_exploration_is_uniform_over_the_allowed_actions():
    """Greedy with probability 0.6 + 0.4 / 3, each other allowed one 0.4 / 3, forbidden ones never."""
    obs = observe([1.0, 7.0, 9.0, 2.0, 0.0], [1, 0, 0, 1, 1], N)
    counts = np.bincount(act("eps_greedy_sample", obs, eps=0.4, noise=uniforms(N, 2)), minlength=5)
    assert counts[[1, 2]].tolist() == [0, 0]
    other = 0.4 / 3
    assert chi_square(counts[[0, 3, 4]], N * np.array([other, 0.6 + other, other])) < chi_limit(3)


def test_exploration_takes_one_number_for_the_choice():
    noise = np.column_stack([np.zeros(4), [0.0, 0.49, 0.51, np.nextafter(1.0, 0.0)]])
    obs = observe(np.zeros(4), [0, 1, 0, 1], 4)
    assert act("eps_greedy_sample", obs, eps=1.0, noise=noise).tolist() == [1, 1, 3, 3]


def test_a_mask_that_allows_everything_changes_nothing():
    logit, noise = np.random.default_rng(4).normal(size=(500, 3)), uniforms(500, 2)
    obs = observe(logit, np.ones((500, 3), bool))
    free = ArrayDict(logit=obs["logit"])
    for name, kwargs in (
        ("argmax_sample", {}),
        ("eps_greedy_sample", {"eps": 0.5, "noise": noise}),
        ("multinomial_sample", {"noise": noise[:, :1]}),
    ):
        np.testing.assert_array_equal(act(name, obs, **kwargs), act(name, free, **kwargs))


@pytest.mark.parametrize("name", DISCRETE)
def test_columns_that_allow_no_action_are_named(name):
    mask = np.ones((5, 3), bool)
    mask[[1, 3]] = False
    with pytest.raises(ValueError, match=r"action_mask: no action is allowed in column\(s\) \[1, 3\]"):
        act(name, observe(np.zeros((5, 3)), mask))


@pytest.mark.parametrize("name", ["argmax_sample", "deterministic_sample", "multinomial_sample"])
def test_one_of_several_actions_without_a_choice_is_enough_to_fail(name):
    mask = np.ones((3, 5), bool)
    mask[2, 2:] = False
    with pytest.raises(ValueError, match=r"column\(s\) \[2\]"):
        act(name, observe(np.zeros((3, 5)), mask), Logits([2, 3]))


def test_masked_actor_critic_acts_and_learns_in_one_piece():
    net = VAC({"pos": 3}, [2, 3], "multi_discrete", encoder_hidden_size_list=[8])
    mask = torch.tensor([1, 0, 0, 1, 1]).expand(64, -1)
    obs = ArrayDict(pos=torch.rand(64, 3), action_mask=mask)
    out = model_wrap(net, wrapper_name="multinomial_sample", width=2).forward(obs, noise=uniforms(64, 2))
    assert (out["action"][:, 0] == 0).all() and (out["action"][:, 1] > 0).all()
    loss = sum(torch.log_softmax(part, -1)[:, -1].clamp(min=-50).sum() for part in out["logit"])
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.actor.parameters())
