"""Quantile regression against sums written out pair by pair in float64."""

import numpy as np
import pytest
import torch

from ding_like.rl_utils.quantile import (
    evaluate_quantile_at_action,
    iqn_nstep_td_data,
    iqn_nstep_td_error,
    qrdqn_nstep_td_data,
    qrdqn_nstep_td_error,
    quantile_huber_loss,
    quantile_td_loss,
)


def tensor(x) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def written_out(q, target, tau, kappa):
    """Loss and mean size of the errors of one item."""
    total, sizes = 0.0, []
    for theta, t in zip(q, tau):
        for wanted in target:
            d = wanted - theta
            huber = abs(d) if not kappa else d * d / 2 / kappa if abs(d) <= kappa else abs(d) - kappa / 2
            total += abs(t - (d < 0)) * huber / len(target)
            sizes.append(abs(d))
    return total, sum(sizes) / len(sizes)


@pytest.mark.parametrize(("target", "wanted"), [([2, 5], 2.25), ([2, 2], 0.75), ([2, 5, 8], 3.75)])
def test_the_axes_of_the_sum_and_the_mean(target, wanted):
    """Case B36: a batch of 3, which is no number of quantiles."""
    q, tau = tensor([[0.0, 1.0]] * 3), tensor([[0.25, 0.75]] * 3)
    loss, _ = quantile_huber_loss(q, tensor([list(map(float, target))] * 3), tau)
    assert loss.tolist() == pytest.approx([wanted] * 3, abs=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_loss_error_and_gradient_are_those_of_the_definition(kappa, shape):
    rng = np.random.default_rng(0)
    q, target, tau = rng.normal(size=(*shape, 4)) * 2, rng.normal(size=(*shape, 6)) * 2, rng.random((*shape, 4))
    estimate = tensor(q).requires_grad_()
    loss, error = quantile_huber_loss(estimate, tensor(target), tensor(tau), kappa)
    assert loss.shape == error.shape == shape and not error.requires_grad
    for at in np.ndindex(shape):
        assert (loss[at].item(), error[at].item()) == pytest.approx(written_out(q[at], target[at], tau[at], kappa))
    assert torch.autograd.gradcheck(lambda x: quantile_huber_loss(x, tensor(target), tensor(tau), kappa)[0], estimate)


def test_its_minimum_are_the_quantiles():
    """Of 1000 targets; without a smooth part the minimum is exact."""
    targets, tau = torch.randn(1000, dtype=torch.float64), tensor([0.1, 0.5, 0.9])
    wanted = torch.quantile(targets, tau)
    best, _ = quantile_huber_loss(wanted[None], targets[None], tau[None], kappa=0)
    for shift in (-0.2, 0.2):
        for i in range(3):
            moved = wanted.clone()
            moved[i] += shift
            assert quantile_huber_loss(moved[None], targets[None], tau[None], kappa=0)[0] > best


def batch(rng, k=4, others=6, n=5, actions=3):
    return dict(
        q=rng.normal(size=(n, actions, k)),
        tau=rng.random((n, k)),
        action=rng.integers(0, actions, n),
        reward=rng.normal(size=n),
        discount=rng.choice([0.0, 0.9], n),
        target_q=rng.normal(size=(n, actions, others)) * 2,
        target_action=rng.integers(0, actions, n),
    )


def wanted_of(data, i, kappa):
    ahead = data["reward"][i] + data["discount"][i] * data["target_q"][i, data["target_action"][i]]
    return written_out(data["q"][i, data["action"][i]], ahead, data["tau"][i], kappa)


def test_quantiles_of_the_action_are_moved_towards_the_bellman_target():
    data = batch(np.random.default_rng(1))
    given = {k: torch.as_tensor(v) for k, v in data.items()}
    given["q"].requires_grad_(), given["target_q"].requires_grad_()
    loss, error = quantile_td_loss(**given, kappa=0.7)
    for i in range(5):
        assert (loss[i].item(), error[i].item()) == pytest.approx(wanted_of(data, i, 0.7))
    loss.sum().backward()
    assert given["target_q"].grad is None
    touched = given["q"].grad.abs().sum(-1) > 0
    assert (touched.sum(-1) == 1).all() and touched[torch.arange(5), given["action"]].all()


def test_the_calling_forms_of_di_engine():
    rng = np.random.default_rng(2)
    data, weight, done = batch(rng), rng.random(5), rng.random(5) < 0.5
    rewards, value_gamma = rng.normal(size=(2, 5)), np.array([0.81, 0.9, 0.9, 0.81, 0.81])
    data["reward"], data["discount"] = rewards[0] + 0.9 * rewards[1], value_gamma * (1 - done)
    data["tau"] = np.tile((np.arange(4) + 0.5) / 4, (5, 1))
    wanted = np.array([wanted_of(data, i, 1.0) for i in range(5)])
    t = {k: torch.as_tensor(v) for k, v in data.items()}
    rest = t["action"], t["target_action"], tensor(rewards), torch.as_tensor(done)
    kwargs = dict(gamma=0.9, nstep=2, value_gamma=tensor(value_gamma))
    for tau in (t["tau"][0], t["tau"], t["tau"][..., None]):
        found = qrdqn_nstep_td_error(qrdqn_nstep_td_data(t["q"], t["target_q"], *rest, tau, tensor(weight)), **kwargs)
        assert found[0].item() == pytest.approx((weight * wanted[:, 0]).mean())
        np.testing.assert_allclose(found[1], wanted[:, 1])
    first = t["q"].permute(2, 0, 1), t["target_q"].permute(2, 0, 1)  # [K, B, A]
    for tau in (t["tau"].T, t["tau"].T.reshape(-1, 1)):
        found = iqn_nstep_td_error(iqn_nstep_td_data(*first, *rest, tau, tensor(weight)), kappa=1.0, **kwargs)
        assert found[0].item() == pytest.approx((weight * wanted[:, 0]).mean())
        np.testing.assert_allclose(found[1], wanted[:, 1])
    picked = evaluate_quantile_at_action(t["q"].transpose(1, 2), t["action"])
    assert torch.equal(picked[..., 0], t["q"][torch.arange(5), t["action"]])


def test_probabilities_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"tau \(4,\) .* wanted tau like q"):
        quantile_huber_loss(torch.zeros(3, 4), torch.zeros(3, 5), torch.zeros(4))
