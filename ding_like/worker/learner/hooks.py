"""Learner hooks: callables at fixed places of a run, added by code or by config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

POSITIONS = ("before_run", "before_iter", "after_iter", "after_run")


class LearnerHook:
    """A callable at one place of the run.

    Register a class of your own with `HOOK_REGISTRY.register('name')` and list it under `policy.learn.learner.hooks`.
    """

    position = "after_iter"
    priority = 50

    def __call__(self, learner: Any) -> None:
        """`learner` has `train_iter`, `envstep`, `last` (what the policy returned), `policy` and `logger`."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")


class LogHook(LearnerHook):
    """Log every number the policy returned, every `freq` gradient steps; tensors and arrays as their mean."""

    priority = 20

    def __init__(self, freq: int) -> None:
        if freq < 1:
            raise ValueError(f"policy.learn.learner.hook.log_show_after_iter is {freq}; wanted at least 1")
        self._freq = freq

    def __call__(self, learner: Any) -> None:
        if learner.train_iter % self._freq or learner.logger is None:
            return
        values = {k: _number(v) for k, v in learner.last.items() if k != "priority"}
        numbers = {k: v for k, v in values.items() if v is not None}
        learner.logger.log(numbers, learner.envstep, learner.train_iter, section="learner")


class SaveHook(LearnerHook):
    """Checkpoint every `freq` gradient steps."""

    priority = 30

    def __init__(self, freq: int, save: Callable[[str], Any]) -> None:
        if freq < 1:
            raise ValueError(f"policy.learn.learner.hook.save_ckpt_after_iter is {freq}; wanted at least 1")
        self._freq, self._save = freq, save

    def __call__(self, learner: Any) -> None:
        if learner.train_iter % self._freq == 0:
            self._save(f"iteration_{learner.train_iter}")


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value.detach().double().mean())
    if isinstance(value, (np.ndarray, np.generic)):
        return float(value.mean()) if value.dtype.kind in "biuf" else None
    return float(value) if isinstance(value, (int, float)) else None
