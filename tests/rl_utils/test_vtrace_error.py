"""V-trace in DI-engine's form against the array functions, and numbers worked out by hand."""

import math

import pytest
import torch

from ding_like.rl_utils import (
    compute_importance_weights,
    vtrace,
    vtrace_advantage,
    vtrace_data,
    vtrace_error_continuous_action,
    vtrace_error_discrete_action,
    vtrace_nstep_return,
)
from ding_like.rl_utils.distribution import Categorical

T, B, A, GAMMA, LAMBDA = 6, 3, 4, 0.9, 0.8


def random_data(weight=None):
    torch.manual_seed(0)
    logit, behaviour = torch.randn(2, T, B, A).double()
    action = torch.randint(A, (T, B))
    return vtrace_data(logit, behaviour, action, torch.randn(T + 1, B).double(), torch.randn(T, B).double(), weight)


def test_discrete_losses_are_the_means_of_what_the_array_function_gives():
    data = random_data()
    log_prob = Categorical(data.target_output).log_prob(data.action)
    log_rho, one = log_prob - Categorical(data.behaviour_output).log_prob(data.action), torch.ones(T, B).double()
    bars = dict(rho_bar=0.9, c_bar=0.8, pg_rho_bar=1.2, lambda_=LAMBDA)
    vs, advantage = vtrace(log_rho, data.reward, GAMMA * one, one, data.value[:-1], data.value[1:], **bars)
    loss = vtrace_error_discrete_action(data, GAMMA, LAMBDA, 0.9, 0.8, 1.2)
    torch.testing.assert_close(loss.policy_loss, -(advantage * log_prob).mean())
    torch.testing.assert_close(loss.value_loss, (data.value[:-1] - vs).square().mean())
    torch.testing.assert_close(loss.entropy_loss, Categorical(data.target_output).entropy().mean())


def test_the_parts_put_together_give_the_same_losses():
    data = random_data()
    rho = compute_importance_weights(data.target_output, data.behaviour_output, data.action)
    clipped = rho.clamp(max=1)
    vs = vtrace_nstep_return(clipped, clipped, data.reward, data.value, GAMMA, LAMBDA)
    after = torch.cat([vs[1:], data.value[-1:]])
    advantage = vtrace_advantage(clipped, data.reward, after, data.value[:-1], GAMMA)
    loss = vtrace_error_discrete_action(data, GAMMA, LAMBDA)
    log_prob = Categorical(data.target_output).log_prob(data.action)
    torch.testing.assert_close(loss.policy_loss, -(advantage * log_prob).mean())
    torch.testing.assert_close(loss.value_loss, (data.value[:-1] - vs).square().mean())


def test_by_hand():
    """Case B02's second column, of ratios 2, 0.5 and 1 between distributions of two actions."""
    prob, behaviour = (torch.tensor(x, dtype=torch.float64) for x in ([[0.8], [0.2], [0.5]], [[0.4], [0.4], [0.5]]))
    logits = [torch.stack([p, 1 - p], -1).log() for p in (prob, behaviour)]  # [3, 1, 2]
    value = torch.tensor([0.5, 0.5, 0.5, 1]).double().unsqueeze(1)
    reward = torch.tensor([1.0, 2, 3]).double().unsqueeze(1)
    loss = vtrace_error_discrete_action(
        vtrace_data(*logits, torch.zeros(3, 1).long(), value, reward, None), 0.9, lambda_=1.0
    )
    advantage = [3.2045, 2.505, 3.4]
    policy_loss = -sum(a * math.log(p) for a, p in zip(advantage, (0.8, 0.2, 0.5))) / 3
    assert loss.policy_loss.item() == pytest.approx(policy_loss)
    assert loss.value_loss.item() == pytest.approx((3.2045**2 + 2.505**2 + 3.4**2) / 3)


def test_continuous_by_hand():
    """One step, one action of two numbers: densities by hand, ratio exp(-1/2) below the clip."""
    mu, sigma = torch.zeros(1, 1, 2).double(), torch.ones(1, 1, 2).double()
    action = torch.tensor([[[1.0, 0.0]]]).double()
    data = vtrace_data(
        {"mu": mu, "sigma": sigma},
        {"mu": mu + torch.tensor([1.0, 0.0]), "sigma": sigma},
        action,
        torch.tensor([[1.0], [2.0]]).double(),
        torch.tensor([[3.0]]).double(),
        None,
    )
    loss = vtrace_error_continuous_action(data, gamma=0.5)
    rho, log_prob = math.exp(-0.5), -0.5 - math.log(2 * math.pi)
    assert loss.policy_loss.item() == pytest.approx(-rho * 3 * log_prob)  # 3 + 0.5 * 2 - 1 = 3
    assert loss.value_loss.item() == pytest.approx((rho * 3) ** 2)
    assert loss.entropy_loss.item() == pytest.approx(math.log(2 * math.pi * math.e))
    ratio = compute_importance_weights(data.target_output, data.behaviour_output, action, "continuous")
    assert ratio.item() == pytest.approx(rho)


def test_steps_of_weight_0_count_for_nothing():
    weight = torch.ones(T, B).double()
    weight[4:, 1] = 0  # an episode ended at step 3: the value after it is 0
    clean, dirty = random_data(weight), random_data(weight)
    for data in (clean, dirty):
        data.value[4:, 1] = 0
    for x in (dirty.target_output, dirty.behaviour_output, dirty.reward, dirty.value[1:]):
        x[4:, 1] = math.nan
    dirty.action[4:, 1] = 999
    results = []
    for data in (clean, dirty):
        data.target_output.requires_grad_()
        data.value.requires_grad_()
        loss = vtrace_error_discrete_action(data)
        sum(loss).backward()
        results.append((torch.stack(loss), data.target_output.grad, data.value.grad))
    for one, other in zip(*results):
        assert torch.equal(one, other)
    assert not results[0][1][4:, 1].any()
    whole = vtrace_error_discrete_action(random_data())
    assert results[0][0][2] != whole.entropy_loss  # the mean is over the steps that are left


def test_ratios_carry_a_gradient_only_where_it_is_asked_for():
    data = random_data()
    data.target_output.requires_grad_()
    args = (data.target_output, data.behaviour_output, data.action)
    assert not compute_importance_weights(*args).requires_grad
    assert compute_importance_weights(*args, requires_grad=True).requires_grad
