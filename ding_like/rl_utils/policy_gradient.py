"""Losses of actor-critic methods: elementwise and unreduced. Arguments of one call have one shape `[...]`."""

from __future__ import annotations

import torch
from torch import Tensor


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """``-advantage log_prob`` `[...]`; no gradient flows into the advantage.  Williams 1992."""
    _same_shape(log_prob, advantage=advantage)
    return -advantage.detach() * log_prob


def clipped_surrogate(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    advantage: Tensor,
    clip_ratio: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's policy loss `[...]`, and the probability ratio `[...]`.  Schulman 2017, eq. 7; Ye 2020, eq. 5.

    Args:
        log_prob: of the action under the policy that learns.
        behaviour_log_prob: of the action under the policy that collected.
        dual_clip: above 1; where the advantage is negative the loss is at most ``-dual_clip * advantage``.
    """
    _same_shape(log_prob, behaviour_log_prob=behaviour_log_prob, advantage=advantage)
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip is {dual_clip}; wanted a number above 1, or None")
    ratio = (log_prob - behaviour_log_prob).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)
    return -objective, ratio


def value_loss(value: Tensor, target: Tensor, old_value: Tensor | None = None, clip: float | None = None) -> Tensor:
    """``(value - target)^2 / 2`` `[...]`.

    With `clip` the value may also move at most that far from `old_value`, and the larger loss of the two counts.
    """
    _same_shape(value, target=target)
    if clip is None:
        return 0.5 * (value - target).square()
    if old_value is None:
        raise ValueError(f"clip is {clip} and old_value None; a clipped value loss needs both")
    _same_shape(value, old_value=old_value)
    near = old_value + (value - old_value).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - target).square(), (near - target).square())


def _same_shape(first: Tensor, **others: Tensor) -> None:
    """Equal shapes are asked for because `[N, 1]` against `[N]` would broadcast to `[N, N]` unseen."""
    for name, other in others.items():
        if other.shape != first.shape:
            raise ValueError(
                f"{name} has shape {tuple(other.shape)}, the first argument {tuple(first.shape)}; they must be equal"
            )
