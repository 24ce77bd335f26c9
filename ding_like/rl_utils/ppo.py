"""PPO's losses in DI-engine's calling form; the maths is in `policy_gradient.py` and `distribution.py`."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from ding_like.data import tree_map
from ding_like.rl_utils.distribution import Distribution, make_distribution
from ding_like.rl_utils.loss import masked_mean, select
from ding_like.rl_utils.policy_gradient import clipped_surrogate, value_loss

ppo_data = namedtuple("ppo_data", "logit_new logit_old action value_new value_old adv return_ weight")
ppo_data_continuous = namedtuple(
    "ppo_data_continuous", "mu_sigma_new mu_sigma_old action value_new value_old adv return_ weight"
)
ppo_policy_data = namedtuple("ppo_policy_data", "logit_new logit_old action adv weight")
ppo_policy_data_continuous = namedtuple("ppo_policy_data_continuous", "mu_sigma_new mu_sigma_old action adv weight")
ppo_value_data = namedtuple("ppo_value_data", "value_new value_old return_ weight")
ppo_loss = namedtuple("ppo_loss", "policy_loss value_loss entropy_loss")
ppo_policy_loss = namedtuple("ppo_policy_loss", "policy_loss entropy_loss")
ppo_info = namedtuple("ppo_info", "approx_kl clipfrac")


def ppo_error(
    data: Any, clip_ratio: float = 0.2, use_value_clip: bool = True, dual_clip: float | None = None
) -> tuple[ppo_loss, ppo_info]:
    """Losses of a minibatch: weighted means, scalars, to be added by the caller (the entropy with a minus).

    Args:
        data: a `ppo_data` or `ppo_data_continuous`: `logit_new`, `logit_old` `[B, A]` (a tuple of those for a
            multi-discrete action `[B, k]`; `{'mu', 'sigma'}` `[B, d]` for a continuous one), the others `[B]`;
            `weight` may be None. Nothing of an item whose weight is 0, NaN included, changes a result.
        use_value_clip: the value moves at most `clip_ratio` from `value_old`.

    Returns:
        The losses, and numbers about the items of weight other than 0: an estimate of the KL divergence
        (``mean(ratio - 1 - log ratio)``, never negative) and the share of ratios that the clip cut.
    """
    new, old, action, value_new, value_old, adv, return_, weight = data
    policy, info = ppo_policy_error(ppo_policy_data(new, old, action, adv, weight), clip_ratio, dual_clip)
    value = ppo_value_error(ppo_value_data(value_new, value_old, return_, weight), clip_ratio, use_value_clip)
    return ppo_loss(policy.policy_loss, value, policy.entropy_loss), info


def ppo_policy_error(
    data: Any, clip_ratio: float = 0.2, dual_clip: float | None = None
) -> tuple[ppo_policy_loss, ppo_info]:
    """The policy's part of `ppo_error`."""
    new, old, action, adv, weight = data
    used = None if weight is None else weight != 0  # [B]
    policy, log_prob = chosen(new, action, used)
    old_log_prob = chosen(old, action, used)[1].detach()
    loss, ratio = clipped_surrogate(log_prob, old_log_prob, select(adv, used), clip_ratio, dual_clip)
    with torch.no_grad():
        divergence = ratio - 1 - (log_prob - old_log_prob)
        outside = ((ratio - 1).abs() > clip_ratio).to(ratio.dtype)
        info = ppo_info(*(masked_mean(x, used).item() for x in (divergence, outside)))
    return ppo_policy_loss(masked_mean(loss, weight=weight), masked_mean(policy.entropy(), weight=weight)), info


def ppo_value_error(data: ppo_value_data, clip_ratio: float = 0.2, use_value_clip: bool = True) -> Tensor:
    """The value's part of `ppo_error`: half the weighted mean squared error."""
    value_new, value_old, return_, weight = data
    used = None if weight is None else weight != 0
    new, target = select(value_new, used), select(return_, used)
    if not use_value_clip:
        return masked_mean(value_loss(new, target), weight=weight)
    return masked_mean(value_loss(new, target, select(value_old, used), clip_ratio), weight=weight)


ppo_error_continuous, ppo_policy_error_continuous = ppo_error, ppo_policy_error  # `logit` tells which it is


def chosen(logit: Any, action: Tensor, used: Tensor | None) -> tuple[Distribution, Tensor]:
    """The distribution that `logit` stands for, and the log-probability of `action` `[B]`.

    Items that are not `used` (`[B]` bool, None for all) are replaced by harmless ones, whatever they hold.
    """
    kind = "continuous" if isinstance(logit, dict) else "multi_discrete" if isinstance(logit, tuple) else "discrete"
    if used is not None:
        logit = tree_map(lambda x: _only(x, used, 1.0), logit)
        action = _only(action, used, 0)
    distribution = make_distribution(logit, kind)
    return distribution, distribution.log_prob(action)


def _only(x: Tensor, used: Tensor, fill: float) -> Tensor:
    return x.masked_fill(~used.reshape(used.shape + (1,) * (x.dim() - used.dim())), fill)
