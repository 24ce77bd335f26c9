"""The categorical projection and its loss against sums written out atom by atom in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.rl_utils.distributional import (
    c51_loss,
    dist_1step_td_data,
    dist_1step_td_error,
    dist_nstep_td_data,
    dist_nstep_td_error,
    project_distribution,
)


def tensor(x) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def project(p, reward, discount, atoms):
    """By the words of the definition: each atom moves, is clipped, and its mass goes to what lies around it."""
    out, gap = [0.0] * len(atoms), atoms[1] - atoms[0]
    for mass, atom in zip(p, atoms):
        moved = min(max(reward + discount * atom, atoms[0]), atoms[-1])
        for i, other in enumerate(atoms):
            out[i] += mass * max(0.0, 1 - abs(moved - other) / gap)
    return out


def random_distributions(rng, *shape):
    p = rng.random(shape) ** 3
    return p / p.sum(-1, keepdims=True)


def test_the_cases_of_the_edges():
    """Case B34."""
    atoms, uniform = torch.linspace(-5, 5, 11, dtype=torch.float64), torch.full((3, 11), 1 / 11, dtype=torch.float64)
    same, beyond, terminal = project_distribution(uniform, tensor([0, 10, 0.25]), tensor([1.0, 1, 0]), atoms)
    torch.testing.assert_close(same, uniform[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(beyond, torch.eye(11, dtype=torch.float64)[10], rtol=0, atol=1e-12)
    wanted = torch.zeros(11, dtype=torch.float64)
    wanted[5], wanted[6] = 0.75, 0.25
    torch.testing.assert_close(terminal, wanted, rtol=0, atol=1e-12)


@given(st.integers(2, 9), st.floats(-3, 3), st.floats(0.5, 7), st.integers(0, 10**6))
def test_it_is_that_of_the_definition_and_keeps_mass_and_mean(n, v_min, width, seed):
    rng = np.random.default_rng(seed)
    atoms = np.linspace(v_min, v_min + width, n)
    p = random_distributions(rng, 2, 3, n)
    reward, discount = rng.normal(size=(2, 3)) * 2, rng.choice([0.0, 0.5, 0.99, 1.0], (2, 3))
    got = project_distribution(tensor(p), tensor(reward), tensor(discount), tensor(atoms)).numpy()
    for at in np.ndindex(2, 3):
        np.testing.assert_allclose(got[at], project(p[at], reward[at], discount[at], atoms), rtol=0, atol=1e-9)
        mean = p[at] @ np.clip(reward[at] + discount[at] * atoms, atoms[0], atoms[-1])
        assert got[at] @ atoms == pytest.approx(mean, abs=1e-9)
    np.testing.assert_allclose(got.sum(-1), 1, rtol=0, atol=1e-12)


def test_no_mass_is_negative_in_single_precision():
    atoms = torch.linspace(-10, 10, 51)
    p = torch.rand(200, 51)
    out = project_distribution(p / p.sum(-1, keepdim=True), torch.randn(200) * 20, torch.rand(200), atoms)
    assert (out >= 0).all()


def loss_inputs(rng, shape=(4,), actions=3, n=7):
    return dict(
        atom_logit=tensor(rng.normal(size=(*shape, actions, n))),
        action=torch.as_tensor(rng.integers(0, actions, shape)),
        reward=tensor(rng.normal(size=shape)),
        discount=tensor(rng.choice([0.0, 0.9], shape)),
        target_distribution=tensor(random_distributions(rng, *shape, actions, n)),
        target_action=torch.as_tensor(rng.integers(0, actions, shape)),
        support=torch.linspace(-2, 3, n, dtype=torch.float64),
    )


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_loss_and_divergence_are_those_of_the_definition(shape):
    given = loss_inputs(np.random.default_rng(0), shape)
    loss, divergence = c51_loss(**given)
    assert loss.shape == divergence.shape == shape
    for at in np.ndindex(shape):
        q = np.exp(given["atom_logit"][at][given["action"][at]].numpy())
        q /= q.sum()
        p = given["target_distribution"][at][given["target_action"][at]].tolist()
        m = project(p, given["reward"][at].item(), given["discount"][at].item(), given["support"].tolist())
        assert loss[at].item() == pytest.approx(-sum(a * math.log(b) for a, b in zip(m, q)), rel=1e-9)
        wanted = sum(a * math.log(a / b) for a, b in zip(m, q) if a > 0)
        assert divergence[at].item() == pytest.approx(wanted, rel=1e-7)


def test_gradients_are_right_and_only_the_estimate_has_one():
    given = loss_inputs(np.random.default_rng(1))
    given["atom_logit"].requires_grad_()
    given["target_distribution"].requires_grad_()
    assert torch.autograd.gradcheck(lambda logit: c51_loss(**{**given, "atom_logit": logit})[0], given["atom_logit"])
    loss, divergence = c51_loss(**given)
    loss.sum().backward()
    assert given["target_distribution"].grad is None and not divergence.requires_grad


def test_the_priority_of_a_right_estimate_is_zero():
    given = loss_inputs(np.random.default_rng(2))
    wanted = project_distribution(
        given["target_distribution"][torch.arange(4), given["target_action"]],
        given["reward"],
        given["discount"],
        given["support"],
    )
    given["atom_logit"] = wanted.clamp(min=1e-300).log().unsqueeze(1).expand(-1, 3, -1)
    np.testing.assert_allclose(c51_loss(**given)[1], 0, atol=1e-12)


def test_the_calling_form_of_di_engine():
    rng = np.random.default_rng(3)
    dist, next_dist = random_distributions(rng, 2, 5, 3, 6)
    action, next_action = rng.integers(0, 3, (2, 5))
    reward, done, weight = rng.normal(size=(2, 5)), rng.random(5) < 0.5, np.array([1, 0.5, 0, 2, 1.0])
    value_gamma = np.array([0.81, 0.9, 0.81, 0.9, 0.81])
    atoms = np.linspace(-1, 2, 6)
    each = []
    for i in range(5):
        total, discount = reward[0, i] + 0.9 * reward[1, i], value_gamma[i] * (1 - done[i])
        m = project(next_dist[i, next_action[i]], total, discount, atoms)
        each.append(-np.dot(m, np.log(dist[i, action[i]])))
    fields = [tensor(dist), tensor(next_dist), torch.as_tensor(action), torch.as_tensor(next_action), tensor(reward)]
    data = dist_nstep_td_data(*fields, torch.as_tensor(done), tensor(weight))
    loss, priority = dist_nstep_td_error(data, 0.9, -1.0, 2.0, 6, nstep=2, value_gamma=tensor(value_gamma))
    assert loss.item() == pytest.approx((weight * each).mean(), rel=1e-9)
    np.testing.assert_allclose(priority[weight > 0], np.array(each)[weight > 0], rtol=1e-9)
    one = dist_1step_td_error(dist_1step_td_data(*fields[:4], tensor(reward[0]), data.done, None), 0.9, -1.0, 2.0, 6)
    again, _ = dist_nstep_td_error(dist_nstep_td_data(*fields[:4], tensor(reward[:1]), data.done, None), 0.9, -1, 2, 6)
    torch.testing.assert_close(one, again)


def test_wrong_shapes_are_named():
    given = loss_inputs(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"discount has shape \(4, 1\); wanted \(4,\)"):
        c51_loss(**{**given, "discount": torch.zeros(4, 1, dtype=torch.float64)})
