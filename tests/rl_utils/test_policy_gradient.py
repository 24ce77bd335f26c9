"""Actor-critic losses against numbers worked out by hand."""

import math

import pytest
import torch

from ding_like.rl_utils.distribution import MultiCategorical
from ding_like.rl_utils.policy_gradient import clipped_surrogate, policy_gradient_loss, value_loss


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def surrogate(ratio, advantage, *args):
    log_prob = tensor(ratio).log()
    return clipped_surrogate(log_prob, torch.zeros_like(log_prob), tensor(advantage), *args)[0].tolist()


@pytest.mark.parametrize(("ratios", "wanted"), [([1, 1.1, 0.9, 1], -2.475), ([1, 1.5, 0.5, 1], -2.225)])
def test_one_ratio_a_row_for_joint_actions(ratios, wanted):
    """Case B44."""
    distribution = MultiCategorical((torch.zeros(4, 2).double(), torch.zeros(4, 3).double()))
    log_prob = distribution.log_prob(torch.tensor([[0, 0], [1, 2], [0, 1], [1, 1]]))
    torch.testing.assert_close(log_prob, torch.full((4,), -math.log(6), dtype=torch.float64))
    torch.testing.assert_close(distribution.entropy(), torch.full((4,), math.log(6), dtype=torch.float64))
    loss, ratio = clipped_surrogate(log_prob, log_prob - tensor(ratios).log(), tensor([1.0, 2, 3, 4]), 0.2)
    assert ratio.shape == (4,)
    assert ratio.tolist() == pytest.approx(ratios)
    assert loss.mean().item() == pytest.approx(wanted)


def test_the_clip_takes_the_worse_side():
    # advantage 2: a ratio above 1.2 earns no more; advantage -2: a ratio below 0.8 saves no more
    assert surrogate([1.5, 0.5, 1.1], [2.0, 2.0, 2.0], 0.2) == pytest.approx([-2.4, -1.0, -2.2])
    assert surrogate([1.5, 0.5, 1.1], [-2.0, -2.0, -2.0], 0.2) == pytest.approx([3.0, 1.6, 2.2])


def test_the_dual_clip_bounds_the_loss_of_bad_actions_alone():
    assert surrogate([10.0, 2.0, 10.0], [-2.0, -2.0, 2.0], 0.2, 3.0) == pytest.approx([6.0, 4.0, -2.4])
    assert surrogate([10.0], [-2.0], 0.2) == pytest.approx([20.0])
    with pytest.raises(ValueError, match=r"dual_clip is 1.0; wanted a number above 1"):
        surrogate([1.0], [1.0], 0.2, 1.0)


def test_clipped_items_pull_on_nothing():
    log_prob = tensor([1.5, 1.1, 0.5]).log().requires_grad_()
    loss, _ = clipped_surrogate(log_prob, torch.zeros(3).double(), tensor([1.0, 1.0, -1.0]), 0.2)
    loss.sum().backward()
    assert log_prob.grad.tolist() == pytest.approx([0.0, -1.1, 0.0])


def test_policy_gradient_pulls_by_the_advantage():
    log_prob, advantage = tensor([-1.0, -2.0]).requires_grad_(), tensor([3.0, -0.5]).requires_grad_()
    loss = policy_gradient_loss(log_prob, advantage)
    assert loss.tolist() == [3.0, -1.0]
    loss.sum().backward()
    assert log_prob.grad.tolist() == [-3.0, 0.5] and advantage.grad is None


def test_value_loss_is_half_the_square_or_the_worse_of_two():
    value, target, old = tensor([1.0, 1.0, 1.0, 0.4]), tensor([3.0, 3.0, 0.0, 0.0]), tensor([0.0, 1.1, 0.0, 0.3])
    assert value_loss(value, target).tolist() == pytest.approx([2.0, 2.0, 0.5, 0.08])
    # moved to 0.2, 1.0, 0.2, 0.4: the first is worse clipped; the third is not, and counts unclipped
    assert value_loss(value, target, old, 0.2).tolist() == pytest.approx([0.5 * 2.8**2, 2.0, 0.5, 0.08])
    with pytest.raises(ValueError, match="needs both"):
        value_loss(value, target, clip=0.2)


@pytest.mark.parametrize("name", ["advantage", "behaviour_log_prob", "target", "old_value"])
def test_a_column_against_a_row_is_refused(name):
    flat = {"log_prob": torch.zeros(4), "behaviour_log_prob": torch.zeros(4), "advantage": torch.zeros(4)}
    values = {"value": torch.zeros(4), "target": torch.zeros(4), "old_value": torch.zeros(4)}
    call, arguments = (value_loss, values) if name in values else (clipped_surrogate, flat)
    arguments[name] = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=rf"{name} has shape \(4, 1\)"):
        call(**arguments, **({"clip": 0.2} if call is value_loss else {"clip_ratio": 0.2}))
