"""V-trace, what the paper compares it with, and Retrace: targets of `[T, ...]` blocks collected by another policy.

Arguments as in `gae.gae_advantage`: `discount` and `cut` come from `adder.make_masks`, `next_value` is the value of the
true next observation, rows whose `mask` is 0 return 0 and reach no other row. `log_rho` is the log-probability of the
action under the policy that learns less that under the policy that acted. All are tensors of the shape of `reward`;
results have its dtype and device, and no gradient. The recursion is `scan.reverse_scan` on the CPU, and stays on any
other device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ding_like.rl_utils.loss import select
from ding_like.rl_utils.scan import reverse_scan

CORRECTIONS = ("vtrace", "one_step", "epsilon", "none")
EPSILON = 1e-6  # Espeholt 2018, 5.2.2
LARGEST_LOG = 80.0  # of a ratio; its exponential, without a clip, is finite in float32


class VtraceReturns(NamedTuple):
    """`vs [T, ...]`, what the value learns, and `pg_advantage [T, ...]`, the weight of the policy's gradient."""

    vs: Tensor
    pg_advantage: Tensor


@torch.no_grad()
def vtrace(
    log_rho: Tensor,
    reward: Tensor,
    discount: Tensor,
    cut: Tensor,
    value: Tensor,
    next_value: Tensor,
    *,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    pg_rho_bar: float | None = None,
    lambda_: float = 1.0,
    mask: Tensor | None = None,
) -> VtraceReturns:
    """``vs_t = v_t + x_t``, ``x_t = rho_t delta_t + discount_t cut_t c_t x_{t+1}``.  Espeholt 2018, eq. 1 and remark 1.

    ``rho_t = min(rho_bar, ratio_t)`` decides whose value is learned (eq. 3), ``c_t = lambda min(c_bar, ratio_t)`` how
    fast (lambda: remark 2). The advantage is ``rho_t (r_t + discount_t (v'_t + cut_t x_{t+1}) - v_t)``, with a clip of
    its own (section 4.2). A block's last row bootstraps from `next_value`.

    Args:
        rho_bar, c_bar: largest ratios, not negative; None (or infinity) does not clip.
        pg_rho_bar: that of the advantage; None: `rho_bar`.
    """
    log_rho, reward, discount, cut, value, next_value = _tensors(
        mask, log_rho=log_rho, reward=reward, discount=discount, cut=cut, value=value, next_value=next_value
    )
    rho = clipped_ratio(log_rho, rho_bar, "rho_bar")
    c = rho if c_bar == rho_bar else clipped_ratio(log_rho, c_bar, "c_bar")
    delta, follows = reward + discount * next_value - value, discount * cut
    x = reverse_sum(rho * delta, follows * c * lambda_)
    delta[:-1] += follows[:-1] * x[1:]  # r + discount (v' + cut x') - v
    pg_rho = rho if pg_rho_bar in (None, rho_bar) else clipped_ratio(log_rho, pg_rho_bar, "pg_rho_bar")
    return VtraceReturns(value + x, pg_rho * delta)


def corrected_returns(
    correction: str,
    log_rho: Tensor,
    reward: Tensor,
    discount: Tensor,
    cut: Tensor,
    value: Tensor,
    next_value: Tensor,
    *,
    rho_bar: float | None = 1.0,
    c_bar: float | None = 1.0,
    pg_rho_bar: float | None = None,
    lambda_: float = 1.0,
    mask: Tensor | None = None,
) -> VtraceReturns:
    """The targets of one of the `CORRECTIONS` that the paper compares.  Espeholt 2018, section 5.2.2.

    `vtrace`: as `vtrace`. `none`: as if the policy that learns had acted: the n-step return, which no ratio enters.
    `epsilon`: these same targets, where the loss takes `epsilon_log_prob` of the action in place of its logarithm.
    `one_step`: the value learns as in `none`, each advantage is multiplied by its own clipped ratio.
    """
    if correction not in CORRECTIONS:
        raise ValueError(f"correction is {correction!r}; choose one of {', '.join(CORRECTIONS)}")
    block = (reward, discount, cut, value, next_value)
    if correction == "vtrace":
        return vtrace(log_rho, *block, rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=pg_rho_bar, lambda_=lambda_, mask=mask)
    out = vtrace(torch.zeros_like(log_rho), *block, lambda_=lambda_, mask=mask)
    if correction != "one_step":
        return out
    bar = rho_bar if pg_rho_bar is None else pg_rho_bar
    weight = clipped_ratio(log_rho.detach().type_as(out.vs), bar, "pg_rho_bar")
    return out._replace(pg_advantage=select(weight, mask) * out.pg_advantage)


def epsilon_log_prob(log_prob: Tensor, epsilon: float = EPSILON) -> Tensor:
    """``log(prob + epsilon)``, which bounds the gradient of an action that has become unlikely; like `log_prob`.

    Babaeizadeh 2017; for the `epsilon` of `corrected_returns`.
    """
    return torch.logaddexp(log_prob, torch.full_like(log_prob, math.log(epsilon)))


@torch.no_grad()
def retrace(
    log_rho: Tensor,
    reward: Tensor,
    discount: Tensor,
    cut: Tensor,
    q_value: Tensor,
    next_value: Tensor,
    *,
    lambda_: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Targets `[T, ...]` of Q: ``q_t + x_t``, ``x_t = delta_t + discount_t cut_t c_{t+1} x_{t+1}``.  Munos 2016, eq. 4.

    ``delta_t = r_t + discount_t v'_t - q_t`` and ``c_t = lambda min(1, ratio_t)``: what is known of an action is not
    weighed by its own probability, so that the first ratio is left out.

    Args:
        q_value: of the action that was taken.
        next_value: the mean of Q at the true next observation over the actions of the policy that learns.
    """
    log_rho, reward, discount, cut, q_value, next_value = _tensors(
        mask, log_rho=log_rho, reward=reward, discount=discount, cut=cut, q_value=q_value, next_value=next_value
    )
    decay = discount * cut * lambda_
    decay[:-1] *= log_rho[1:].clamp(max=0).exp()
    return q_value + reverse_sum(reward + discount * next_value - q_value, decay)


def clipped_ratio(log_rho: Tensor, bar: float | None, name: str) -> Tensor:
    """``min(bar, exp(log_rho))``; None does not clip. Raises ValueError for a `bar` (its `name` is told) below 0."""
    ratio = log_rho.clamp(max=LARGEST_LOG).exp()
    if bar is None:
        return ratio
    if not bar >= 0:
        raise ValueError(f"{name} is {bar}; wanted a number from 0 on, or None for no clip")
    return ratio.clamp(max=bar)


def reverse_sum(x: Tensor, decay: Tensor) -> Tensor:
    """``y_t = x_t + decay_t y_{t+1}`` over the first axis; on the CPU in the memory of `x`, if that is contiguous.

    Elsewhere every round doubles how far ahead a row has seen, so that T rows cost log2(T) rounds, not T.
    """
    if x.device.type == "cpu":
        return torch.from_numpy(reverse_scan(x.contiguous().numpy(), decay.contiguous().numpy()))
    return doubling_sum(x, decay)


def doubling_sum(x: Tensor, decay: Tensor) -> Tensor:
    """`reverse_sum` in torch alone.  Hillis & Steele 1986."""
    ahead = 1
    while ahead < len(x):
        x = torch.cat([x[:-ahead] + decay[:-ahead] * x[ahead:], x[-ahead:]])
        decay = torch.cat([decay[:-ahead] * decay[ahead:], decay[-ahead:]])
        ahead *= 2
    return x


def _tensors(mask: Any, **arrays: Any) -> list[Tensor]:
    """The arrays, in order, as tensors of the dtype (float32 if that is no float) and device of that called `reward`.

    Rows where `mask` is 0 become 0. Raises ValueError where a shape is not the reward's.
    """
    reward = torch.as_tensor(arrays["reward"])
    for name, array in (*arrays.items(), ("mask", reward if mask is None else mask)):
        if array.shape != reward.shape or not reward.dim():
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}; wanted the reward's, {tuple(reward.shape)}, with time as its "
                "first axis"
            )
    dtype = reward.dtype if reward.is_floating_point() else torch.float32
    kind: dict[str, Any] = {"dtype": dtype, "device": reward.device}
    out = [torch.as_tensor(array, **kind) for array in arrays.values()]
    if mask is None:
        return out
    real, zero = torch.as_tensor(mask, device=reward.device) != 0, torch.zeros((), **kind)
    return [torch.where(real, x, zero) for x in out]
