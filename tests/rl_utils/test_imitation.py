"""Losses of imitation: against plain sums in float64, gradients, shapes."""

import math

import numpy as np
import pytest
import torch

from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.imitation import cloning_loss

RNG = np.random.default_rng(0)
N = 6


def logits(kind):
    double = torch.float64
    if kind == "discrete":
        return torch.tensor(RNG.normal(size=(N, 4)), dtype=double), torch.as_tensor(RNG.integers(0, 4, N))
    if kind == "multi_discrete":
        parts = tuple(torch.tensor(RNG.normal(size=(N, n)), dtype=double) for n in (2, 3))
        return parts, torch.as_tensor(RNG.integers(0, 2, (N, 2)))
    mu, sigma = (
        torch.tensor(f(size=(N, 3)), dtype=double) for f in (RNG.normal, lambda size: RNG.uniform(0.5, 2, size))
    )
    return {"mu": mu, "sigma": sigma}, torch.tensor(RNG.normal(size=(N, 3)), dtype=double)


def surprise(z, a):
    """-log softmax(z)[a] by definition."""
    return math.log(sum(math.exp(v) for v in z)) - float(z[a])


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete"])
def test_the_log_likelihood_of_discrete_actions_is_the_cross_entropy(kind):
    logit, action = logits(kind)
    parts = [logit] if kind == "discrete" else logit
    chosen = action.reshape(N, -1)
    wanted = [sum(surprise(part[i].tolist(), int(chosen[i, k])) for k, part in enumerate(parts)) for i in range(N)]
    loss = cloning_loss(make_distribution(logit, kind), action)
    np.testing.assert_allclose(loss.numpy(), wanted, rtol=1e-12)


def test_continuous_actions():
    logit, action = logits("continuous")
    policy = make_distribution(logit, "continuous")
    squared = [[float((action[i, k] - logit["mu"][i, k]) ** 2) for k in range(3)] for i in range(N)]
    np.testing.assert_allclose(cloning_loss(policy, action, "mse").numpy(), np.sum(squared, 1), rtol=1e-12)
    var = logit["sigma"].numpy() ** 2
    wanted = 0.5 * (np.array(squared) / var + np.log(2 * np.pi * var)).sum(1)
    np.testing.assert_allclose(cloning_loss(policy, action).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("loss", ["nll", "mse"])
def test_gradients_of_continuous_actions(loss):
    logit, action = logits("continuous")
    inputs = [logit["mu"].requires_grad_(), logit["sigma"].requires_grad_(loss == "nll")]

    def function(mu, sigma):
        return cloning_loss(make_distribution({"mu": mu, "sigma": sigma}, "continuous"), action, loss)

    assert torch.autograd.gradcheck(function, inputs)


def test_what_does_not_fit_is_named():
    logit, action = logits("continuous")
    policy = make_distribution(logit, "continuous")
    with pytest.raises(ValueError, match="loss is 'l1'; wanted one of"):
        cloning_loss(policy, action, "l1")
    for loss in ("nll", "mse"):
        with pytest.raises(ValueError, match="action has shape"):
            cloning_loss(policy, action[:, :1], loss)
