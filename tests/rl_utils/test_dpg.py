"""Losses of critics and deterministic policies against sums written out, smoothing within its bounds."""

import numpy as np
import pytest
import torch

from ding_like.rl_utils.action_scale import ActionScale
from ding_like.rl_utils.dpg import (
    critic_loss,
    deterministic_policy_loss,
    smoothed_action,
    v_1step_td_data,
    v_1step_td_error,
    v_nstep_td_data,
    v_nstep_td_error,
)


def random(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("lead", [(5,), (4, 3)])
def test_critic_loss_equals_the_sum_written_out_and_leaves_the_target_alone(lead):
    q, target = random(2, *lead).requires_grad_(), random(*lead, seed=1).requires_grad_()
    loss = critic_loss(q, target)
    for i in np.ndindex(lead):
        wanted = sum(0.5 * (q[(k, *i)].item() - target[i].item()) ** 2 for k in range(2))
        assert loss[i].item() == pytest.approx(wanted, abs=1e-12)
    assert torch.autograd.gradcheck(lambda q: critic_loss(q, target.detach()), (q,))
    loss.sum().backward()
    assert target.grad is None
    with pytest.raises(ValueError, match=r"target has shape \(5, 1\); wanted \(5,\)"):
        critic_loss(torch.zeros(2, 5), torch.zeros(5, 1))


def test_the_deterministic_policy_gradient_is_the_chain_rule():
    """Silver 2014, eq. 9, with mu(s) = w s and Q(s, a) = -(a - 3 s)^2: the gradient in w is 2 s (3 s - w s)."""
    s, w = random(6), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    q = torch.stack([-((w * s - 3 * s) ** 2), 1e3 * w * s])  # the second critic has no say
    deterministic_policy_loss(q).sum().backward()
    assert w.grad.item() == pytest.approx(-(2 * s * (3 * s - 0.5 * s)).sum().item())


@pytest.mark.parametrize(
    ("low", "high", "deviation", "limit"),
    [([-0.4], [0.4], [0.0791], [0.2]), ([0.0, -1.0], [2.0, 3.0], [0.1977, 0.3955], [0.5, 1.0])],
)
def test_smoothing_keeps_to_the_bounds_of_every_dimension(low, high, deviation, limit):
    """Case B38: sigma 0.2, cut at 0.5, of the half-range of each dimension."""
    scale, d = ActionScale(np.float32(low), np.float32(high)), len(low)
    noise = 0.2 * torch.randn(10_000, d, generator=torch.Generator().manual_seed(0))
    centre = smoothed_action(torch.zeros(10_000, d), noise, -0.5, 0.5)
    moved = scale.to_env(centre.numpy()) - (np.float32(low) + np.float32(high)) / 2
    assert moved.std(0) == pytest.approx(deviation, rel=0.03)
    assert (abs(moved) <= np.array(limit) + 1e-6).all() and (abs(moved).max(0) > 0.95 * np.array(limit)).all()
    corner = smoothed_action(torch.ones(10_000, d), noise, -0.5, 0.5)
    assert corner.max() == 1 and corner.min() >= 0.5
    acted = scale.from_env(scale.to_env(corner.numpy()))
    np.testing.assert_allclose(acted, corner.numpy(), atol=1e-6)  # the env cuts nothing more off


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("weighted", [True, False])
def test_td_errors_of_values_in_di_engines_form(nstep, weighted):
    rng, n, gamma = np.random.default_rng(0), 6, 0.9
    v, next_v, weight = random(n), random(n, seed=1), torch.as_tensor(rng.random(n)) if weighted else None
    reward, done = random(nstep, n, seed=2), torch.as_tensor(rng.random(n) < 0.4)
    hop = rng.integers(1, nstep + 1, n)
    reached = torch.as_tensor(gamma**hop)
    if weighted:
        weight[2], reward[0, 2] = 0, torch.nan
    loss, size = v_nstep_td_error(v_nstep_td_data(v, next_v, reward, done, weight, reached), gamma, nstep)
    total = 0.0
    for i in range(n):
        target = sum(gamma**k * float(reward[k, i]) for k in range(nstep))
        target += gamma ** hop[i] * (1 - float(done[i])) * float(next_v[i])
        if not (weighted and i == 2):
            total += (float(weight[i]) if weighted else 1) * (float(v[i]) - target) ** 2
            assert size[i].item() == pytest.approx(abs(target - float(v[i])))
    assert loss.item() == pytest.approx(total / n)
    if nstep == 1:
        one = v_1step_td_error(v_1step_td_data(v, next_v, reward[0], done, weight), gamma)
        torch.testing.assert_close(one, (loss, size), equal_nan=True)


def test_only_the_estimate_has_a_gradient():
    v, next_v = random(4).requires_grad_(), random(4, seed=1).requires_grad_()
    data = v_1step_td_data(v, next_v, random(4, seed=2), torch.zeros(4), None)
    v_1step_td_error(data, 0.9)[0].backward()
    assert v.grad.abs().min() > 0 and next_v.grad is None
