"""V-trace and Retrace against the sums that define them, and their fixed points, in float64."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.rl_utils import CORRECTIONS, corrected_returns, epsilon_log_prob, retrace, vtrace
from ding_like.rl_utils.adder import make_masks
from ding_like.rl_utils.scan import reverse_scan
from ding_like.rl_utils.vtrace import doubling_sum
from tests.rl_utils.blocks import GAMMA, each_row, nstep_sum, random_block, sizes

bars = st.sampled_from([None, 0.0, 0.3, 1.0, 2.5, math.inf])


def block_of(size):
    """A random block with ratios `log_rho`, NaN where there is no transition."""
    block = random_block(*size)
    log_rho = np.random.default_rng(size[2] + 1).normal(size=block["reward"].shape)
    return {"log_rho": np.where(block["mask"] > 0, log_rho, np.nan), **block}


def chained(size):
    """A block without masked rows where the next value is the next row's, inside an episode."""
    block = random_block(*size, masked=False)
    inside = block["cut"][:-1] == 1
    block["next_value"][:-1][inside] = block["value"][1:][inside]
    return {"log_rho": np.zeros(block["reward"].shape), **block}


def tensors(block):
    return {k: torch.from_numpy(np.array(v)) for k, v in block.items()}


def clipped(bar, log_rho):
    return np.exp(log_rho) if bar is None else min(bar, np.exp(log_rho))


def errors(column):
    return column["reward"] + column["discount"] * column["next_value"] - column["value"]


def direct_vtrace(block, rho_bar, c_bar, pg_rho_bar, lam):
    """Espeholt 2018, eq. 1: V + sum over i of (discounts and c so far) rho_i delta_i; and section 4.2."""

    def target(column, t, stop):
        delta, log_rho, total = errors(column), column["log_rho"], column["value"][t]
        for i in range(t, stop):
            c = np.prod([lam * clipped(c_bar, x) for x in log_rho[t:i]])
            total += np.prod(column["discount"][t:i]) * c * clipped(rho_bar, log_rho[i]) * delta[i]
        return total

    def advantage(column, t, stop):
        ahead = column["next_value"][t]
        if t + 1 < stop:
            ahead += target(column, t + 1, stop) - column["value"][t + 1]
        q = column["reward"][t] + column["discount"][t] * ahead
        return clipped(pg_rho_bar, column["log_rho"][t]) * (q - column["value"][t])

    return each_row(block, target), each_row(block, advantage)


@given(sizes, bars, bars, bars, st.floats(0, 1))
def test_equals_the_direct_sum(size, rho_bar, c_bar, pg_rho_bar, lam):
    block = block_of(size)
    out = vtrace(**tensors(block), rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=pg_rho_bar, lambda_=lam)
    wanted = direct_vtrace(block, rho_bar, c_bar, rho_bar if pg_rho_bar is None else pg_rho_bar, lam)
    for found, right in zip(out, wanted):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-9, atol=1e-9)


@given(sizes, st.floats(0, 1))
def test_retrace_equals_the_direct_sum(size, lam):
    """Munos 2016, eq. 4: the product of ratios begins with the step after the first."""
    block = block_of(size)

    def target(column, t, stop):
        delta, log_rho, total = errors(column), column["log_rho"], column["value"][t]
        for i in range(t, stop):
            c = np.prod([lam * clipped(1.0, x) for x in log_rho[t + 1 : i + 1]])
            total += np.prod(column["discount"][t:i]) * c * delta[i]
        return total

    given_ = tensors(block)
    out = retrace(q_value=given_.pop("value"), **given_, lambda_=lam)
    np.testing.assert_allclose(out.numpy(), each_row(block, target), rtol=1e-9, atol=1e-9)


@given(sizes)
def test_on_policy_they_are_the_nstep_bellman_target(size):
    block = chained(size)
    wanted = each_row(block, lambda column, t, stop: nstep_sum(column, t, stop, size[0]))
    given_ = tensors(block)
    out = vtrace(**given_)
    np.testing.assert_allclose(out.vs.numpy(), wanted, atol=1e-12)
    np.testing.assert_allclose(out.pg_advantage.numpy(), wanted - block["value"], atol=1e-12)
    q_target = retrace(q_value=given_.pop("value"), **given_)
    np.testing.assert_allclose(q_target.numpy(), wanted, atol=1e-12)


@given(sizes, st.integers(1, 11))
def test_a_cut_splits_a_block_in_two(size, at):
    block = block_of(size)
    block["cut"][min(at, size[0]) - 1] = 0
    halves = [tensors({k: v[part] for k, v in block.items()}) for part in (slice(at), slice(at, None))]
    whole, apart = vtrace(**tensors(block)), [vtrace(**half) for half in halves]
    for name in ("vs", "pg_advantage"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(half, name) for half in apart]))
    q_whole, *q_apart = [retrace(q_value=x.pop("value"), **x) for x in (tensors(block), *halves)]
    assert torch.equal(q_whole, torch.cat(q_apart))


@given(sizes, st.sampled_from(CORRECTIONS))
def test_padding_of_nan_changes_nothing_though_nothing_cuts_before_it(size, correction):
    block = {**chained(size), "log_rho": np.random.default_rng(size[2]).normal(size=size[:2])}
    padded = {k: np.concatenate([v, np.full((2, size[1]), np.nan if k != "mask" else 0)]) for k, v in block.items()}
    out, wanted = (corrected_returns(correction, **tensors(x)) for x in (padded, block))
    for found, right in zip(out, wanted):
        assert torch.equal(found[:-2], right) and not found[-2:].any()
    given_, shorter = tensors(padded), tensors(block)
    found = retrace(q_value=given_.pop("value"), **given_)
    assert torch.equal(found[:-2], retrace(q_value=shorter.pop("value"), **shorter))


# ---------------------------------------------------------------- by hand
def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    "ratio, reward, value, next_value, vs, advantage",
    [
        ([1, 1, 1], [0, 0, 5], [0, 0, 0], [0, 0, 2], [5.508, 6.12, 6.8], [5.508, 6.12, 6.8]),
        ([2, 0.5, 1], [1, 2, 3], [0.5] * 3, [0.5, 0.5, 1], [3.7045, 3.005, 3.9], [3.2045, 2.505, 3.4]),
    ],
)
def test_the_last_step_trains(ratio, reward, value, next_value, vs, advantage):
    """Case B02."""
    one = torch.ones(3, dtype=torch.float64)
    out = vtrace(column(*ratio).log(), column(*reward), 0.9 * one, one, column(*value), column(*next_value))
    torch.testing.assert_close(out.vs, column(*vs))
    torch.testing.assert_close(out.pg_advantage, column(*advantage))


@pytest.mark.parametrize("terminated, target", [(False, 1 + 0.9 * 10), (True, 1)])
def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not(terminated, target):
    flags = {"terminated": torch.tensor([terminated, False]), "done": torch.tensor([True, False])}
    discount, cut = make_masks({**flags, "reward": column(1, 5)}, 0.9)
    zero, ahead = column(0, 0), column(10, 100)
    out = vtrace(zero, column(1, 5), discount, cut, zero, ahead)
    assert out.vs[0] == target and out.pg_advantage[0] == target
    assert retrace(zero, column(1, 5), discount, cut, zero, ahead)[0] == target


# ---------------------------------------------------------------- what they converge to
class Chances:
    """A random MDP of 3 states and 2 actions, with every path of 2 steps from every state as a column of a block."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.next = rng.dirichlet(np.ones(3), (3, 2))  # [S, A, S]
        self.reward = rng.normal(size=(3, 2))
        self.pi, self.mu = rng.dirichlet(np.ones(2), (2, 3))  # [S, A]
        paths = np.array(list(product(range(3), *[range(2), range(3)] * 2))).T  # x a x' a' x''
        self.states, self.actions = paths[::2], paths[1::2]
        x, a, ahead = self.states[:-1], self.actions, self.states[1:]
        self.chance = (self.mu[x, a] * self.next[x, a, ahead]).prod(0)
        self.log_rho = np.log(self.pi / self.mu)[x, a]
        self.given = self.reward[x, a], np.full(x.shape, GAMMA), np.ones(x.shape)

    def value(self, policy):
        """Solved exactly: (I - gamma P)^-1 r."""
        chain = np.einsum("xa,xay->xy", policy, self.next)
        return np.linalg.solve(np.eye(3) - GAMMA * chain, (policy * self.reward).sum(1))

    def expected_vtrace(self, value, **bars):
        arrays = (self.log_rho, *self.given, value[self.states[:-1]], value[self.states[1:]])
        target = vtrace(*map(torch.from_numpy, arrays), **bars).vs[0].numpy()
        return np.bincount(self.states[0], self.chance * target)

    def expected_retrace(self, q, lam):
        x, a, ahead = self.states[:-1], self.actions, (self.pi * q).sum(1)[self.states[1:]]
        arrays = (self.log_rho, *self.given, q[x, a], ahead)
        target = retrace(*map(torch.from_numpy, arrays), lambda_=lam)[0].numpy()
        return np.bincount(2 * x[0] + a[0], self.chance * target).reshape(3, 2) / self.mu


@pytest.mark.parametrize("rho_bar, c_bar", [(None, 1.0), (math.inf, 0.4), (1.0, 1.0), (1.0, 0.3), (0.2, 0.2)])
def test_the_fixed_point_is_the_value_of_the_policy_that_rho_bar_chooses(rho_bar, c_bar):
    """Espeholt 2018, eq. 3: pi_rho_bar is min(rho_bar mu, pi), normalised; c_bar has no say in it."""
    mdp = Chances()
    policy = mdp.pi if rho_bar in (None, math.inf) else np.minimum(rho_bar * mdp.mu, mdp.pi)
    wanted = mdp.value(policy / policy.sum(1, keepdims=True))
    value = np.zeros(3)
    for _ in range(1000):
        value = mdp.expected_vtrace(value, rho_bar=rho_bar, c_bar=c_bar)
    np.testing.assert_allclose(value, wanted, atol=1e-6)


def test_a_rho_bar_near_0_learns_the_value_of_the_policy_that_acted():
    mdp = Chances()
    wanted = mdp.value(mdp.mu)
    np.testing.assert_allclose(mdp.expected_vtrace(wanted, rho_bar=1e-3, c_bar=1e-3), wanted, atol=1e-12)
    assert np.abs(wanted - mdp.value(mdp.pi)).max() > 0.1


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_the_fixed_point_of_retrace_is_the_q_of_the_policy_that_learns(lam):
    mdp, q = Chances(), np.zeros((3, 2))
    for _ in range(300):
        q = mdp.expected_retrace(q, lam)
    wanted = mdp.reward + GAMMA * mdp.next @ mdp.value(mdp.pi)
    np.testing.assert_allclose(q, wanted, atol=1e-9)


# ---------------------------------------------------------------- the paper's other corrections
@given(sizes, st.floats(0, 1))
def test_what_each_correction_weighs(size, lam):
    block = block_of(size)
    given_ = tensors(block)
    out = {name: corrected_returns(name, **given_, lambda_=lam) for name in CORRECTIONS}
    on_policy = direct_vtrace({**block, "log_rho": 0 * block["log_rho"]}, 1.0, 1.0, 1.0, lam)
    for name in ("none", "epsilon", "one_step"):
        np.testing.assert_allclose(out[name].vs.numpy(), on_policy[0], atol=1e-9)
    for name in ("none", "epsilon"):
        np.testing.assert_allclose(out[name].pg_advantage.numpy(), on_policy[1], atol=1e-9)
    weight = np.nan_to_num(np.minimum(1, np.exp(block["log_rho"])))
    np.testing.assert_allclose(out["one_step"].pg_advantage.numpy(), weight * on_policy[1], atol=1e-9)
    for found, wanted in zip(out["vtrace"], vtrace(**given_, lambda_=lam)):
        assert torch.equal(found, wanted)


def test_a_correction_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"correction is 'eps'.*epsilon"):
        corrected_returns("eps", **tensors(block_of((3, 2, 0))))


def test_epsilon_bounds_the_gradient_of_an_unlikely_action():
    log_prob = column(0.0, -5.0, -14.0, -1e4).requires_grad_()
    out = epsilon_log_prob(log_prob)
    prob = log_prob.detach().exp()
    torch.testing.assert_close(out, (prob + 1e-6).log())
    (grad,) = torch.autograd.grad(out.sum(), log_prob)
    torch.testing.assert_close(grad, prob / (prob + 1e-6))


# ---------------------------------------------------------------- kinds, devices, mistakes
def test_results_have_the_rewards_dtype_and_no_gradient_and_inputs_stay():
    block = {k: v.float().t().contiguous().t() for k, v in tensors(block_of((7, 3, 1))).items()}  # not contiguous
    block["log_rho"] = block["log_rho"].double().requires_grad_()
    before = {k: v.detach().clone() for k, v in block.items()}
    given_ = dict(block)
    for out in (
        *vtrace(**block),
        *corrected_returns("one_step", **block),
        retrace(q_value=given_.pop("value"), **given_),
    ):
        assert out.dtype == torch.float32 and out.shape == (7, 3)
        assert not out.requires_grad and torch.isfinite(out).all()
    for name, x in block.items():
        torch.testing.assert_close(x.detach(), before[name], rtol=0, atol=0, equal_nan=True)


def test_a_ratio_beyond_float_is_clipped_and_without_a_clip_reaches_no_other_episode():
    zero, cut = torch.zeros(3), torch.tensor([1.0, 0.0, 1.0])
    log_rho = torch.tensor([0.0, 1e4, -1e4])
    args = (log_rho, torch.ones(3), 0.9 * torch.ones(3), cut, zero, zero)
    torch.testing.assert_close(vtrace(*args).vs, torch.tensor([1.9, 1.0, 0.0]))
    assert torch.isfinite(torch.stack(vtrace(*args, rho_bar=None, c_bar=None))).all()


@given(sizes)
def test_the_scan_of_other_devices_is_the_scan(size):
    x, decay = np.random.default_rng(size[2]).normal(size=(2, *size[:2]))
    doubled = doubling_sum(torch.from_numpy(x.copy()), torch.from_numpy(decay))
    np.testing.assert_allclose(doubled.numpy(), reverse_scan(x, decay), rtol=1e-9, atol=1e-9)


def test_mistakes_are_told_by_name():
    block = tensors(block_of((5, 2, 0)))
    with pytest.raises(ValueError, match=r"next_value has shape \(5, 1\).*\(5, 2\)"):
        vtrace(**{**block, "next_value": block["next_value"][:, :1]})
    with pytest.raises(ValueError, match=r"mask has shape \(5,\)"):
        vtrace(**{**block, "mask": torch.ones(5)})
    for name in ("rho_bar", "c_bar", "pg_rho_bar"):
        with pytest.raises(ValueError, match=f"{name} is -1"):
            vtrace(**block, **{name: -1})
