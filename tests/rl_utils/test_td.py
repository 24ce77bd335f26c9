"""Q-learning errors against sums written out in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.rl_utils.td import (
    q_1step_td_data,
    q_1step_td_error,
    q_learning_error,
    q_nstep_td_data,
    q_nstep_td_error,
)


def tensor(x) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def random_batch(n: int = 3, size: int = 7, actions: int = 4):
    rng = np.random.default_rng(0)
    q, next_q = rng.normal(size=(2, size, actions))
    action, next_action = rng.integers(0, actions, (2, size))
    return (
        q,
        next_q,
        action,
        next_action,
        rng.normal(size=(n, size)),
        rng.random(size) < 0.4,
        rng.random(size),
    )


def test_double_q_takes_the_online_choice_and_the_targets_value():
    """B37: online [1, 5], target [10, 2] at the next observation; r = 0, discount 1."""
    q, action = tensor([[0.0, 0.0]]), torch.tensor([0])
    online, target = tensor([[1.0, 5.0]]), tensor([[10.0, 2.0]])
    zero, one = tensor([0.0]), tensor([1.0])
    assert q_learning_error(q, action, zero, one, target, online.argmax(-1)).item() == 2.0
    assert q_learning_error(q, action, zero, one, target).item() == 10.0


def test_error_equals_the_sum_written_out_and_only_the_estimate_has_a_gradient():
    q, next_q, action, next_action, reward, done, _ = random_batch()
    discount = 0.9**2 * (1 - done)
    estimate, target = tensor(q).requires_grad_(), tensor(next_q).requires_grad_()
    td = q_learning_error(
        estimate, torch.tensor(action), tensor(reward[0]), tensor(discount), target, torch.tensor(next_action)
    )
    for i in range(len(action)):
        wanted = reward[0, i] + discount[i] * next_q[i, next_action[i]] - q[i, action[i]]
        assert td[i].item() == pytest.approx(wanted, abs=1e-12)
    td.sum().backward()
    assert target.grad is None
    np.testing.assert_array_equal(estimate.grad, -np.eye(q.shape[1])[action])


def test_leading_time_axis_gives_the_same_numbers():
    q, next_q, action, _, reward, done, _ = random_batch(size=6)
    args = (tensor(q), torch.tensor(action), tensor(reward[0]), tensor(0.9 * (1 - done)), tensor(next_q))
    flat = q_learning_error(*args)
    shaped = q_learning_error(*(a.reshape(2, 3, *a.shape[1:]) for a in args))
    torch.testing.assert_close(shaped, flat.reshape(2, 3))


@pytest.mark.parametrize("criterion", [None, nn.SmoothL1Loss(reduction="none")])
@pytest.mark.parametrize("cum_reward", [True, False])
def test_nstep_loss_and_priority(cum_reward, criterion):
    q, next_q, action, next_action, reward, done, weight = random_batch(n=3)
    value_gamma = 0.9 ** np.array([3, 3, 2, 1, 3, 2, 1.0])
    summed = sum(0.9**i * reward[i] for i in range(3))
    index = np.arange(len(action))
    td = summed + value_gamma * (1 - done) * next_q[index, next_action] - q[index, action]
    data = q_nstep_td_data(
        tensor(q),
        tensor(next_q),
        torch.tensor(action),
        torch.tensor(next_action),
        tensor(summed if cum_reward else reward),
        torch.tensor(done),
        tensor(weight),
    )
    loss, priority = q_nstep_td_error(data, 0.9, 3, cum_reward, tensor(value_gamma), criterion)
    each = td**2 if criterion is None else np.where(abs(td) < 1, td**2 / 2, abs(td) - 0.5)
    assert loss.item() == pytest.approx((weight * each).mean(), abs=1e-12)
    np.testing.assert_allclose(priority, abs(td), atol=1e-12)
    whole, _ = q_nstep_td_error(data, 0.9, 3, cum_reward, None)
    assert whole.item() == pytest.approx(
        (weight * (summed + 0.729 * (1 - done) * next_q[index, next_action] - q[index, action]) ** 2).mean()
    )


def test_one_step_form_is_the_nstep_form_with_one_reward():
    q, next_q, action, next_action, reward, done, _ = random_batch(n=1)
    rest = (torch.tensor(done), None)
    picks = (tensor(q), tensor(next_q), torch.tensor(action), torch.tensor(next_action))
    one = q_1step_td_error(q_1step_td_data(*picks, tensor(reward[0]), *rest), 0.9)
    for layout in (reward, reward[0]):
        loss, _ = q_nstep_td_error(q_nstep_td_data(*picks, tensor(layout), *rest), 0.9)
        torch.testing.assert_close(loss, one)
    index = np.arange(len(action))
    td = reward[0] + 0.9 * (1 - done) * next_q[index, next_action] - q[index, action]
    assert one.item() == pytest.approx((td**2).mean())


def test_an_item_of_weight_zero_cannot_hurt():
    q, next_q, action, _, reward, done, _ = random_batch(n=1)
    reward[0, 2] = np.nan
    estimate, weight = tensor(q).requires_grad_(), tensor(np.arange(7) != 2)
    picks = (
        estimate,
        tensor(next_q),
        torch.tensor(action),
        None,
        tensor(reward[0]),
        torch.tensor(done),
        weight,
    )
    loss, _ = q_nstep_td_error(q_nstep_td_data(*picks), 0.9)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(estimate.grad).all() and (estimate.grad[2] == 0).all()


def test_wrong_shapes_are_refused():
    """B44: `[N, 1]` against `[N]` would broadcast to `[N, N]`."""
    q, action, flat = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.zeros(4)
    with pytest.raises(ValueError, match=r"reward has shape \(4, 1\)"):
        q_learning_error(q, action, torch.zeros(4, 1), flat, q)
    for reward, kwargs in ((torch.zeros(2, 4), dict(nstep=3)), (flat, dict(nstep=3))):
        with pytest.raises(ValueError, match="nstep=3"):
            q_nstep_td_error(q_nstep_td_data(q, q, action, action, reward, flat, None), 0.9, **kwargs)
