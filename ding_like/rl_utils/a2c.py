"""A2C's losses in DI-engine's calling form."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ding_like.rl_utils.loss import masked_mean, select
from ding_like.rl_utils.policy_gradient import policy_gradient_loss, value_loss
from ding_like.rl_utils.ppo import chosen

a2c_data = namedtuple("a2c_data", ["logit", "action", "value", "adv", "return_", "weight"])
a2c_loss = namedtuple("a2c_loss", ["policy_loss", "value_loss", "entropy_loss"])


def a2c_error(data: Any) -> a2c_loss:
    """Losses of a batch: weighted means, scalars; the value loss is the whole squared error, not half of it.

    Args:
        data: an `a2c_data`: `logit` `[B, A]` (a tuple of those for a multi-discrete action `[B, k]`;
            `{'mu', 'sigma'}` `[B, d]` for a continuous one), the others `[B]`; `weight` may be None. Nothing of
            an item whose weight is 0, NaN included, changes a result.
    """
    logit, action, value, adv, return_, weight = data
    used = None if weight is None else weight != 0  # [B]
    policy, log_prob = chosen(logit, action, used)
    return a2c_loss(
        masked_mean(policy_gradient_loss(log_prob, select(adv, used)), weight=weight),
        masked_mean(2 * value_loss(select(value, used), select(return_, used)), weight=weight),
        masked_mean(policy.entropy(), weight=weight),
    )


a2c_error_continuous = a2c_error  # `logit` tells which it is
