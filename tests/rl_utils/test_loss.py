"""Masked means and the Huber loss."""

import pytest
import torch

from ding_like.rl_utils.loss import huber, masked_mean, select


@pytest.mark.parametrize("junk", [1e9, float("nan"), float("inf")])
def test_padding_changes_neither_value_nor_gradient(junk):
    """B29: per-step losses 1, 1, 1 and padding give a mean of 1."""
    x = torch.tensor([1.0, 1.0, 1.0, junk], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 1.0, 1.0, junk], dtype=torch.float64)
    for mask in (torch.tensor([1.0, 1, 1, 0]), torch.tensor([True, True, True, False])):
        for kwargs in ({}, {"weight": weight}):
            loss = masked_mean(x, mask, **kwargs)
            (grad,) = torch.autograd.grad(loss, x)
            assert loss.item() == 1.0
            torch.testing.assert_close(grad, torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64) / 3)


def test_a_selected_away_nan_gives_no_gradient_through_a_nonlinear_loss():
    q = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    reward, mask = torch.tensor([1.0, float("nan")], dtype=torch.float64), torch.tensor([True, False])
    masked_mean(huber(select(reward - q, mask)), mask).backward()
    assert q.grad.tolist() == [-0.5, 0.0]


def test_weights_do_not_enter_the_divisor():
    x, weight = torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.0])
    assert masked_mean(x, weight=weight).item() == pytest.approx((0.5 + 3.0) / 2)
    assert masked_mean(torch.ones(3, 2), torch.ones(3, 2), weight).item() == pytest.approx(0.75)


def test_a_mask_that_keeps_nothing_gives_zero():
    assert masked_mean(torch.full((2,), float("nan")), torch.zeros(2)).item() == 0.0


def test_shapes_that_would_broadcast_unseen_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4,\)"):
        masked_mean(torch.ones(4), torch.ones(4, 1))
    with pytest.raises(ValueError, match="weight"):
        masked_mean(torch.ones(4), weight=torch.ones(4, 1))


def test_huber_is_quadratic_then_linear():
    td = torch.tensor([0.0, 0.5, -1.0, 3.0, -4.0], dtype=torch.float64)
    torch.testing.assert_close(huber(td), torch.tensor([0.0, 0.125, 0.5, 2.5, 3.5], dtype=torch.float64))
    torch.testing.assert_close(huber(td, 2.0)[3:], torch.tensor([4.0, 6.0], dtype=torch.float64))


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    x = (torch.randn(3, 4, dtype=torch.float64) * 2).requires_grad_()
    weight = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(3, 4) < 0.6
    assert torch.autograd.gradcheck(lambda x, w: masked_mean(huber(x), mask, w), (x, weight))
