"""PPO's losses in DI-engine's form: closed-form numbers, and padding that must not matter."""

import math

import pytest
import torch

from ding_like.rl_utils import (
    ppo_data,
    ppo_data_continuous,
    ppo_error,
    ppo_error_continuous,
    ppo_policy_data,
    ppo_policy_error,
    ppo_value_data,
    ppo_value_error,
)
from ding_like.rl_utils.distribution import MASKED


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def joint(ratios, weight=None):
    """Case B44's batch: action spaces of 2 and 3, uniform new logits, old ones that make these ratios."""
    old = [0.5 / r for r in ratios]  # old probability of the first part's action, which is 0 in every row
    log_odds = [MASKED if p >= 1 else math.log((1 - p) / p) for p in old]
    old_logit = tensor([[0.0, x] for x in log_odds]), torch.zeros(4, 3).double()
    new_logit = torch.zeros(4, 2).double(), torch.zeros(4, 3).double()
    action, zero = torch.tensor([[0, 0], [0, 2], [0, 1], [0, 1]]), torch.zeros(4).double()
    return ppo_data(new_logit, old_logit, action, zero, zero, tensor([1.0, 2, 3, 4]), zero, weight)


@pytest.mark.parametrize(
    ("ratios", "wanted", "cut"), [([1, 1.1, 0.9, 1], -2.475, 0.0), ([1, 1.5, 0.5, 1], -2.225, 0.5)]
)
def test_closed_form_of_a_joint_action(ratios, wanted, cut):
    """Case B44: an N x N broadcast would give -2.5, entropy is that of both parts."""
    loss, info = ppo_error(joint(ratios))
    assert loss.policy_loss.item() == pytest.approx(wanted)
    assert loss.entropy_loss.item() == pytest.approx(1.791759)
    assert loss.value_loss.item() == 0
    assert info.clipfrac == pytest.approx(cut)
    assert info.approx_kl == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 4)


def test_a_policy_that_has_not_moved():
    loss, info = ppo_error(joint([1, 1, 1, 1]))
    assert loss.policy_loss.item() == pytest.approx(-2.5)  # minus the mean advantage
    assert info.approx_kl == pytest.approx(0, abs=1e-15) and info.clipfrac == 0


def test_weights_scale_each_item():
    weight = tensor([2.0, 1.0, 0.0, 0.5])
    loss, info = ppo_error(joint([1, 1.5, 0.5, 1], weight))
    assert loss.policy_loss.item() == pytest.approx(-(2 * 1 + 2.4 + 0 + 0.5 * 4) / 4)
    assert loss.entropy_loss.item() == pytest.approx(math.log(6) * 3.5 / 4)
    assert info.clipfrac == pytest.approx(1 / 3)  # of the three items that count


def test_value_part_with_and_without_the_clip():
    data = ppo_value_data(tensor([1.0, 1.0]), tensor([0.0, 0.9]), tensor([3.0, 0.0]), None)
    assert ppo_value_error(data, 0.2).item() == pytest.approx((0.5 * 2.8**2 + 0.5) / 2)
    assert ppo_value_error(data, use_value_clip=False).item() == pytest.approx((2.0 + 0.5) / 2)


def test_the_dual_clip_reaches_the_loss():
    data = ppo_policy_data(tensor([[0.0, 0.0]]), tensor([[-5.0, 0.0]]), torch.tensor([0]), tensor([-1.0]), None)
    ratio = 0.5 * (1 + math.exp(5))
    assert ppo_policy_error(data)[0].policy_loss.item() == pytest.approx(ratio)
    assert ppo_policy_error(data, dual_clip=3.0)[0].policy_loss.item() == pytest.approx(3.0)


def test_continuous_actions():
    mu, sigma, action = tensor([[0.0, 1.0]]), tensor([[1.0, 2.0]]), tensor([[0.5, 1.0]])
    new, old = {"mu": mu, "sigma": sigma}, {"mu": mu + tensor([0.5, 0.0]), "sigma": sigma}
    one = tensor([1.0])
    loss, _ = ppo_error_continuous(ppo_data_continuous(new, old, action, one, one, one, one, None))
    assert loss.policy_loss.item() == pytest.approx(-math.exp(-0.125))  # the old density is at its peak
    assert loss.entropy_loss.item() == pytest.approx(math.log(2 * math.pi * math.e) + math.log(2))


def batch(kind, seed, n=6):
    draw = torch.Generator().manual_seed(seed)
    new, old = (torch.randn(n, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    action = torch.randint(0, 3, (n,), generator=draw)
    if kind is ppo_data_continuous:
        new, old = ({"mu": x, "sigma": x.exp()} for x in (new, old))
        action = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    floats = list(torch.randn(4, n, generator=draw, dtype=torch.float64))
    return kind(new, old, action, *floats, torch.ones(n, dtype=torch.float64))


@pytest.mark.parametrize("kind", [ppo_data, ppo_data_continuous])
def test_nothing_of_an_item_of_weight_zero_matters(kind):
    results = []
    for junk in (None, math.nan, math.inf):
        data = batch(kind, 0)
        data.weight[[1, 4]] = 0
        leaves = [x for part in data for x in (part.values() if isinstance(part, dict) else [part])]
        for x in leaves[:-1]:
            if junk is not None:
                x[[1, 4]] = junk if x.is_floating_point() else 10**6
            if x.is_floating_point():
                x.requires_grad_()
        loss, info = ppo_error(data)
        (loss.policy_loss + loss.value_loss - loss.entropy_loss).backward()
        learnt = leaves[0].grad if kind is ppo_data else torch.cat([leaves[0].grad, leaves[1].grad])
        results.append([torch.stack(list(loss)).detach(), torch.tensor(info), learnt, data.value_new.grad])
    for other in results[1:]:
        for ours, wanted in zip(other, results[0]):
            torch.testing.assert_close(ours, wanted, rtol=0, atol=0)
    assert (results[0][2] != 0).any()


def test_no_gradient_reaches_what_was_collected():
    data = batch(ppo_data, 1)
    for x in data[:2] + data[3:7]:
        x.requires_grad_()
    loss, _ = ppo_error(data)
    sum(loss).backward()
    assert data.logit_old.grad is None
    assert data.logit_new.grad is not None and data.value_new.grad is not None


def test_shapes_that_would_broadcast_are_refused():
    data = batch(ppo_data, 2)
    for field in ("adv", "return_", "value_old"):
        with pytest.raises(ValueError, match="shape"):
            ppo_error(data._replace(**{field: getattr(data, field)[:, None]}, weight=None))
