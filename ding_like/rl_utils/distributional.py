"""Categorical distributions of returns: projection on fixed atoms, and the loss. Bellemare 2017."""

from collections import namedtuple

import torch
from torch import Tensor

from ding_like.rl_utils.loss import masked_mean, select
from ding_like.rl_utils.td import at_action, nstep_terms, same_shape

dist_1step_td_data = namedtuple("dist_1step_td_data", "dist next_dist act next_act reward done weight")
dist_nstep_td_data = namedtuple("dist_nstep_td_data", "dist next_n_dist action next_n_action reward done weight")

TINY = 1e-38  # what a probability of 0 is taken for in a logarithm


@torch.no_grad()
def project_distribution(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """The distribution of ``reward + discount * Z`` on the atoms of Z, `[..., n]`. Bellemare 2017, eq. 7.

    The mass of an atom that falls between two is shared between them, that beyond the ends lies on the ends.

    Args:
        probability: `[..., n]`, of Z.
        reward, discount: `[...]`; the discount is 0 where the episode terminated.
        support: `[n]`, atoms at equal distances, n > 1.
    """
    same_shape(reward.shape, probability=probability.shape[:-1], discount=discount.shape)
    first, last = float(support[0]), float(support[-1])
    moved = torch.addcmul(reward.unsqueeze(-1), discount.unsqueeze(-1), support)  # [..., n]
    place = (moved - first).mul_((len(support) - 1) / (last - first)).clamp_(0, len(support) - 1)
    below = place.floor().clamp_(max=len(support) - 2)  # the last atom belongs to the gap before it
    above_share = probability * (place - below)
    index = below.long()
    out = torch.zeros_like(probability).scatter_add_(-1, index, probability - above_share)
    return out.scatter_add_(-1, index + 1, above_share)


def c51_loss(
    atom_logit: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_distribution: Tensor,
    target_action: Tensor,
    support: Tensor,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the projected target distribution, and its Kullback-Leibler divergence without gradient.

    The second is fit as a priority: it is 0 where the estimate is right (Hessel 2018). Both have the shape of `action`.

    Args:
        atom_logit: `[..., A, n]`, whose softmax is the estimated distribution.
        action, reward, discount: `[...]`.
        target_distribution: `[..., A, n]`, probabilities at the bootstrap.
        target_action: `[...]`, the action there.
        support: `[n]`, see `project_distribution`.
    """
    same_shape(action.shape, atom_logit=atom_logit.shape[:-2])
    log_p = at_action(atom_logit, action).log_softmax(-1)  # [..., n]
    wanted = project_distribution(at_action(target_distribution, target_action), reward, discount, support)
    loss = -(wanted * log_p).sum(-1)
    return loss, loss.detach() + torch.special.xlogy(wanted, wanted).sum(-1)


def dist_nstep_td_error(
    data: dist_nstep_td_data,
    gamma: float,
    v_min: float,
    v_max: float,
    n_atom: int,
    nstep: int = 1,
    value_gamma: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """n-step C51 in DI-engine's calling form.

    Args:
        data: `dist`, `next_n_dist` `[B, A, n_atom]`, probabilities; `action`, `next_n_action` `[B]`; `reward`, `done`,
            `weight` as in `q_nstep_td_error`.
        gamma, nstep, value_gamma: see there.

    Returns:
        The mean of the weighted cross-entropy, and the cross-entropies `[B]` without gradient.
    """
    dist, next_n_dist, action, next_n_action, reward, done, weight = data
    reward, discount = nstep_terms(reward, done, action, gamma, nstep, value_gamma)
    support = torch.linspace(v_min, v_max, n_atom, dtype=dist.dtype, device=dist.device)
    wanted = project_distribution(at_action(next_n_dist, next_n_action), reward, discount, support)
    loss = -(wanted * at_action(dist, action).clamp(min=TINY).log()).sum(-1)  # [B]
    loss = select(loss, None if weight is None else weight != 0)
    return masked_mean(loss, weight=weight), loss.detach()


def dist_1step_td_error(data: dist_1step_td_data, gamma: float, v_min: float, v_max: float, n_atom: int) -> Tensor:
    """Mean weighted loss of one-step C51, a scalar; fields as in `dist_nstep_td_error`, ``nstep=1``."""
    return dist_nstep_td_error(dist_nstep_td_data(*data), gamma, v_min, v_max, n_atom)[0]
