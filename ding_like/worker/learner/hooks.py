"""Learner hooks: callables at fixed places of a run, added by code or by config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.config.checks import Check, at_least, one_of
from ding_like.config.paths import ConfigError

text = Check(lambda value: isinstance(value, str) and value != "", "a text")

POSITIONS = ("before_run", "before_collect", "before_iter", "after_iter", "after_eval", "after_run")


class LearnerHook:
    """A callable at one place of the run: `before_run`, `before_collect` (once a round of the loop), `before_iter` and
    `after_iter` (of a gradient step), `after_eval`, `after_run`.

    Register a class of your own with `HOOK_REGISTRY.register('name')` and list it under `policy.learn.learner.hooks`.
    One with memory has `state_dict()` and `load_state_dict(state)`, of plain types: a resumed run goes on with it.
    """

    position = "after_iter"
    priority = 50

    def __call__(self, learner: Any) -> None:
        """`learner` has `train_iter`, `envstep`, `last` (what the policy returned), `policy`, `logger` and `run`."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def attach(self, learner: Any) -> None:
        """Called when the learner takes the hook, before a run folder is made: raise ValueError if they do not fit."""


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
        if self.keeps(learner.train_iter):
            self._save(f"iteration_{learner.train_iter}")

    def keeps(self, train_iter: int) -> bool:
        """Whether the checkpoint of this gradient step is one of its own."""
        return train_iter % self._freq == 0


def argument(hook: str, name: str, value: Any, check: Check) -> Any:
    """Return the value of a hook's argument. Raises ConfigError naming hook, argument, value and what was wanted."""
    told = check.mistake(value, f"hook '{hook}': {name}")
    if told:
        raise ConfigError(told)
    return value


class Every:
    """Counts `freq` steps of a unit, 'train_iter' or 'env_step' (as of the last gradient step), for a hook by name."""

    def __init__(self, hook: str, freq: int, unit: str) -> None:
        self._freq = int(argument(hook, "freq", freq, at_least(1)))
        self._unit = argument(hook, "unit", unit, one_of("train_iter", "env_step"))
        self.last = 0

    def due(self, learner: Any, first: bool = False) -> bool:
        """Whether so many have passed since this last was True; `first` makes it True in any case."""
        now = learner.train_iter if self._unit == "train_iter" else learner.envstep
        if not first and now - self.last < self._freq:
            return False
        self.last = now
        return True


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value.detach().double().mean())
    if isinstance(value, (np.ndarray, np.generic)):
        return float(value.mean()) if value.dtype.kind in "biuf" else None
    return float(value) if isinstance(value, (int, float)) else None
