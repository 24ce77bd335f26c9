"""The learner: moves a batch to the device, lets the policy take its step, calls hooks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker.attribute import attribute_of
from ding_like.worker.learner.hooks import POSITIONS, LearnerHook, LogHook, SaveHook
from ding_like.worker.learner.padding import learn_watched

_FROM_NUMPY = {np.ndarray: torch.from_numpy}  # a store's arrays are fresh, so the short way serves; `torchify` the rest


_PER_WINDOW = ("index", "weight", "priority")  # fields with one entry a sample


class Learner:
    """Counts and runs gradient steps.

    Args:
        cfg: the `policy.learn.learner` section.
        policy: a `learn_mode`.
        logger: has `log(values, envstep, train_iter, section)`; None logs nothing.
        save: called as `save(name)` by the checkpoint hook; None saves nothing.

    Attributes:
        run: what hooks steer the run by, set by its loop: `evaluate() -> dict`, `save(name)`, `stop(reason)`, `result`
            (of the last evaluation), `collector`, `cfg`, `folder`.
    """

    config: dict = dict(
        hook=dict(
            log_show_after_iter=100,  # gradient steps between log lines of the learner
            save_ckpt_after_iter=10000,  # gradient steps between checkpoints ckpt/iteration_N.pth.tar
        ),
        hooks=[],  # more hooks, built in or your own: dicts of type, import_names and the constructor's arguments
    )

    def __init__(self, cfg: Any, policy: Any, logger: Any = None, save: Any = None) -> None:
        self._policy = policy
        self._device = policy.get_attribute("device")
        self._moves = self._device.type != "cpu"
        self._time_major = bool(attribute_of(policy, "time_major", False))
        self._watching = True  # until a batch with padding showed whether the policy reads the mask
        self.logger = logger
        self.train_iter = 0
        self.envstep = 0
        self.last: dict[str, Any] = {}
        self.run: Any = None
        self.hooks: list[LearnerHook] = []  # in the order they were added
        self._hooks: dict[str, list[LearnerHook]] = {position: [] for position in POSITIONS}
        self.log_freq = int(cfg.hook.log_show_after_iter)
        self.add_hook(LogHook(self.log_freq))
        if save is not None:
            self.add_hook(SaveHook(int(cfg.hook.save_ckpt_after_iter), save))
        for entry in cfg.hooks:
            kwargs = dict(entry)
            name, modules = kwargs.pop("type", None), kwargs.pop("import_names", [])
            if name is None:
                raise ValueError(f"policy.learn.learner.hooks: {dict(entry)} has no 'type', the hook's registered name")
            self.add_hook(HOOK_REGISTRY.build(name, import_names=modules, **kwargs))

    @property
    def policy(self) -> Any:
        """The learn mode, for hooks."""
        return self._policy

    def add_hook(self, hook: LearnerHook) -> None:
        """Call `hook(learner)` at its position; lower priority numbers first.

        Raises ValueError for an unknown position, and where the hook does not fit this learner.
        """
        if hook.position not in POSITIONS:
            raise ValueError(f"hook {type(hook).__name__} has position {hook.position!r}; wanted one of {POSITIONS}")
        if hasattr(hook, "attach"):  # any callable with a position and a priority will do
            hook.attach(self)
        self.hooks.append(hook)
        self._hooks[hook.position].append(hook)
        self._hooks[hook.position].sort(key=lambda h: h.priority)

    def call_hook(self, position: str) -> None:
        """Run the hooks of a position."""
        for hook in self._hooks[position]:
            hook(self)

    def train(self, batch: Any, envstep: int) -> dict[str, Any]:
        """One `_forward_learn` on a batch (numpy or torch tree). Returns what the policy returned.

        Raises FloatingPointError, before any hook can save, when the loss is not finite.
        """
        self.envstep = envstep
        self.call_hook("before_iter")
        data = ArrayDict({k: _FROM_NUMPY.get(type(v), torchify)(v) for k, v in batch.items()})
        windows = not self._time_major and getattr(data.get("null"), "ndim", 0) == 2  # `[N, U]`, of `get_train_sample`
        if self._time_major or windows:
            data = ArrayDict({k: v if k in _PER_WINDOW else tree_map(_time_first, v) for k, v in data.items()})
        if self._moves:
            data = tree_map(self._to_device, data)
        self._policy.set_attribute("envstep", envstep)  # learning-rate schedules count env steps
        if windows and self._watching and bool((data["null"] != 0).any()):
            self._watching = False
            info = learn_watched(self._policy.forward, data)
        else:
            info = self._policy.forward(data)
        self._check(info)
        self.last = info
        self.train_iter += 1
        self.call_hook("after_iter")
        return info

    def state_dict(self) -> dict[str, Any]:
        """Counters, what the policy returned last, name and state of every hook in the order they were added."""
        hooks = [{"type": type(hook).__name__, "state": _state_of(hook)} for hook in self.hooks]
        return {"train_iter": self.train_iter, "envstep": self.envstep, "last": _plain(self.last), "hooks": hooks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`. Raises ValueError where it was saved with other hooks."""
        mine, saved = [type(hook).__name__ for hook in self.hooks], [entry["type"] for entry in state["hooks"]]
        if mine != saved:
            raise ValueError(
                f"the state was saved with the hooks {', '.join(saved) or 'none'}; this learner has "
                f"{', '.join(mine) or 'none'}. Go on with the same policy.learn.learner.hooks, in the same order"
            )
        for hook, entry in zip(self.hooks, state["hooks"]):
            if hasattr(hook, "load_state_dict"):
                hook.load_state_dict(entry["state"])
        self.train_iter, self.envstep, self.last = int(state["train_iter"]), int(state["envstep"]), dict(state["last"])

    def _to_device(self, x: Any) -> Any:
        return x.to(self._device, non_blocking=True) if isinstance(x, torch.Tensor) else x

    def _check(self, info: dict[str, Any]) -> None:
        loss = info.get("total_loss")
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        if loss is not None and not math.isfinite(float(loss)):
            raise FloatingPointError(
                f"the loss is {float(loss)} at train_iter {self.train_iter}, env step {self.envstep}. The last "
                "checkpoint is from before; try a smaller learning_rate, grad_clip_norm, or bounded rewards."
            )


def _time_first(x: Any) -> Any:
    """`[N, U, ...]` as `[U, N, ...]`."""
    return x.transpose(0, 1) if isinstance(x, torch.Tensor) and x.dim() > 1 else x


def _state_of(hook: LearnerHook) -> Any:
    if not hasattr(hook, "state_dict"):
        return None
    try:
        return hook.state_dict()
    except Exception as err:  # whatever code of the user's raises: said with the name of the hook
        raise RuntimeError(f"hook {type(hook).__name__}: its state_dict raised {type(err).__name__}: {err}") from err


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """The numbers, strings, arrays and tensors of what a policy returned."""
    kinds = (bool, int, float, str, np.ndarray, np.generic, torch.Tensor)
    return {key: value for key, value in info.items() if isinstance(value, kinds)}
