"""Losses of critics and of deterministic policies: unreduced, but for the two with DI-engine's signatures."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ding_like.rl_utils.loss import masked_mean, select

v_1step_td_data = namedtuple("v_1step_td_data", ["v", "next_v", "reward", "done", "weight"])
v_nstep_td_data = namedtuple("v_nstep_td_data", ["v", "next_n_v", "reward", "done", "weight", "value_gamma"])


def critic_loss(q_value: Tensor, target: Tensor) -> Tensor:
    """``sum_k (Q_k - target)^2 / 2`` `[...]` of K critics `[K, ...]`; no gradient flows into the target.

    Fujimoto 2018, algorithm 1.
    """
    _same_shape(q_value.shape[1:], target=target)
    return 0.5 * (q_value - target.detach()).square().sum(0)


def deterministic_policy_loss(q_value: Tensor) -> Tensor:
    """``-Q_1(s, mu(s))`` `[...]` of critics `[K, ...]`; gradients pass through the action. Silver 2014, eq. 9."""
    return -q_value[0]


def smoothed_action(action: Tensor, noise: Tensor, low: float, high: float) -> Tensor:
    """Target policy smoothing, `[..., d]`: the action plus noise cut to [low, high], the sum cut to [-1, 1].

    All in the policy's units, in which every dimension of the box is [-1, 1]. Fujimoto 2018, section 5.3.
    """
    _same_shape(action.shape, noise=noise)
    return (action + noise.clamp(low, high)).clamp(-1.0, 1.0)


def v_1step_td_error(
    data: v_1step_td_data, gamma: float, criterion: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """As `v_nstep_td_error` with ``nstep=1``; `reward [B]`."""
    v, next_v, reward, done, weight = data
    return v_nstep_td_error(v_nstep_td_data(v, next_v, reward[None], done, weight, None), gamma, 1, criterion)


def v_nstep_td_error(
    data: v_nstep_td_data, gamma: float, nstep: int = 1, criterion: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """TD learning of a value (of a state, or of a state and an action) in DI-engine's calling form.

    Args:
        data: `v`, `next_n_v` `[B]`; `reward [nstep, B]`; `done [B]` (do not bootstrap); `weight [B]` or None, where a
            weight of 0 takes the item out of the loss; `value_gamma [B]`, gamma^k with the true distance k to the
            bootstrap, None means gamma^nstep.
        criterion: unreduced loss of (estimate, target); None means squared error.

    Returns:
        The mean of ``weight * criterion``, and `|td|` `[B]` without gradient, fit as a priority.
    """
    v, next_n_v, reward, done, weight, value_gamma = data
    _same_shape(v.shape, next_n_v=next_n_v, done=done)
    _same_shape((nstep, *v.shape), reward=reward)
    with torch.no_grad():
        powers = gamma ** torch.arange(nstep, dtype=v.dtype, device=v.device)
        bootstrap = gamma**nstep if value_gamma is None else value_gamma
        target = torch.tensordot(powers, reward.to(v.dtype), dims=1) + bootstrap * (1 - done.to(v.dtype)) * next_n_v
    used = None if weight is None else weight != 0
    loss = (criterion or nn.MSELoss(reduction="none"))(select(v, used), select(target, used))
    return masked_mean(loss, weight=weight), (target - v.detach()).abs()


def _same_shape(wanted: tuple[int, ...], **given: Tensor) -> None:
    """Equal shapes are asked for because `[B, 1]` against `[B]` would broadcast to `[B, B]` unseen."""
    for name, value in given.items():
        if tuple(value.shape) != tuple(wanted):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; wanted {tuple(wanted)}")
