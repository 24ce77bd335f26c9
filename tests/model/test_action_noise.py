"""Exploration of deterministic and squashed policies, and the memory of a critic while collecting."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.data import tree_leaves
from ding_like.model import model_wrap
from ding_like.model.template.qac import QAC

N = 20_000


class Gaussians(nn.Module):
    """The observation is mu; sigma is half."""

    def forward(self, x):
        return {"logit": {"mu": x, "sigma": torch.full_like(x, 0.5)}}

    def numpy_forward(self, x):
        return {"logit": {"mu": x, "sigma": np.full_like(x, 0.5)}}


def uniforms(n=N, width=4):
    return np.random.default_rng(0).random((n, width))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_noise_has_its_deviation_and_actions_stay_in_the_box(kind):
    wrapped = model_wrap(Gaussians(), wrapper_name="action_noise", width=4, noise_sigma=0.2)
    centre, corner = kind(np.zeros((N, 2), np.float32)), kind(np.float32([[0.95, -0.95]]).repeat(N, 0))
    action = np.asarray(wrapped.forward(centre, noise=uniforms())["action"])
    assert action.std(0) == pytest.approx(0.2, rel=0.03) and abs(action.mean()) < 0.005
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03
    action = np.asarray(wrapped.forward(corner, noise=uniforms())["action"])
    assert action.max() == 1 and action.min() == -1
    quiet = wrapped.forward(corner, noise_sigma=0.0, noise=uniforms())["action"]
    assert np.array_equal(np.asarray(quiet), np.asarray(corner))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_squashed_samples_are_the_tanh_of_normal_ones(kind):
    plain = model_wrap(Gaussians(), wrapper_name="reparam_sample", width=4)
    squashed = model_wrap(Gaussians(), wrapper_name="reparam_sample", width=4, squash=True)
    mu = kind(np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32))
    a, b = (np.asarray(w.forward(mu, noise=uniforms(50))["action"]) for w in (plain, squashed))
    np.testing.assert_allclose(np.tanh(a), b, rtol=1e-5)
    best = model_wrap(Gaussians(), wrapper_name="deterministic_sample", squash=True).forward(mu)["action"]
    np.testing.assert_allclose(np.asarray(best), np.tanh(np.asarray(mu)), rtol=1e-6)


def test_noise_of_another_width_is_refused():
    wrapped = model_wrap(Gaussians(), wrapper_name="action_noise", width=2)
    with pytest.raises(ValueError, match=r"noise has shape \(3, 2\); wanted \[B, 4\]"):
        wrapped.forward(np.zeros((3, 2), np.float32), noise=uniforms(3, 2))


@pytest.mark.parametrize("as_numpy", [True, False])
def test_a_critics_state_moves_with_the_action_taken(as_numpy):
    torch.manual_seed(0)
    net = QAC(3, 2, lstm_type="gru", actor_head_hidden_size=8, critic_head_hidden_size=8)
    kind = np.asarray if as_numpy else torch.as_tensor
    wrapped = model_wrap(net, wrapper_name="hidden_state", save_prev_state=True)
    wrapped = model_wrap(wrapped, wrapper_name="reparam_sample", width=4, squash=True)
    wrapped = model_wrap(wrapped, wrapper_name="critic_memory")
    state, rng = net.initial_state(2), np.random.default_rng(0)
    for given in (None, None, np.float32([[0.3, -1], [0, 1]])):
        obs = rng.normal(size=(2, 3)).astype(np.float32)
        with torch.no_grad():
            out = wrapped.forward({"obs": kind(obs)}, inference=True, mode="compute_actor", action=given)
            for a, b in zip(tree_leaves(out["prev_state"]), tree_leaves(state), strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-6)
            if given is not None:
                assert np.array_equal(np.asarray(out["action"]), given)
            inputs = {"obs": torch.as_tensor(obs), "action": torch.as_tensor(out["action"]), "prev_state": state}
            state = net(inputs, inference=True)["next_state"]
            state = net({**inputs, "prev_state": state}, mode="compute_critic", inference=True)["next_state"]
