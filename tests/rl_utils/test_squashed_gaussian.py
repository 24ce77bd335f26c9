"""The squashed Gaussian against the change of variables, and where tanh is 1 in floating point."""

import math

import pytest
import torch
from torch import distributions as reference

from ding_like.rl_utils.distribution import SquashedGaussian


def parameters(lead=(6,), d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mu, log_sigma, noise = torch.randn(3, *lead, d, generator=generator, dtype=torch.float64)
    return mu, (0.3 * log_sigma).exp(), noise  # not so far out that autograd's 1 - tanh(u)^2 loses digits


@pytest.mark.parametrize("lead", [(), (6,), (4, 5)])
def test_the_density_is_the_normal_one_over_the_jacobian_of_tanh(lead):
    mu, sigma, noise = parameters(lead)
    action, log_prob = SquashedGaussian(mu, sigma).rsample(noise)
    assert action.shape == mu.shape and log_prob.shape == lead
    rows = zip(*(x.reshape(-1, 3) for x in (mu, sigma, noise, action)), log_prob.reshape(-1))
    for m, s, eps, a, wanted in rows:
        u = m + s * eps
        jacobian = torch.autograd.functional.jacobian(torch.tanh, u)
        density = reference.MultivariateNormal(m, torch.diag(s**2)).log_prob(u) - torch.logdet(jacobian)
        torch.testing.assert_close(wanted, density, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(a, torch.tanh(u), rtol=1e-12, atol=0)


def test_it_agrees_with_torch_and_integrates_to_one():
    mu, sigma, noise = parameters()
    ours = SquashedGaussian(mu, sigma)
    action, log_prob = ours.rsample(noise)
    transform = reference.TanhTransform(cache_size=1)
    wanted = reference.TransformedDistribution(reference.Normal(mu, sigma), transform).log_prob(action).sum(-1)
    torch.testing.assert_close(log_prob, wanted, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(ours.log_prob(action), log_prob, rtol=1e-8, atol=1e-8)
    grid = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1, None]
    one = SquashedGaussian(torch.full_like(grid, 0.3), torch.full_like(grid, 0.5))
    assert torch.trapezoid(one.log_prob(grid).exp(), grid[:, 0]).item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_actions_have_finite_densities_and_gradients(dtype):
    mu = torch.tensor([-300.0, -20.0, 0.0, 20.0, 300.0], dtype=dtype).unsqueeze(-1).requires_grad_()
    sigma = torch.full_like(mu, math.exp(-20)).requires_grad_()
    policy = SquashedGaussian(mu, sigma)
    action, log_prob = policy.rsample(torch.ones_like(mu))
    assert action.abs().max() == 1
    edges = policy.log_prob(torch.tensor([-1.0, -1.0, 0.0, 1.0, 1.0], dtype=dtype).unsqueeze(-1))
    (log_prob.sum() + action.sum()).backward()
    for value in (log_prob, edges, mu.grad, sigma.grad):
        assert torch.isfinite(value).all()
    # log density of u = 300 + sigma: the normal one + 2 (u - log 2), where 1 - tanh(u)^2 is 0
    wanted = -0.5 - 0.5 * math.log(2 * math.pi) + 20 + 2 * (300 - math.log(2))
    assert log_prob[-1].item() == pytest.approx(wanted, rel=1e-5)


def test_gradients_of_samples_and_densities():
    mu, sigma, noise = parameters((2,), 2)

    def both(mu, sigma):
        return SquashedGaussian(mu, sigma).rsample(noise)

    assert torch.autograd.gradcheck(both, (mu.requires_grad_(), sigma.requires_grad_()))


def test_the_mode_is_what_a_policy_without_noise_does():
    mu, sigma, _ = parameters()
    policy = SquashedGaussian(mu, sigma)
    assert torch.equal(policy.mode(), torch.tanh(mu))
    assert torch.equal(policy.mode(), policy.rsample(torch.zeros_like(mu))[0])
    with pytest.raises(ValueError, match=r"action has shape \(6,\); wanted \(6, 3\)"):
        policy.log_prob(torch.zeros(6))
