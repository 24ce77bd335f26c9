"""Values and losses of soft actor-critic: unreduced. Haarnoja 2018; discrete: Christodoulou 2019."""

from __future__ import annotations

import math

from torch import Tensor

LEAST = -1e4  # log-probability; below it the probability is 0 in any float type
DISCRETE_SHARE = 0.98  # of the largest entropy. Christodoulou 2019


def soft_state_value(q_value: Tensor, log_prob: Tensor, alpha: Tensor | float) -> Tensor:
    """``min_k Q_k - alpha log pi`` `[...]` of a sampled action. Haarnoja 2018, eq. 3; twin critics: Fujimoto 2018.

    With an action through which gradients pass, its negative is the policy's loss (eq. 9).

    Args:
        q_value: `[K, ...]`, of K critics.
        log_prob: `[...]`, of the action.
        alpha: the temperature.
    """
    _wanted_shape("log_prob", log_prob, q_value.shape[1:])
    return q_value.amin(0) - alpha * log_prob


def expected_soft_state_value(q_value: Tensor, log_probs: Tensor, alpha: Tensor | float) -> Tensor:
    """`soft_state_value` in expectation over A actions, `[...]`. Christodoulou 2019, eq. 10; its negative: eq. 12.

    An action of probability 0 adds nothing, whatever its value.

    Args:
        q_value: `[K, ..., A]`.
        log_probs: `[..., A]`, of the whole distribution.
    """
    _wanted_shape("log_probs", log_probs, q_value.shape[1:])
    finite = log_probs.clamp(min=LEAST)  # a large alpha times that of a forbidden action would be infinite
    return (log_probs.exp() * (q_value.amin(0) - alpha * finite)).sum(-1)


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: Tensor | float) -> Tensor:
    """``log alpha (H - target)``, the shape of `entropy`: the temperature rises while the entropy is below its target.

    Haarnoja 2018, eq. 18, in log alpha; no gradient flows into the entropy.
    """
    return log_alpha * (entropy.detach() - target_entropy)


def default_target_entropy(action_size: int, discrete: bool) -> float:
    """-d of d dimensions in [-1, 1] (Haarnoja 2018); of A actions 0.98 log A, in (0, log A)."""
    return DISCRETE_SHARE * math.log(action_size) if discrete else -float(action_size)


def _wanted_shape(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    """Equal shapes are asked for because `[N, 1]` against `[N]` would broadcast to `[N, N]` unseen."""
    if value.shape != shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}; q_value makes {tuple(shape)} the wanted one")
