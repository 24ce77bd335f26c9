"""Q-learning on windows of a recurrent network: what differs from learning on single transitions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, tree_map
from ding_like.model import model_wrap
from ding_like.rl_utils.loss import select
from ding_like.rl_utils.value_rescale import value_inv_transform, value_transform

WIDEST = 10_000  # steps of a window: far beyond what a state is of use for, and small enough to be collected in a while


@dataclass
class SequenceErrors:
    """Of the S steps of N windows that train: the values `taken` of the actions (with gradient), the `wanted` ones, and
    `mask` (0 at steps that are none); all `[S, N]`.
    """

    taken: Tensor
    wanted: Tensor
    mask: Tensor


class SequenceQ:
    """n-step Q-learning over windows `[burnin + unroll_len, N]`; their last `nstep` steps are only bootstrapped from.

    Both networks start from the stored state and are burnt in without gradient. The bootstrap of step t is read at slot
    t + k, k its true distance; where an episode was truncated that slot shows its final observation. Kapturowski 2019,
    section 2.3; double Q-learning: van Hasselt 2016.

    Args:
        learn_model, target_model: networks; wrapped here.
        burnin, unroll_len, nstep: slots.
        gamma: discount.
        double: the online network chooses the bootstrap action.
        rescale: values are learned through h(x) (`value_transform`).
        stored_state: start from the state that collecting stored; else from the initial one.
    """

    def __init__(
        self,
        learn_model: Any,
        target_model: Any,
        *,
        burnin: int,
        unroll_len: int,
        nstep: int,
        gamma: float,
        double: bool,
        rescale: bool,
        stored_state: bool,
    ) -> None:
        if unroll_len <= nstep:
            raise ConfigError(_short(unroll_len, nstep))
        self._learn = model_wrap(learn_model, wrapper_name="hidden_state")
        self._target = model_wrap(target_model, wrapper_name="hidden_state")
        self._burnin, self._nstep, self._gamma = burnin, nstep, gamma
        self._span = unroll_len - nstep
        self._double, self._rescale, self._stored = double, rescale, stored_state

    def errors(self, data: ArrayDict) -> SequenceErrors:
        """Of windows `[U, N]`: obs, action, reward, terminated, done, null, and `prev_state [1, N, ...]`."""
        start, stop = self._burnin, self._burnin + self._span
        real = ~data["null"].bool()  # [U, N]
        ended, terminated = real & (data["done"] != 0), real & (data["terminated"] != 0)
        obs = self._clean(data["obs"], real, ended & ~terminated)
        cut = _cut_before(real)
        state = tree_map(lambda x: x[0], data["prev_state"]) if self._stored else None
        self._learn.reset()
        self._target.reset()
        if state is not None:
            self._learn.reset(state=state)
            self._target.reset(state=state)
        if start:
            with torch.no_grad():
                self._unroll(self._learn, obs, cut, 0, start)
        q = self._unroll(self._learn, obs, cut, start, stop)  # [S, N, A]
        with torch.no_grad():
            target_q = self._unroll(self._target, obs, cut, 0, stop + self._nstep)[start:]  # [S + n, N, A]
            choice = target_q
            if self._double:
                tail = self._unroll(self._learn, obs, cut, stop, stop + self._nstep)
                choice = torch.cat([q.detach(), tail])
            bootstrap = target_q.gather(-1, choice.argmax(-1, keepdim=True)).squeeze(-1)  # [S + n, N]
            reward = torch.where(real, data["reward"], 0.0)
            wanted = self._wanted(reward[start:], ended[start:], terminated[start:], bootstrap)  # [S, N]
        taken = q.gather(-1, data["action"][start:stop].unsqueeze(-1)).squeeze(-1)
        mask = real[start:stop]
        return SequenceErrors(select(taken, mask), select(wanted, mask), mask)

    def _unroll(self, model: Any, obs: Any, cut: Tensor | None, start: int, stop: int) -> Tensor:
        """The Q-values of slots [start, stop); the wrapper goes on from the state that the last call left."""
        inputs = {"obs": tree_map(lambda x: x[start:stop], obs)}
        if cut is not None:
            inputs["cut"] = cut[start:stop]
        return model.forward(inputs, inference=False)["logit"]

    def _wanted(self, reward: Tensor, ended: Tensor, terminated: Tensor, bootstrap: Tensor) -> Tensor:
        """n-step targets `[S, N]` of inputs `[S + n, N]`; a sum stops at the end of the episode."""
        if self._rescale:
            bootstrap = value_inv_transform(bootstrap)
        size = len(reward) - self._nstep
        going = torch.ones_like(reward[:size])  # whether step t + i belongs to the episode of t
        total, distance, discount = torch.zeros_like(going), torch.zeros_like(going), torch.ones_like(going)
        for i in range(self._nstep):
            total += torch.where(going > 0, self._gamma**i * reward[i : i + size], 0.0)
            distance += going
            discount *= 1 - going * terminated[i : i + size].float()
            going = going * (1 - ended[i : i + size].float())
        at = torch.arange(size, device=reward.device).unsqueeze(-1) + distance.long()
        ahead = bootstrap.gather(0, at)  # [S, N]
        total += torch.where(discount > 0, self._gamma**distance * ahead, 0.0)
        return value_transform(total) if self._rescale else total

    def _clean(self, obs: Any, real: Tensor, truncated: Tensor) -> Any:
        """Zeros in place of what null slots show, but for the final observation of a truncated episode."""
        shown = real.clone()
        shown[1:] |= truncated[:-1]
        if bool(shown.all()):
            return obs

        def leaf(x: Tensor) -> Tensor:
            keep = shown.reshape(*shown.shape, *[1] * (x.dim() - 2))
            return torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))

        return tree_map(leaf, obs)


def _cut_before(real: Tensor) -> Tensor | None:
    """`cut [U, N]`: 0 at the last null slot before the first real one, where the state begins; None: nowhere."""
    begins = ~real[:-1] & real[1:]
    if not bool(begins.any()):
        return None
    cut = torch.ones(real.shape, dtype=torch.float32, device=real.device)
    cut[:-1][begins] = 0
    return cut


def _short(unroll_len: int, nstep: int) -> str:
    return (
        f"policy.learn_unroll_len is {unroll_len} and policy.nstep is {nstep}; wanted a learn_unroll_len above nstep: "
        "its last nstep steps are only bootstrapped from, so none would train"
    )


def window_mistakes(cfg: Any, recurrent: bool, network: Any) -> list[str]:
    """A line for every setting that does not fit a network of this class, and for a class that gives no Q-values."""
    told = list(_wide(cfg) if recurrent else _for_recurrence(cfg, network.__name__))
    if "mode" in inspect.signature(network.forward).parameters:
        told.append(
            f"policy.model: the network ({network.__name__}) is that of an actor-critic policy, as its forward takes "
            "'mode'; wanted one that gives a Q-value an action, such as policy.model.type='dqn' or 'drqn'"
        )
    return told


def _wide(cfg: Any) -> Iterator[str]:
    if cfg.learn_unroll_len <= cfg.nstep:
        yield _short(cfg.learn_unroll_len, cfg.nstep)
    width = cfg.burnin_step + cfg.learn_unroll_len
    if width > WIDEST:
        yield (
            f"policy.burnin_step is {cfg.burnin_step} and policy.learn_unroll_len is {cfg.learn_unroll_len}; wanted "
            f"windows of at most {WIDEST} steps, not {width}: each is stored whole, and all env columns are stepped so "
            "often before the first is there"
        )
    if cfg.collect.get("traj_len_inf"):
        yield (
            "policy.collect.traj_len_inf: got True, wanted False for a recurrent network: it trains on windows, which "
            "are made while episodes go on"
        )


def _for_recurrence(cfg: Any, network: str) -> Iterator[str]:
    for key, value in {"burnin_step": cfg.burnin_step, "learn.value_rescale": cfg.learn.value_rescale}.items():
        if value:
            yield (
                f"policy.{key} is {value!r} and the network ({network}) has no initial_state(B), which makes a policy "
                f"recurrent; wanted {key}={type(value)()!r}, or a recurrent network, such as policy.model.type='drqn'"
            )


def window_priority(td: Tensor, mask: Tensor, eta: float = 0.9) -> Tensor:
    """``eta max |td| + (1 - eta) mean |td|`` over the real steps of each window, `[N]`; 0 where it has none.

    Kapturowski 2019, section 2.3.

    Args:
        td: `[S, N]`; mask: `[S, N]`, bool.
    """
    size = select(td.abs(), mask)
    mean = size.sum(0) / mask.sum(0).clamp(min=1)
    return eta * size.max(0).values + (1 - eta) * mean
