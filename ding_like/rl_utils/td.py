"""Temporal-difference errors: pure and unreduced, but for the two with DI-engine's signatures."""

from collections import namedtuple
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding_like.rl_utils.loss import huber, masked_mean, select
from ding_like.rl_utils.value_rescale import value_inv_transform, value_transform

__all__ = [
    "LOSSES",
    "ElementLoss",
    "at_action",
    "huber",
    "masked_mean",
    "nstep_terms",
    "q_1step_td_data",
    "q_1step_td_error",
    "q_learning_error",
    "q_learning_loss",
    "q_learning_pair",
    "q_nstep_td_data",
    "q_nstep_td_error",
    "same_shape",
    "select",
]

Criterion = Callable[[Tensor, Tensor], Tensor]
ElementLoss = Callable[..., Tensor]
LOSSES: dict[str, ElementLoss] = {"huber": F.huber_loss, "mse": F.mse_loss}  # of (estimate, target, reduction=)

q_1step_td_data = namedtuple("q_1step_td_data", ["q", "next_q", "act", "next_act", "reward", "done", "weight"])
q_nstep_td_data = namedtuple(
    "q_nstep_td_data", ["q", "next_n_q", "action", "next_n_action", "reward", "done", "weight"]
)


def q_learning_error(
    q: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_q: Tensor,
    target_action: Tensor | None = None,
) -> Tensor:
    """Target minus estimate, ``reward + discount * target_q[target_action] - q[action]``, shape of `action`.

    No gradient flows into the target. Source: Watkins 1989; van Hasselt 2016, eq. 4 for double Q-learning.

    Args:
        q: `[..., A]`, values at the acting observation.
        action: `[...]`, int64.
        reward: `[...]`, summed over the n steps (discounted).
        discount: `[...]`, gamma^k (1 - terminated).
        target_q: `[..., A]`, the target network's values at the bootstrap observation.
        target_action: `[...]`, the online network's greedy action there (double); None takes `target_q`'s
            own.
    """
    taken, wanted = q_learning_pair(q, action, reward, discount, target_q, target_action)
    return (wanted - taken).squeeze(-1)


def q_learning_pair(
    q: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_q: Tensor,
    target_action: Tensor | None = None,
    rescale: bool = False,
) -> tuple[Tensor, Tensor]:
    """Both sides of `q_learning_error`: `q(action)`, and the target without gradient, `[..., 1]` (one operation less in
    the graph than `[...]`).

    With `rescale` both are values h(x) (`value_transform`): the target is h(reward + discount h^-1(target_q)).
    """
    same_shape(action.shape, q=q.shape[:-1], reward=reward.shape, discount=discount.shape)
    wanted = _target(reward, discount, target_q, target_action, rescale)
    return q.gather(-1, action.unsqueeze(-1)), wanted.unsqueeze(-1)


def q_learning_loss(
    q: Tensor,
    action: Tensor,
    reward: Tensor,
    discount: Tensor,
    target_q: Tensor,
    target_action: Tensor | None = None,
    loss: ElementLoss = F.huber_loss,
    rescale: bool = False,
    reduction: str = "none",
) -> tuple[Tensor, Tensor]:
    """The loss of `q_learning_pair`, `[...]` or with ``reduction="mean"`` a scalar, and the error `[...]`, target minus
    estimate, without gradient.
    """
    taken, wanted = q_learning_pair(q, action, reward, discount, target_q, target_action, rescale)
    found = loss(taken, wanted, reduction=reduction)
    return found.squeeze(-1) if reduction == "none" else found, (wanted - taken.detach()).squeeze(-1)


def q_1step_td_error(data: q_1step_td_data, gamma: float, criterion: Criterion | None = None) -> Tensor:
    """Mean weighted loss of one-step Q-learning, a scalar; fields as in `q_nstep_td_error`, ``nstep=1``."""
    return q_nstep_td_error(q_nstep_td_data(*data), gamma, cum_reward=True, criterion=criterion)[0]


def q_nstep_td_error(
    data: q_nstep_td_data,
    gamma: float,
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: Tensor | None = None,
    criterion: Criterion | None = None,
) -> tuple[Tensor, Tensor]:
    """n-step Q-learning in DI-engine's calling form.

    Args:
        data: `q`, `next_n_q` `[B, A]`; `action`, `next_n_action` `[B]`; `done` `[B]` (do not bootstrap);
            `weight` `[B]` or None, where a weight of 0 takes the item out of the loss; `reward` `[nstep, B]`,
            or, with ``cum_reward`` or ``nstep=1``, also `[B]`.
        gamma: discount of one step.
        value_gamma: `[B]`, gamma^k with the true distance k to the bootstrap; None means gamma^nstep.
        criterion: unreduced loss of (estimate, target); None means squared error.

    Returns:
        The mean of ``weight * criterion``, and `|td|` `[B]` without gradient: unweighted, fit as a priority
        (DI-engine's second value is the unreduced loss, which squares a priority).
    """
    q, next_n_q, action, next_n_action, reward, done, weight = data
    reward, discount = nstep_terms(reward, done, action, gamma, nstep, value_gamma, cum_reward)  # [B], [B]
    same_shape(action.shape, q=q.shape[:-1], reward=reward.shape, discount=discount.shape)
    target = _target(reward, discount, next_n_q, next_n_action)  # [B]
    estimate, used = at_action(q, action), None if weight is None else weight != 0
    loss = (criterion or nn.MSELoss(reduction="none"))(select(estimate, used), select(target, used))
    return masked_mean(loss, weight=weight), (target - estimate.detach()).abs()


def nstep_terms(
    reward: Tensor,
    done: Tensor,
    action: Tensor,
    gamma: float,
    nstep: int,
    value_gamma: Tensor | None,
    cum_reward: bool = False,
) -> tuple[Tensor, Tensor]:
    """Summed reward and bootstrap discount, `[B]` each, of the fields of DI-engine's forms (see `q_nstep_td_error`)."""
    if reward.dim() > action.dim():
        if cum_reward or len(reward) != nstep:
            raise ValueError(
                f"reward has shape {tuple(reward.shape)}; wanted {tuple(action.shape)}"
                f"{'' if cum_reward else f' with a leading axis of nstep={nstep}'}"
            )
        powers = gamma ** torch.arange(nstep, dtype=reward.dtype, device=reward.device)
        reward = torch.tensordot(powers, reward, dims=1)  # [B]
    elif not cum_reward and nstep != 1:
        raise ValueError(f"reward has shape {tuple(reward.shape)}; cum_reward=False wants [nstep={nstep}, B]")
    bootstrap_gamma = gamma**nstep if value_gamma is None else value_gamma
    return reward, bootstrap_gamma * (1 - done.to(reward.dtype))


@torch.no_grad()
def _target(
    reward: Tensor, discount: Tensor, target_q: Tensor, target_action: Tensor | None, rescale: bool = False
) -> Tensor:
    bootstrap = target_q.max(-1).values if target_action is None else at_action(target_q, target_action)
    if not rescale:
        return reward + discount * bootstrap
    bootstrap = value_inv_transform(bootstrap)  # not finite where all actions are forbidden, as after the last step
    return value_transform(reward + torch.where(discount > 0, discount * bootstrap, 0.0))


def at_action(x: Tensor, action: Tensor) -> Tensor:
    """Of `x [..., A]` or `[..., A, n]` the entries of `action [...]`: `[...]` or `[..., n]`."""
    lead = action.dim()
    if x.dim() == lead + 1:
        return x.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    index = action.reshape(*action.shape, *[1] * (x.dim() - lead))
    return x.gather(lead, index.expand(*action.shape, 1, *x.shape[lead + 1 :])).squeeze(lead)


def same_shape(wanted: torch.Size, **given: torch.Size) -> None:
    """Equal shapes are asked for because `[B, 1]` against `[B]` would broadcast to `[B, B]` unseen."""
    for name, shape in given.items():
        if shape != wanted:
            raise ValueError(f"{name} has shape {tuple(shape)}; wanted {tuple(wanted)}, one for each action")
