"""Soft Q-learning: values and policies of a temperature. Haarnoja 2017."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.rl_utils.td import ElementLoss, at_action, same_shape


def soft_value(q: Tensor, alpha: Tensor | float) -> Tensor:
    """``alpha log sum_a exp(q_a / alpha)``, `[..., A] -> [...]`; near the largest q for a small alpha.

    Haarnoja 2017, eq. 3.
    """
    best = q.max(-1, keepdim=True).values  # taken out: no exponential overflows, however small alpha is
    return best.squeeze(-1) + alpha * torch.logsumexp((q - best) / alpha, -1)


def soft_entropy(q: Tensor, alpha: Tensor | float) -> Tensor:
    """Entropy in nats of the policy ``softmax(q / alpha)``, `[..., A] -> [...]`; forbidden actions add nothing."""
    return torch.special.entr(((q - q.max(-1, keepdim=True).values) / alpha).softmax(-1)).sum(-1)


def soft_q_loss(
    q: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_q: Tensor,
    alpha: Tensor | float,
    loss: ElementLoss = F.huber_loss,
) -> tuple[Tensor, Tensor]:
    """The loss of ``reward + discount * soft_value(target_q)``, and that less ``q[action]`` without gradient, `[...]`.

    Args:
        q, target_q: `[..., A]`; action, reward, discount: `[...]`.
    """
    same_shape(action.shape, q=q.shape[:-1], reward=reward.shape, discount=discount.shape)
    with torch.no_grad():
        wanted = reward + discount * soft_value(target_q, alpha)
    taken = at_action(q, action)
    return loss(taken, wanted, reduction="none"), wanted - taken.detach()
