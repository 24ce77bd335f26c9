"""Steps to learn from, transitions or windows, seen by one interface: what actor and critics say of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ding_like.data import ArrayDict
from ding_like.policy.sequences import open_windows


class Transitions:
    """Transitions `[N]` to learn from: what the two networks say at both of their ends."""

    mask: Tensor | None = None
    """The steps that train; None: all."""

    def __init__(self, data: ArrayDict, learn: Any, target: Any) -> None:
        self._data, self._learn, self._target = data, learn, target
        self.reward, self.discount = data["reward"], data["discount"]

    def logit(self) -> Any:
        """What the actor says where it acted."""
        return self._learn.forward(self._data["obs"], mode="compute_actor")["logit"]

    def next_logit(self, target: bool) -> Any:
        """What it says at the bootstraps, by the target network or the online one."""
        network = self._target if target else self._learn
        return network.forward(self._data["next_obs"], mode="compute_actor")["logit"]

    def taken(self) -> Tensor:
        """The critics' values `[K, N]` of the actions taken."""
        return _at_taken(self.q(self._data["action"]), self._data["action"])

    def q(self, action: Tensor | None, **setting: Any) -> Tensor:
        """Those of other actions in the same place; where discrete, of every action, `[K, N, A]`."""
        inputs = {"obs": self._data["obs"], "action": action}
        return self._learn.forward(inputs, mode="compute_critic", **setting)["q_value"]

    def next_q(self, action: Tensor | None) -> Tensor:
        """The target critics' values of actions at the bootstraps."""
        inputs = {"obs": self._data["next_obs"], "action": action}
        return self._target.forward(inputs, mode="compute_critic")["q_value"]

    def bootstrap(self, value: Tensor) -> Tensor:
        """Values of the bootstraps `[N]`, of what `next_q` is of."""
        return value


class Unrolled:
    """The same of the trained steps of windows, `[S, N]`; `next_*` are of all slots from the first of these on.

    Each part of a network is unrolled on its own, from the state of the window's first slot and burnt in without
    gradient. Critics remember the actions that were taken, whichever they value. Ni 2022.

    Args:
        data: fields `[U, N, ...]`.
        learn, target: `hidden_state` wrappers.
        slots: arguments of `open_windows`.
    """

    def __init__(self, data: ArrayDict, learn: Any, target: Any, slots: tuple[Any, ...]) -> None:
        self._windows = w = open_windows(data, *slots)
        self._learn, self._target = learn, target
        self.reward, self.discount, self.mask = w.reward, w.discount, w.mask
        self.bootstrap = w.bootstrap

    def _run(self, model: Any, mode: str, stop: int, **inputs: Any) -> dict[str, Any]:
        w = self._windows
        w.begin(model)
        if w.start:
            with torch.no_grad():
                w.unroll(model, 0, w.start, mode=mode, action=w.action[: w.start])
        return w.unroll(model, w.start, stop, mode=mode, action=w.action[w.start : stop], **inputs)

    def logit(self) -> Any:
        """See `Transitions`."""
        return self._run(self._learn, "compute_actor", self._windows.stop)["logit"]

    def next_logit(self, target: bool) -> Any:
        """See `Transitions`; `[S + n, N, ...]`."""
        return self._run(self._target if target else self._learn, "compute_actor", self._windows.end)["logit"]

    def taken(self) -> Tensor:
        """See `Transitions`."""
        w = self._windows
        return _at_taken(self._run(self._learn, "compute_critic", w.stop)["q_value"], w.action[w.start : w.stop])

    def q(self, action: Tensor | None, **setting: Any) -> Tensor:
        """See `Transitions`; the setting is of no use here, as the RNN is what takes time."""
        return self._run(self._learn, "compute_critic", self._windows.stop, candidate=action)["q_value"]

    def next_q(self, action: Tensor | None) -> Tensor:
        """See `Transitions`; `[K, S + n, N, ...]`."""
        return self._run(self._target, "compute_critic", self._windows.end, candidate=action)["q_value"]


def _at_taken(q_value: Tensor, action: Tensor) -> Tensor:
    """Of values `[K, ..., A]` of every discrete action those of the actions `[...]`; others are of these already."""
    if action.is_floating_point():
        return q_value
    return q_value.gather(-1, action.expand(q_value.shape[:-1]).unsqueeze(-1)).squeeze(-1)  # [K, ...]
