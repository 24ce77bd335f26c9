"""n-step and lambda returns of `[T, ...]` blocks with episode ends inside, unreduced and without gradient.

Arguments as in `gae.gae_advantage`: `discount` and `cut` come from `adder.make_masks`, `next_value` is the
value of the true next observation, rows whose `mask` is 0 return 0 and reach no other row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.rl_utils.scan import prepared, restored, reverse_scan


def nstep_return(reward: Any, discount: Any, cut: Any, next_value: Any, nstep: int, mask: Any = None) -> Any:
    """Discounted rewards of `nstep` steps and the value after them, `[T, ...]`.  Sutton & Barto 2018, eq. 7.1.

    An episode's end and the block's last row end a return early, with their own `next_value`.
    """
    if nstep < 1:
        raise ValueError(f"nstep is {nstep}; wanted at least 1")
    reward_, discount, cut, next_value = prepared(mask, reward, discount=discount, cut=cut, next_value=next_value)
    goes_on = cut[:-1] != 0
    ahead = next_value.copy()
    out = reward_ + discount * ahead
    for _ in range(min(nstep, len(out)) - 1):
        np.copyto(ahead[:-1], out[1:], where=goes_on)
        out = reward_ + discount * ahead
    return restored(out, reward)


def lambda_return(reward: Any, discount: Any, cut: Any, next_value: Any, lambda_: float, mask: Any = None) -> Any:
    """TD(lambda) targets ``G_t = r_t + discount_t (v'_t + cut_t lambda (G_{t+1} - v'_t))``, `[T, ...]`.

    The block's last row bootstraps from `next_value` alone. Sutton & Barto 2018, eq. 12.18 ff.
    """
    reward_, discount, cut, next_value = prepared(mask, reward, discount=discount, cut=cut, next_value=next_value)
    follows = np.multiply(cut, lambda_, dtype=reward_.dtype, order="C")
    follows[-1:] = 0
    out = np.multiply(1 - follows, next_value, order="C")
    out *= discount
    out += reward_
    follows *= discount
    return restored(reverse_scan(out, follows), reward)
