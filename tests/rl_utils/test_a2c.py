"""A2C's losses in DI-engine's form against numbers worked out by hand."""

import math

import pytest
import torch

from ding_like.rl_utils import a2c_data, a2c_error, a2c_error_continuous


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def uniform(weight=None):
    """Two items of three equally likely actions."""
    return a2c_data(
        torch.zeros(2, 3).double(),
        torch.tensor([0, 2]),
        tensor([0.0, 1.0]),
        tensor([1.0, -3.0]),
        tensor([2.0, 0.0]),
        weight,
    )


def test_by_hand():
    loss = a2c_error(uniform())
    assert loss.policy_loss.item() == pytest.approx(math.log(3) * (1 - 3) / 2)
    assert loss.value_loss.item() == pytest.approx((4 + 1) / 2)
    assert loss.entropy_loss.item() == pytest.approx(math.log(3))


def test_weighted_by_hand():
    loss = a2c_error(uniform(tensor([0.5, 2.0])))
    assert loss.policy_loss.item() == pytest.approx(math.log(3) * (0.5 - 6) / 2)
    assert loss.value_loss.item() == pytest.approx((2 + 2) / 2)
    assert loss.entropy_loss.item() == pytest.approx(math.log(3) * 1.25)


def test_the_gradient_is_that_of_the_policy_gradient_theorem():
    data = uniform()
    logit = data.logit.requires_grad_()
    a2c_error(data).policy_loss.backward()
    softmax = 1 / 3  # d(-adv log p)/d logit = adv (p - one_hot(action)), averaged over two items
    wanted = [[1 * (softmax - 1), softmax, softmax], [-3 * softmax, -3 * softmax, -3 * (softmax - 1)]]
    torch.testing.assert_close(logit.grad, tensor(wanted) / 2)


def test_continuous_by_hand():
    one = tensor([1.0])
    logit = {"mu": tensor([[0.0, 0.0]]), "sigma": tensor([[1.0, 2.0]])}
    loss = a2c_error_continuous(a2c_data(logit, tensor([[1.0, 0.0]]), one, 2 * one, one, None))
    log_prob = -0.5 - math.log(2) - math.log(2 * math.pi)
    assert loss.policy_loss.item() == pytest.approx(-2 * log_prob)
    assert loss.entropy_loss.item() == pytest.approx(math.log(2 * math.pi * math.e) + math.log(2))


def test_nothing_of_an_item_of_weight_zero_matters():
    weight = tensor([1.0, 0.0])
    clean, dirty = uniform(weight), uniform(weight)
    for x in (dirty.logit, dirty.value, dirty.adv, dirty.return_):
        x[1] = math.nan
    dirty.action[1] = 999
    for data in (clean, dirty):
        data.logit.requires_grad_()
        data.value.requires_grad_()
    wanted, loss = a2c_error(clean), a2c_error(dirty)
    assert [x.item() for x in loss] == [x.item() for x in wanted]
    sum(wanted).backward()
    sum(loss).backward()
    assert torch.equal(dirty.logit.grad, clean.logit.grad) and torch.equal(dirty.value.grad, clean.value.grad)


def test_a_column_of_values_is_refused():
    with pytest.raises(ValueError, match="shape"):
        a2c_error(uniform()._replace(value=torch.zeros(2, 1)))
