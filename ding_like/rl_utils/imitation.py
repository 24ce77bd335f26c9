"""Losses of learning a policy from the actions of another: elementwise and unreduced."""

from __future__ import annotations

from torch import Tensor

from ding_like.rl_utils.distribution import Distribution

LOSSES = ("nll", "mse")


def cloning_loss(distribution: Distribution, action: Tensor, loss: str = "nll") -> Tensor:
    """How far a policy is from actions `[...]`, `[..., k]` or `[..., d]`: `[...]`.  Pomerleau 1991.

    Args:
        loss: 'nll': ``-log pi(action)``, of discrete actions the cross-entropy. 'mse': ``|action - mode|^2``, which of
            continuous actions alone has a gradient.

    Raises ValueError for another loss, or an action of another shape.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}; wanted one of {list(LOSSES)}")
    if loss == "nll":
        return -distribution.log_prob(action)
    mode = distribution.mode()
    if mode.shape != action.shape:
        raise ValueError(f"action has shape {tuple(action.shape)}; wanted {tuple(mode.shape)}")
    return (action - mode).square().sum(-1)
