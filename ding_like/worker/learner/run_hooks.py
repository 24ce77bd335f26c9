"""Hooks that steer the run through `learner.run`: when it evaluates, what it saves, when it ends."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from ding_like.config.checks import at_least, not_negative, optional, positive
from ding_like.config.paths import ConfigError
from ding_like.utils import HOOK_REGISTRY
from ding_like.utils.log import get_logger
from ding_like.worker.learner.hooks import Every, LearnerHook, argument

CKPT_DIR = "ckpt"


@HOOK_REGISTRY.register("evaluation")
class EvaluationHook(LearnerHook):
    """Evaluate at the start, then whenever the counter has moved `freq` since the last time.

    Args:
        freq: steps between evaluations.
        unit: of what: 'train_iter' (gradient steps) or 'env_step'.

    Attributes:
        evaluated_at: the gradient step of its last evaluation; -1 before the first. A loop sets it when it evaluates of
            itself; then no other comes before the next gradient step.
    """

    position = "before_collect"

    def __init__(self, freq: int, unit: str = "train_iter") -> None:
        self._every = Every("evaluation", freq, unit)
        self.evaluated_at = -1

    def __call__(self, learner: Any) -> None:
        if self._every.due(learner, first=self.evaluated_at < 0) and self.evaluated_at != learner.train_iter:
            self.evaluated_at = learner.train_iter
            learner.run.evaluate(wait=False)

    def state_dict(self) -> dict[str, Any]:
        """Where it evaluated last."""
        return {"evaluated_at": self.evaluated_at, "last": self._every.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.evaluated_at, self._every.last = int(state["evaluated_at"]), int(state["last"])


@HOOK_REGISTRY.register("checkpoint")
class CheckpointHook(LearnerHook):
    """Write `ckpt/iteration_N.pth.tar` whenever the counter has moved `freq` since the last time.

    Args:
        freq: steps between checkpoints.
        unit: of what: 'train_iter' (gradient steps) or 'env_step'.
        keep: how many of its newest files stay; None keeps all. Files that another hook wrote, or writes too, stay.
    """

    priority = 35  # after the default checkpoints, which need not be written twice

    def __init__(self, freq: int, unit: str = "train_iter", keep: int | None = None) -> None:
        self._every = Every("checkpoint", freq, unit)
        self._keep = argument("checkpoint", "keep", keep, optional(at_least(1)))
        self._saved: list[int] = []  # gradient steps of its files, oldest first

    def __call__(self, learner: Any) -> None:
        if not self._every.due(learner):
            return
        train_iter = learner.train_iter
        if not self._shared(learner, train_iter):
            learner.run.save(f"iteration_{train_iter}")
        self._saved.append(train_iter)
        while self._keep is not None and len(self._saved) > self._keep:
            oldest = self._saved.pop(0)
            if not self._shared(learner, oldest):
                _delete(learner.run.folder, oldest)

    def keeps(self, train_iter: int) -> bool:
        """Whether the checkpoint of this gradient step is one that it wrote and has not deleted."""
        return train_iter in self._saved

    def _shared(self, learner: Any, train_iter: int) -> bool:
        others = (hook for hook in learner.hooks if hook is not self and hasattr(hook, "keeps"))
        return any(hook.keeps(train_iter) for hook in others)

    def state_dict(self) -> dict[str, Any]:
        """When it saved last, and which files it looks after."""
        return {"last": self._every.last, "saved": list(self._saved)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._every.last, self._saved = int(state["last"]), [int(n) for n in state["saved"]]


def _delete(folder: Path | None, train_iter: int) -> None:
    if folder is None:
        return
    path = Path(folder) / CKPT_DIR / f"iteration_{train_iter}.pth.tar"
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        get_logger().warning(f"hook 'checkpoint': {path} cannot be deleted: {error.strerror or error}; it stays")


@HOOK_REGISTRY.register("early_stop")
class EarlyStopHook(LearnerHook):
    """End the run when evaluations no longer improve, or after some hours. It looks after each evaluation.

    Args:
        patience: evaluations in a row that are not better than the best so far before the run ends; None: any number.
        min_delta: by how much one must be better to count.
        max_hours: wall time after which the run ends, that before a resume included; None: no limit.
    """

    position = "after_eval"

    def __init__(self, patience: int | None = None, min_delta: float = 0.0, max_hours: float | None = None) -> None:
        self._patience = argument("early_stop", "patience", patience, optional(at_least(1)))
        self._min_delta = float(argument("early_stop", "min_delta", min_delta, not_negative))
        self._max_hours = argument("early_stop", "max_hours", max_hours, optional(positive))
        if patience is None and max_hours is None:
            raise ConfigError("hook 'early_stop': got neither patience nor max_hours; give one, or both")
        self._best = -math.inf
        self._waited = 0
        self._start = time.perf_counter()

    def __call__(self, learner: Any) -> None:
        value = float(learner.run.result["eval_value"])
        if value > self._best + self._min_delta:
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        if self._patience is not None and self._waited >= self._patience:
            more = f" by more than {self._min_delta:g}" if self._min_delta else ""
            learner.run.stop(f"early stop: the last {self._waited} evaluations not above {self._best:g}{more}")
        elif self._max_hours is not None and self._elapsed() >= 3600 * self._max_hours:
            learner.run.stop(f"early stop: {self._max_hours:g} hours are over")

    def _elapsed(self) -> float:
        return time.perf_counter() - self._start

    def state_dict(self) -> dict[str, Any]:
        """The best value, how many came since, and the seconds so far."""
        return {"best": self._best, "waited": self._waited, "elapsed": self._elapsed()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._best, self._waited = float(state["best"]), int(state["waited"])
        self._start = time.perf_counter() - float(state["elapsed"])
