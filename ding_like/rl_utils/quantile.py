"""Quantiles of returns, fixed or sampled. Dabney 2018a (QR-DQN), Dabney 2018b (IQN)."""

from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.td import at_action, nstep_terms, same_shape

qrdqn_nstep_td_data = namedtuple("qrdqn_nstep_td_data", "q next_n_q action next_n_action reward done tau weight")
iqn_nstep_td_data = namedtuple(
    "iqn_nstep_td_data", "q next_n_q action next_n_action reward done replay_quantiles weight"
)


def quantile_huber_loss(q: Tensor, target: Tensor, tau: Tensor, kappa: float = 1.0) -> tuple[Tensor, Tensor]:
    """Quantile regression by the Huber loss: summed over the K estimates, meaned over the K' targets.

    ``sum_i mean_j |tau_i - 1[d_ij < 0]| L(d_ij) / kappa`` with ``d_ij = target_j - q_i``; no gradient flows into the
    target. Dabney 2018a, eq. 10; with ``kappa=0`` L is the absolute value, eq. 8.

    Args:
        q: `[..., K]`; target: `[..., K']`.
        tau: `[..., K]`, the probabilities whose quantiles `q` estimates.

    Returns:
        The loss and, without gradient, the mean of ``|d_ij|``, `[...]` each.
    """
    if tau.shape != q.shape or target.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"q has shape {tuple(q.shape)}, tau {tuple(tau.shape)} and target {tuple(target.shape)}; wanted tau like "
            "q, and target with the leading axes of q"
        )
    estimates, targets = torch.broadcast_tensors(q.unsqueeze(-1), target.detach().unsqueeze(-2))  # [..., K, K']
    with torch.no_grad():
        td = targets - estimates
        weight = (tau.unsqueeze(-1) - (td < 0).to(td.dtype)).abs_().div_((kappa or 1.0) * target.shape[-1])
        error = td.abs_().mean((-2, -1))
    if kappa:
        loss = F.huber_loss(estimates, targets, reduction="none", delta=kappa)
    else:
        loss = F.l1_loss(estimates, targets, reduction="none")
    return (weight * loss).sum((-2, -1)), error


def quantile_td_loss(
    q: Tensor,
    tau: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_q: Tensor,
    target_action: Tensor,
    kappa: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """`quantile_huber_loss` of the quantiles of `action` to ``reward + discount * target_q[target_action]``.

    Args:
        q: `[..., A, K]`; tau: `[..., K]`.
        action, reward, discount, target_action: `[...]`.
        target_q: `[..., A, K']`.
    """
    same_shape(action.shape, q=q.shape[:-2], reward=reward.shape, discount=discount.shape)
    with torch.no_grad():
        ahead = at_action(target_q, target_action)  # [..., K']
        wanted = torch.addcmul(reward.unsqueeze(-1), discount.unsqueeze(-1), ahead)
    return quantile_huber_loss(at_action(q, action), wanted, tau, kappa)


def evaluate_quantile_at_action(q_s: Tensor, actions: Tensor) -> Tensor:
    """DI-engine's form: of quantiles `[B, K, A]` those of `actions [B]`, `[B, K, 1]`."""
    return at_action(q_s.transpose(1, 2), actions).unsqueeze(-1)


def qrdqn_nstep_td_error(
    data: qrdqn_nstep_td_data, gamma: float, nstep: int = 1, value_gamma: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """n-step QR-DQN in DI-engine's calling form.

    Args:
        data: `q` `[B, A, K]`, `next_n_q` `[B, A, K']`; `tau` `[K]`, `[B, K]` or `[B, K, 1]`; `action`, `next_n_action`
            `[B]`; `reward`, `done`, `weight` as in `q_nstep_td_error`.
        gamma, nstep, value_gamma: see there.

    Returns:
        The mean weighted loss, and the mean sizes of the errors `[B]` without gradient.
    """
    q, next_n_q, action, next_n_action, reward, done, tau, weight = data
    reward, discount = nstep_terms(reward, done, action, gamma, nstep, value_gamma)
    tau = (tau.squeeze(-1) if tau.dim() == 3 else tau).expand(len(action), q.shape[-1])
    loss, error = quantile_td_loss(q, tau, action, reward, discount, next_n_q, next_n_action)
    return masked_mean(loss, weight=weight), error


def iqn_nstep_td_error(
    data: iqn_nstep_td_data, gamma: float, nstep: int = 1, kappa: float = 1.0, value_gamma: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """n-step IQN in DI-engine's calling form: as `qrdqn_nstep_td_error`, but the axis of quantiles comes first.

    Args:
        data: `q` `[K, B, A]`, `next_n_q` `[K', B, A]`, `replay_quantiles` `[K, B]` or `[K B, 1]`; the others the same.
    """
    q, next_n_q, action, next_n_action, reward, done, tau, weight = data
    reward, discount = nstep_terms(reward, done, action, gamma, nstep, value_gamma)
    tau = tau.reshape(len(q), len(action)).T
    values = q.permute(1, 2, 0), tau, action, reward, discount, next_n_q.permute(1, 2, 0), next_n_action
    loss, error = quantile_td_loss(*values, kappa)
    return masked_mean(loss, weight=weight), error
