"""Soft values and the temperature's loss against sums written out in float64."""

import math

import numpy as np
import pytest
import torch

from ding_like.rl_utils.distribution import MASKED
from ding_like.rl_utils.sac import (
    default_target_entropy,
    expected_soft_state_value,
    soft_state_value,
    temperature_loss,
)


def random(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("critics", [1, 2, 3])
@pytest.mark.parametrize("lead", [(5,), (4, 3)])
def test_soft_values_equal_the_sums_written_out(critics, lead):
    q, log_prob, alpha = random(critics, *lead, 4), random(*lead, 4, seed=1).log_softmax(-1), 0.3
    sampled = soft_state_value(q[..., 0], log_prob[..., 0], alpha)
    expected = expected_soft_state_value(q, log_prob, alpha)
    assert sampled.shape == expected.shape == lead
    for i in np.ndindex(lead):
        least = [min(float(q[(k, *i, a)]) for k in range(critics)) for a in range(4)]
        logs = [float(log_prob[(*i, a)]) for a in range(4)]
        assert sampled[i].item() == pytest.approx(least[0] - alpha * logs[0], abs=1e-12)
        wanted = sum(math.exp(p) * (v - alpha * p) for p, v in zip(logs, least))
        assert expected[i].item() == pytest.approx(wanted, abs=1e-12)


def test_gradients_flow_through_the_smaller_critic_and_the_policy():
    q, logit = random(2, 5, 3).requires_grad_(), random(5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, x: expected_soft_state_value(q, x.log_softmax(-1), 0.2), (q, logit))
    assert torch.autograd.gradcheck(lambda q, x: soft_state_value(q[..., 0], x[..., 0], 0.2), (q, logit))


def test_a_forbidden_action_adds_nothing_whatever_its_value():
    logit = torch.tensor([[0.3, MASKED, -0.2]]).requires_grad_()
    q = torch.tensor([[[1.0, 1e6, 2.0]]] * 2)
    value = expected_soft_state_value(q, logit.log_softmax(-1), 2.5)
    allowed = expected_soft_state_value(q[..., [0, 2]], logit[..., [0, 2]].log_softmax(-1), 2.5)
    torch.testing.assert_close(value, allowed)
    value.sum().backward()
    assert torch.isfinite(logit.grad).all() and logit.grad[0, 1] == 0


def test_the_best_policy_of_fixed_values_is_their_softmax():
    """Haarnoja 2018, eq. 4: of all policies exp(Q / alpha) has the largest soft value, which is its log-partition."""
    q, alpha = random(1, 4), 0.7
    best = expected_soft_state_value(q, (q[0] / alpha).log_softmax(-1), alpha)
    assert best.item() == pytest.approx(alpha * torch.logsumexp(q[0] / alpha, -1).item(), abs=1e-12)
    assert all(expected_soft_state_value(q, random(4, seed=s).log_softmax(-1), alpha) < best for s in range(20))


@pytest.mark.parametrize(("entropy", "sign"), [(0.5, -1), (1.5, 1)])
def test_the_temperature_rises_while_the_entropy_is_below_its_target(entropy, sign):
    log_alpha, given = torch.zeros((), requires_grad=True), torch.tensor(entropy, requires_grad=True)
    temperature_loss(log_alpha, given, 1.0).backward()
    assert log_alpha.grad.item() == pytest.approx(sign * 0.5) and given.grad is None


def test_default_target_entropies():
    """Case B40."""
    assert default_target_entropy(6, discrete=False) == -6.0
    assert 0 < default_target_entropy(4, discrete=True) < math.log(4)


def test_shapes_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"log_prob has shape \(4, 1\); q_value makes \(4,\)"):
        soft_state_value(torch.zeros(2, 4), torch.zeros(4, 1), 0.1)
    with pytest.raises(ValueError, match="log_probs has shape"):
        expected_soft_state_value(torch.zeros(2, 4, 3), torch.zeros(4, 2), 0.1)
