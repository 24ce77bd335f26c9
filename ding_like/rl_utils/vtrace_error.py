"""V-trace in DI-engine's calling form; the maths is in `vtrace.py`."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.loss import masked_mean, select
from ding_like.rl_utils.policy_gradient import policy_gradient_loss, value_loss
from ding_like.rl_utils.ppo import chosen
from ding_like.rl_utils.vtrace import reverse_sum, vtrace

vtrace_data = namedtuple("vtrace_data", "target_output behaviour_output action value reward weight")
vtrace_loss = namedtuple("vtrace_loss", "policy_loss value_loss entropy_loss")


def vtrace_error_discrete_action(
    data: Any,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    rho_clip_ratio: float = 1.0,
    c_clip_ratio: float = 1.0,
    rho_pg_clip_ratio: float = 1.0,
) -> vtrace_loss:
    """Losses of trajectories, scalars: weighted means over the steps whose weight is not 0; the whole squared error.

    No step ends an episode here: where one ended, the caller sets the value after it to 0 and the next weight too.

    Args:
        data: a `vtrace_data`: `target_output`, `behaviour_output` `[T, B, A]` (tuples of those for a multi-discrete
            action `[T, B, k]`; `{'mu', 'sigma'}` `[T, B, d]` for a continuous one), `value` `[T + 1, B]`, `reward`
            `[T, B]`; `weight` `[T, B]` may be None. Nothing of a step whose weight is 0 changes a result, NaN included,
            but its value, where the step before bootstraps from it.
    """
    target_output, behaviour_output, action, value, reward, weight = data
    used = None if weight is None else weight != 0  # [T, B]
    policy, log_prob = chosen(target_output, action, used)
    behaviour_log_prob = chosen(behaviour_output, action, used)[1]
    one = torch.ones_like(reward)
    returns = vtrace(
        log_prob.detach() - behaviour_log_prob.detach(),
        *(reward, gamma * one, one, value[:-1].detach(), value[1:].detach()),
        rho_bar=rho_clip_ratio,
        c_bar=c_clip_ratio,
        pg_rho_bar=rho_pg_clip_ratio,
        lambda_=lambda_,
        mask=used,
    )
    return vtrace_loss(
        masked_mean(policy_gradient_loss(log_prob, returns.pg_advantage), used, weight),
        masked_mean(2 * value_loss(select(value[:-1], used), returns.vs), used, weight),
        masked_mean(policy.entropy(), used, weight),
    )


vtrace_error_continuous_action = vtrace_error_discrete_action  # `target_output` tells which it is


def vtrace_nstep_return(
    clipped_rhos: Tensor,
    clipped_cs: Tensor,
    reward: Tensor,
    bootstrap_values: Tensor,
    gamma: float = 0.99,
    lambda_: float = 0.95,
) -> Tensor:
    """Targets of the value `[T, B]` from ratios that are clipped already; `bootstrap_values` is `[T + 1, B]`."""
    value, next_value = bootstrap_values[:-1].detach(), bootstrap_values[1:].detach()
    delta = clipped_rhos.detach() * (reward + gamma * next_value - value)
    return value + reverse_sum(delta, gamma * lambda_ * clipped_cs.detach())


def vtrace_advantage(
    clipped_pg_rhos: Tensor, reward: Tensor, return_: Tensor, bootstrap_values: Tensor, gamma: float
) -> Tensor:
    """``rho_t (r_t + gamma return_t - v_t)`` `[T, B]`; `return_` is the target of the step after, all are `[T, B]`."""
    return clipped_pg_rhos * (reward + gamma * return_ - bootstrap_values)


def compute_importance_weights(
    target_output: Any,
    behaviour_output: Any,
    action: Tensor,
    action_space_type: str = "discrete",
    requires_grad: bool = False,
) -> Tensor:
    """The ratio of the action's probabilities under both outputs `[T, B]`.

    Args:
        target_output, behaviour_output: what `distribution.make_distribution` takes for `action_space_type`.
        requires_grad: whether a gradient flows into the outputs.
    """
    with torch.set_grad_enabled(requires_grad):
        target = make_distribution(target_output, action_space_type).log_prob(action)
        return (target - make_distribution(behaviour_output, action_space_type).log_prob(action)).exp()
