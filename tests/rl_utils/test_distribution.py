"""Distributions against torch.distributions in float64, and what masked actions must not do."""

import math

import numpy as np
import pytest
import torch
from torch import distributions as reference

from ding_like.rl_utils.distribution import (
    MASKED,
    Categorical,
    Gaussian,
    MultiCategorical,
    lost_entropy,
    make_distribution,
    mask_logit,
)

LEADING = [(), (5,), (3, 4)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def close(ours, wanted):
    torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- against torch.distributions
@pytest.mark.parametrize("leading", LEADING)
def test_categorical(leading):
    p, q = (3 * randn(*leading, 6, seed=s) for s in (0, 1))
    ours, other = Categorical(p), Categorical(q)
    wanted, its = reference.Categorical(logits=p), reference.Categorical(logits=q)
    action = torch.randint(0, 6, leading, generator=generator())
    close(ours.log_prob(action), wanted.log_prob(action))
    close(ours.entropy(), wanted.entropy())
    close(ours.kl(other), reference.kl_divergence(wanted, its))
    close(ours.probs, wanted.probs)
    assert torch.equal(ours.mode(), wanted.mode)


@pytest.mark.parametrize("leading", LEADING)
def test_multi_categorical_is_the_product_of_its_parts(leading):
    p, q = ([randn(*leading, a, seed=s + a) for a in (2, 3, 5)] for s in (0, 7))
    ours, other = MultiCategorical(p), MultiCategorical(q)
    wanted, its = ([reference.Categorical(logits=x) for x in logits] for logits in (p, q))
    action = torch.stack([d.sample() for d in wanted], -1)
    close(ours.log_prob(action), sum(d.log_prob(action[..., i]) for i, d in enumerate(wanted)))
    close(ours.entropy(), sum(d.entropy() for d in wanted))
    close(ours.kl(other), sum(reference.kl_divergence(a, b) for a, b in zip(wanted, its)))
    assert torch.equal(ours.mode(), torch.stack([d.mode for d in wanted], -1))


@pytest.mark.parametrize("leading", LEADING)
def test_gaussian(leading):
    mu, other_mu, action = (randn(*leading, 3, seed=s) for s in (0, 1, 2))
    sigma, other_sigma = (randn(*leading, 3, seed=s).exp() for s in (3, 4))
    ours, other = Gaussian(mu, sigma), Gaussian(other_mu, other_sigma)
    wanted, its = (reference.Independent(reference.Normal(*x), 1) for x in ((mu, sigma), (other_mu, other_sigma)))
    close(ours.log_prob(action), wanted.log_prob(action))
    close(ours.entropy(), wanted.entropy())
    close(ours.kl(other), reference.kl_divergence(wanted, its))
    assert torch.equal(ours.mode(), mu)


def test_gradients_are_those_of_the_formulas():
    logit, other, sigma = randn(4, 3).requires_grad_(), randn(4, 3, seed=1), randn(4, 3, seed=2).exp().requires_grad_()
    action = torch.tensor([0, 2, 1, 1])
    for call in (
        lambda x: Categorical(x).log_prob(action),
        lambda x: Categorical(x).entropy(),
        lambda x: Categorical(x).kl(Categorical(other)),
        lambda x: Categorical(other).kl(Categorical(x)),
        lambda x: MultiCategorical((x, other)).entropy(),
    ):
        assert torch.autograd.gradcheck(call, (logit,))
    for call in (
        lambda m, s: Gaussian(m, s).log_prob(other),
        lambda m, s: Gaussian(m, s).kl(Gaussian(other, torch.ones_like(other))),
        lambda m, s: Gaussian(m, s).entropy() + m.sum(-1),
    ):
        assert torch.autograd.gradcheck(call, (logit, sigma))


# ---------------------------------------------------------------- sampling
def test_samples_follow_the_probabilities():
    torch.manual_seed(0)
    n = 20_000
    probs = torch.tensor([0.1, 0.2, 0.0, 0.7])
    logit = mask_logit(probs.log().nan_to_num(neginf=0.0), probs > 0)
    drawn = Categorical(logit.expand(n, 4)).sample()
    close_to = 4 * math.sqrt(0.25 / n)  # four standard deviations
    assert drawn.dtype == torch.int64 and not (drawn == 2).any()
    assert (drawn.bincount(minlength=4) / n - probs).abs().max() < close_to
    multi = MultiCategorical((logit.expand(n, 4), torch.zeros(n, 2))).sample()
    assert multi.shape == (n, 2) and abs(multi[:, 1].float().mean() - 0.5) < close_to
    normal = Gaussian(torch.full((n, 2), 3.0), torch.full((n, 2), 0.5)).sample()
    assert (normal.mean(0) - 3).abs().max() < 4 * 0.5 / math.sqrt(n)
    assert (normal.std(0) - 0.5).abs().max() < 0.02
    assert Categorical(torch.zeros(4)).sample().shape == () and Categorical(torch.zeros(2, 3, 4)).sample().shape == (
        2,
        3,
    )


def test_samples_carry_no_gradient():
    mu = torch.zeros(2, 3, requires_grad=True)
    assert not Gaussian(mu, torch.ones(2, 3)).sample().requires_grad
    assert not Categorical(mu).sample().requires_grad


# ---------------------------------------------------------------- masks
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_masked_action_has_probability_zero_and_the_rest_is_as_without_it(dtype):
    logit, allowed = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=dtype), torch.tensor([[1, 0, 1, 0]])
    ours = Categorical(mask_logit(logit, allowed))
    small, q = Categorical(logit[:, [0, 2]]), Categorical(torch.zeros(1, 4, dtype=dtype))
    assert ours.probs[0, [1, 3]].tolist() == [0, 0]
    assert torch.equal(ours.entropy(), small.entropy())
    assert torch.equal(ours.probs[:, [0, 2]], small.probs)
    assert torch.isfinite(ours.log_prob(torch.tensor([1])))
    torch.testing.assert_close(ours.kl(q), math.log(4) - small.entropy())  # q is uniform over four
    assert ours.mode().tolist() == [2]


def test_the_mask_value_is_the_lowest_float32():
    assert mask_logit(torch.zeros(1, 2), torch.tensor([[1, 0]]))[0, 1].item() == MASKED


def test_one_allowed_action_is_certain():
    only = Categorical(mask_logit(torch.randn(3, 4, generator=generator()), torch.eye(4)[:3]))
    assert only.entropy().tolist() == [0, 0, 0]
    assert only.sample().tolist() == only.mode().tolist() == [0, 1, 2]
    assert only.log_prob(only.mode()).tolist() == [0, 0, 0]


def test_masked_logits_get_no_gradient_and_no_nan():
    mask = torch.rand(20, 5, generator=generator()) < 0.5
    mask[:, -1] = True
    logit, other = (mask_logit(randn(20, 5, seed=s).float(), mask).requires_grad_() for s in (1, 2))
    p, q = Categorical(logit), Categorical(other)
    action = p.sample()
    (p.entropy() + p.log_prob(action) + p.kl(q)).sum().backward()
    for x in (logit, other):
        assert torch.isfinite(x.grad).all()
        assert (x.grad[~mask] == 0).all()
        assert (x.grad[mask] != 0).any()


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.float32, torch.float64])
def test_mask_logit_of_arrays_and_tensors(kind):
    of = np.array if kind in (np.float32, np.float64) else torch.tensor
    logit = of([[1.0, 2.0], [3.0, 4.0]], dtype=kind)
    low = (np if of is np.array else torch).finfo(kind).min
    for mask in (of([[1, 0], [1, 1]]), of([[True, False], [True, True]]), np.array([[1, 0], [1, 1]], np.int8)):
        out = mask_logit(logit, mask)
        assert type(out) is type(logit) and out.dtype == logit.dtype
        assert out.tolist() == [[1.0, low], [3.0, 4.0]]
    assert logit[0, 1] == 2


def test_mask_of_a_multi_discrete_action_lies_side_by_side():
    logit = torch.zeros(2, 2), torch.zeros(2, 3)
    first, second = mask_logit(logit, torch.tensor([[1, 0, 0, 1, 1], [1, 1, 1, 1, 0]]))
    assert (first == 0).tolist() == [[True, False], [True, True]]
    assert (second == 0).tolist() == [[False, True, True], [True, True, False]]
    with pytest.raises(ValueError, match=r"action_mask has shape \(2, 4\); wanted \(2, 5\)"):
        mask_logit(logit, torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"action_mask has shape \(3,\); wanted \(2, 3\)"):
        mask_logit(np.zeros((2, 3)), np.ones(3))


# ---------------------------------------------------------------- shapes and kinds
def test_a_shape_that_would_broadcast_is_refused():
    flat, pair = torch.zeros(4, 3), torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"action has shape \(4, 1\); wanted \(4,\)"):
        Categorical(flat).log_prob(torch.zeros(4, 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"action has shape \(4,\); wanted \(4, 2\)"):
        MultiCategorical((flat, flat)).log_prob(torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"action has shape \(4, 1\); wanted \(4, 3\)"):
        Gaussian(flat, pair).log_prob(torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"sigma has shape \(3,\); wanted \(4, 3\)"):
        Gaussian(flat, torch.ones(3))
    with pytest.raises(ValueError, match="logit has shape"):
        Categorical(flat).kl(Categorical(flat[:1]))
    with pytest.raises(ValueError, match="1 parts; wanted 2"):
        MultiCategorical((flat, flat)).kl(MultiCategorical((flat,)))


def test_make_distribution():
    logit = torch.zeros(2, 3)
    assert isinstance(make_distribution(logit, "discrete"), Categorical)
    assert isinstance(make_distribution((logit,), "multi_discrete"), MultiCategorical)
    assert isinstance(make_distribution({"mu": logit, "sigma": logit + 1}, "continuous"), Gaussian)
    with pytest.raises(ValueError, match=r"'box'.*discrete, multi_discrete, continuous"):
        make_distribution(logit, "box")


@pytest.mark.parametrize("shape", [(64, 128, 2), (9000, 3), (600, 17)])
def test_large_batches_have_the_same_log_probs_and_gradients(shape):
    logit = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, theirs = Categorical(logit).log_probs, torch.log_softmax(logit, -1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn(shape, dtype=torch.float64)
    (a,), (b,) = (torch.autograd.grad((x * weight).sum(), logit) for x in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_entropy_that_forbidden_actions_take_away():
    """The largest entropy is that of equal logits, log of how many are allowed; where none is, all of it is lost."""
    allowed = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    logit = mask_logit(torch.zeros(4, 4), allowed)
    largest = Categorical(logit).entropy()[:3]
    torch.testing.assert_close(lost_entropy(logit)[:3], math.log(4) - largest)
    assert lost_entropy(logit)[0] == 0 and lost_entropy(logit)[3] == pytest.approx(math.log(4))
    torch.testing.assert_close(lost_entropy(Categorical(logit).log_probs)[:3], lost_entropy(logit)[:3])
