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

Slots = tuple[int, int, int, float, bool]
WIDEST = 10_000  # steps of a window: far beyond what a state is of use for, and small enough to be collected in a while


@dataclass
class Windows:
    """Windows `[U, N]` made ready to learn n-step values of their S trained steps, the slots [start, stop).

    Attributes:
        obs: `[U, N, ...]`, zeros at null slots, but for the final observation of a truncated episode.
        cut: `[U, N]`, 0 at the last null slot before an episode's first step; None: nowhere.
        state: of the first slot, leaves `[N, layers, H]`; None: the initial one.
        action: `[U, N, ...]`, zeros at null slots.
        reward: `[S, N]`, discounted sum over the k steps to the bootstrap.
        discount: `[S, N]`, gamma^k, 0 where the episode terminated on the way.
        ahead: `[S, N]`, the slot of the bootstrap, t + k, counted from `start`.
        mask: `[S, N]`, bool: the steps that train.
        start, stop, end: slots; [stop, end) are only bootstrapped from.
    """

    obs: Any
    cut: Tensor | None
    state: Any
    action: Tensor
    reward: Tensor
    discount: Tensor
    ahead: Tensor
    mask: Tensor
    start: int
    stop: int
    end: int

    def bootstrap(self, output: Any) -> Any:
        """Of outputs `[end - start, N, ...]` of the slots from `start` on, those that each step bootstraps from."""

        def leaf(x: Tensor) -> Tensor:
            at = self.ahead.reshape(*self.ahead.shape, *[1] * (x.dim() - 2))
            return x.gather(0, at.expand(*self.ahead.shape, *x.shape[2:]))

        return tree_map(leaf, output)

    def begin(self, model: Any) -> None:
        """Give a `hidden_state` wrapper the state of the first slot."""
        model.reset()
        if self.state is not None:
            model.reset(state=self.state)

    def unroll(self, model: Any, start: int, stop: int, **inputs: Any) -> dict[str, Any]:
        """The output of a `hidden_state` wrapper for the slots [start, stop), from the state its last call left.

        Args:
            inputs: further inputs of the network, `[stop - start, N, ...]`; `mode` is passed as a keyword.
        """
        setting = {"mode": inputs.pop("mode")} if "mode" in inputs else {}
        inputs["obs"] = tree_map(lambda x: x[start:stop], self.obs)
        if self.cut is not None:
            inputs["cut"] = self.cut[start:stop]
        output = model.forward(inputs, inference=False, **setting)
        return {name: value for name, value in output.items() if name not in ("next_state", "prev_state")}


def open_windows(
    data: ArrayDict, burnin: int, unroll_len: int, nstep: int, gamma: float, stored_state: bool = True
) -> Windows:
    """Of fields `[U, N, ...]`: obs, action, reward, terminated, done, null, and `prev_state [1, N, ...]`.

    The bootstrap of step t is read at slot t + k, k its true distance; where an episode was truncated that slot shows
    its final observation. Kapturowski 2019, section 2.3.
    """
    span = unroll_len - nstep
    start, stop = burnin, burnin + span
    real = ~data["null"].bool()  # [U, N]
    ended, terminated = real & (data["done"] != 0), real & (data["terminated"] != 0)
    shown = real.clone()
    shown[1:] |= (ended & ~terminated)[:-1]
    with torch.no_grad():
        reward = torch.where(real, data["reward"], 0.0)[start:]
        total, discount, ahead = _nstep(reward, ended[start:], terminated[start:], nstep, gamma)
    state = tree_map(lambda x: x[0], data["prev_state"]) if stored_state else None
    return Windows(
        _clean(data["obs"], shown),
        _cut_before(real),
        state,
        _clean(data["action"], real),
        total,
        discount,
        ahead,
        real[start:stop],
        start,
        stop,
        stop + nstep,
    )


def _nstep(
    reward: Tensor, ended: Tensor, terminated: Tensor, nstep: int, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed reward, discount and slot of the bootstrap, `[S, N]` of `[S + n, N]`; a sum stops at an episode's end."""
    size = len(reward) - nstep
    going = torch.ones_like(reward[:size])  # whether step t + i belongs to the episode of t
    total, distance, goes_on = torch.zeros_like(going), torch.zeros_like(going), torch.ones_like(going)
    for i in range(nstep):
        total += torch.where(going > 0, gamma**i * reward[i : i + size], 0.0)
        distance += going
        goes_on *= 1 - going * terminated[i : i + size].to(going.dtype)
        going = going * (1 - ended[i : i + size].to(going.dtype))
    at = torch.arange(size, device=reward.device).unsqueeze(-1) + distance.long()
    return total, torch.where(goes_on > 0, gamma**distance, 0.0), at


def _clean(tree: Any, shown: Tensor) -> Any:
    """Zeros in the slots `[U, N]` that are not shown."""
    if bool(shown.all()):
        return tree

    def leaf(x: Tensor) -> Tensor:
        keep = shown.reshape(*shown.shape, *[1] * (x.dim() - 2))
        return torch.where(keep, x, torch.zeros((), dtype=x.dtype, device=x.device))

    return tree_map(leaf, tree)


@dataclass
class SequenceOutputs:
    """What Q-learning needs of the S steps of N windows, all `[S, N, ...]`.

    Attributes:
        online: outputs of the network, with gradient.
        target: those of the target network at the bootstraps.
        choice: the action `[S, N]` that each bootstrap takes; None: the target network's own best.
    """

    online: dict[str, Any]
    target: dict[str, Any]
    choice: Tensor | None
    windows: Windows


class SequenceQ:
    """Q-learning over windows `[burnin + unroll_len, N]`; their last `nstep` steps are only bootstrapped from.

    Both networks start from the stored state and are burnt in without gradient. Kapturowski 2019, section 2.3; double
    Q-learning: van Hasselt 2016.

    Args:
        learn_model, target_model: networks; wrapped here.
        slots: arguments of `open_windows`.
        double: the online network chooses the bootstrap action.
    """

    def __init__(self, learn_model: Any, target_model: Any, slots: Slots, double: bool) -> None:
        if slots[1] <= slots[2]:
            raise ConfigError(_short(*slots[1:3]))
        self._learn = model_wrap(learn_model, wrapper_name="hidden_state")
        self._target = model_wrap(target_model, wrapper_name="hidden_state")
        self._slots, self._double = slots, double

    def outputs(self, data: ArrayDict) -> SequenceOutputs:
        """Of windows `[U, N]`, the fields of `open_windows`."""
        windows = open_windows(data, *self._slots)
        start, stop, end = windows.start, windows.stop, windows.end
        windows.begin(self._learn)
        windows.begin(self._target)
        if start:
            with torch.no_grad():
                windows.unroll(self._learn, 0, start)
        online = windows.unroll(self._learn, start, stop)  # [S, N, A] and others
        choice = None
        with torch.no_grad():
            target = tree_map(lambda x: x[start:], windows.unroll(self._target, 0, end))  # [S + n, N, ...]
            if self._double:
                tail = windows.unroll(self._learn, stop, end)["logit"]
                choice = windows.bootstrap(torch.cat([online["logit"].detach(), tail]).argmax(-1))  # [S, N]
            target = windows.bootstrap(target)
        return SequenceOutputs(online, target, choice, windows)


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


def slots_of(cfg: Any) -> Slots:
    """Arguments of `open_windows` for a recurrent policy with this config."""
    windows = int(cfg.burnin_step), int(cfg.learn_unroll_len), int(cfg.nstep)
    return *windows, float(cfg.discount_factor), bool(cfg.learn.stored_state)


def window_setting(cfg: Any) -> dict[str, Any]:
    """Arguments of the `WindowStream` that makes the train samples of a recurrent policy with this config."""
    return {"unroll_len": int(cfg.learn_unroll_len), "burnin": int(cfg.burnin_step), "tail": int(cfg.nstep)}


def window_mistakes(cfg: Any, recurrent: bool, network: Any) -> list[str]:
    """A line for every setting that does not fit a network of this class, and for a class that gives no Q-values."""
    told = list(width_mistakes(cfg) if recurrent else _for_recurrence(cfg, network.__name__))
    if "mode" in inspect.signature(network.forward).parameters:
        told.append(
            f"policy.model: the network ({network.__name__}) is that of an actor-critic policy, as its forward takes "
            "'mode'; wanted one that gives a Q-value an action, such as policy.model.type='dqn' or 'drqn'"
        )
    return told


def width_mistakes(cfg: Any) -> Iterator[str]:
    """A line for every setting of windows that does not fit the others."""
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
    wanted = {"burnin_step": cfg.burnin_step, "learn.value_rescale": cfg.learn.get("value_rescale", False)}
    for key, value in wanted.items():
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
