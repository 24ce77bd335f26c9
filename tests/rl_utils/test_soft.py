"""Soft values against sums written out, and what they are for a small temperature."""

import math

import numpy as np
import pytest
import torch

from ding_like.rl_utils.soft import soft_entropy, soft_q_loss, soft_value


def tensor(x) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


Q = np.random.default_rng(0).normal(size=(4, 3)) * 2


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_value_and_entropy_are_those_of_the_definition(alpha):
    value, entropy = soft_value(tensor(Q), alpha), soft_entropy(tensor(Q), alpha)
    for i, row in enumerate(Q):
        p = np.exp(row / alpha) / np.exp(row / alpha).sum()
        assert value[i].item() == pytest.approx(alpha * math.log(sum(math.exp(x / alpha) for x in row)))
        assert entropy[i].item() == pytest.approx(-sum(x * math.log(x) for x in p))
        assert value[i].item() == pytest.approx(p @ row + alpha * entropy[i].item())  # E[Q] + alpha H


def test_it_is_the_maximum_for_a_temperature_near_zero_and_stays_finite_where_actions_are_forbidden():
    lowest = torch.finfo(torch.float32).min
    q = torch.tensor([[1.0, 3.0, 2.0], [1.0, lowest, lowest], [lowest] * 3])
    torch.testing.assert_close(soft_value(q[:2], 1e-6), torch.tensor([3.0, 1.0]))
    assert torch.isfinite(soft_value(q, 0.01)).all() and torch.isfinite(soft_entropy(q, 0.01)).all()
    assert soft_entropy(q, 0.5)[1] == 0
    torch.testing.assert_close(soft_entropy(q, 1e6)[0], torch.tensor(math.log(3)))


def test_the_loss_is_that_of_the_soft_bellman_target():
    rng = np.random.default_rng(1)
    target_q, action, reward = rng.normal(size=(4, 3)), rng.integers(0, 3, 4), rng.normal(size=4)
    discount, alpha = np.array([0.9, 0, 0.9, 0.81]), 0.4
    q, ahead = tensor(Q).requires_grad_(), tensor(target_q).requires_grad_()
    given = torch.as_tensor(action), tensor(reward), tensor(discount), ahead, alpha, torch.nn.functional.mse_loss
    loss, td = soft_q_loss(q, *given)
    wanted = reward + discount * alpha * np.log(np.exp(target_q / alpha).sum(-1)) - Q[np.arange(4), action]
    np.testing.assert_allclose(td, wanted)
    np.testing.assert_allclose(loss.detach(), wanted**2)
    assert torch.autograd.gradcheck(lambda x: soft_q_loss(x, *given)[0], q)
    loss.sum().backward()
    assert ahead.grad is None
