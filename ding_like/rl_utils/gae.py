"""Generalised advantage estimation.  Schulman 2016, eq. 16."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch

from ding_like.rl_utils.scan import prepared, restored, reverse_scan

gae_data = namedtuple("gae_data", ["value", "next_value", "reward", "done", "traj_flag"])


def gae_advantage(
    reward: Any, discount: Any, cut: Any, value: Any, next_value: Any, lambda_: float = 0.95, mask: Any = None
) -> Any:
    """``A_t = delta_t + discount_t cut_t lambda A_{t+1}`` with ``delta_t = r_t + discount_t v'_t - v_t``.

    The scan is NumPy's, and numba's in long runs that have it (`scan.py` says when); results are the same.

    Args:
        reward: `[T, ...]`, numpy or torch; the answer has its kind, dtype and device, and no gradient.
        discount, cut: gamma (1 - terminated) and 1 - done, from `adder.make_masks`.
        next_value: value of the true next observation, the final one where an episode ended; finite.
        mask: rows with 0 get advantage 0, and nothing of them, NaN included, reaches another row.
    """
    reward_, discount, cut, value, next_value = prepared(
        mask, reward, discount=discount, cut=cut, value=value, next_value=next_value
    )
    adv = np.multiply(discount, next_value, order="C")
    adv += reward_
    adv -= value
    decay = np.multiply(discount, cut, order="C")
    decay *= lambda_
    return restored(reverse_scan(adv, decay), reward)


def gae(data: gae_data, gamma: float = 0.99, lambda_: float = 0.97) -> torch.Tensor:
    """Advantages in DI-engine's calling form, the shape of `value`; the input is left as it is.

    Args:
        data: `value`, `next_value` `[T, B]`, `[T]`, or `[T, B, A]` with `reward` `[T, B]`; `done` 1 where
            there is no bootstrap, None for nowhere; `traj_flag` 1 where an episode ended, None for `done`.
    """
    value, next_value, reward, done, traj_flag = data
    none = torch.zeros_like(reward)
    done = none if done is None else done.to(reward.dtype)
    ended = done if traj_flag is None else traj_flag.to(reward.dtype)
    discount, cut = gamma * (1 - done), 1 - ended
    if value.dim() == reward.dim() + 1:
        reward, discount, cut = (x.unsqueeze(-1).expand_as(value) for x in (reward, discount, cut))
    return gae_advantage(reward, discount, cut, value, next_value, lambda_)
