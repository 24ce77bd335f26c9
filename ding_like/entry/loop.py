"""The sync loop: evaluate, collect, train, in turn, in one thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ding_like.entry.build import Components
from ding_like.entry.resume import ResumePoints
from ding_like.entry.stop import StopRequest
from ding_like.utils.log import Logger, get_logger
from ding_like.utils.progress import Progress
from ding_like.utils.seed import set_rng_state
from ding_like.worker import Learner
from ding_like.worker.learner import EvaluationHook


@dataclass
class SyncLoop:
    """One run of `Components`; hooks know it as `learner.run`.

    Args:
        save: `save(name)` writes a checkpoint of that name.
        max_train_iter, max_env_step: the run ends at whichever comes first.
        folder: of the run.

    Attributes:
        stopped: whether an evaluation reached the stop value.
        reason: why a hook, or the stop value, ends the run; None while it goes on.
        result: the last evaluation.
        points: writes the resume points, where there are any.
        request: somebody outside may ask the run to stop.
    """

    parts: Components
    learner: Learner
    save: Callable[[str], Any]
    max_train_iter: int
    max_env_step: int
    folder: Path | None = None
    logger: Logger = field(default_factory=lambda: Logger(None, console=False))
    progress: Progress = field(default_factory=Progress)
    stopped: bool = False
    reason: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    points: ResumePoints | None = None
    request: StopRequest = field(default_factory=StopRequest)
    _best: float = float("-inf")
    _round: int = 0  # most gradient steps of a round so far
    _logged_at: int = 0
    _logged_episodes: int = 0

    def __post_init__(self) -> None:
        self._evaluation = EvaluationHook(self.parts.evaluator.eval_freq)
        self.learner.add_hook(self._evaluation)
        self.learner.run = self

    @property
    def collector(self) -> Any:
        """The collector, for hooks."""
        return self.parts.collector

    @property
    def cfg(self) -> Any:
        """The full config, for hooks."""
        return self.parts.cfg

    def run(self, rng: dict | None = None) -> None:
        """Train until the stop value or a limit; the last evaluation is of the final policy.

        Args:
            rng: the state of the global generators of a run that is resumed; None: it starts.
        """
        gc.freeze()  # what was made so far stays for the run: not to be looked through again and again
        try:
            self.learner.call_hook("before_run")
            if rng is None:
                self._start()
            else:
                set_rng_state(rng)
            self.request.deferring = self.points is not None and self.points.enabled
            self._run(resumed=rng is not None)
            self.request.deferring = False
            self.learner.call_hook("after_run")
        finally:
            self.request.deferring = False
            gc.unfreeze()

    def _start(self) -> None:
        collector, size = self.parts.collector, int(self.parts.cfg.policy.random_collect_size)
        collector.start()
        if size > 0:
            collector.collect(self.parts.store.push, n_step=min(size, self.max_env_step), random=True)

    def _run(self, resumed: bool) -> None:
        learner, collector, points, whole = self.learner, self.parts.collector, self.points, True
        while True:
            if not resumed:  # the point was written after those of its round
                learner.call_hook("before_collect")
            resumed = False
            if self.reason is not None or self._limit_reached():
                break
            if self.request.error is not None:
                if points is not None:
                    points.write()
                raise self.request.error
            if points is not None and (points.due or learner.train_iter + self._round >= self.max_train_iter):
                points.write()
            collector.collect(self.parts.store.push)
            whole = self._train()
            self._log_collect()
            self.progress.update(collector.envstep, learner.train_iter)
        if points is not None and whole:  # a round cut short cannot be gone on with: the point before it counts
            points.write()  # before the last evaluation, which a run with a larger limit would not make here
        if self._evaluation.evaluated_at != learner.train_iter:
            self.evaluate()
        if learner.train_iter == 0 and self.max_train_iter > 0:
            get_logger().warning(
                f"no gradient step was taken: {self.parts.store.count} items were collected in {collector.envstep} env "
                f"steps, a batch is {self.parts.cfg.policy.learn.batch_size}; raise --env-step, or lower "
                "policy.learn.batch_size or policy.nstep"
            )

    def _train(self) -> bool:
        """The gradient steps of one round. Returns whether the limit left none of them out."""
        learner, store, start = self.learner, self.parts.store, self.learner.train_iter
        updates, size = int(learner.policy.get_attribute("updates")), int(self.parts.cfg.policy.learn.batch_size)
        batches = iter(store.batches(updates, size))
        for batch in batches:
            info = learner.train(batch, self.parts.collector.envstep)
            if "priority" in info:
                store.update(batch["index"], info["priority"])
            elif getattr(store, "priority", False):
                raise ValueError(
                    f"policy.priority is True, but _forward_learn of policy '{self.parts.cfg.policy.type}' returns no "
                    "'priority' [N] for the replay buffer; return one (the absolute TD error), or set it to False"
                )
            if learner.train_iter >= self.max_train_iter:
                return next(batches, None) is None
            if info.get("stop_updates"):
                break
        self._round = max(self._round, learner.train_iter - start)
        return True

    def evaluate(self) -> dict[str, Any]:
        """One evaluation: log it, keep the best checkpoint, look for the stop value. Returns its result."""
        learner, envstep = self.learner, self.parts.collector.envstep
        self._evaluation.evaluated_at = learner.train_iter
        self.result = self.parts.evaluator.evaluate()
        values = {k: v for k, v in self.result.items() if k != "returns"}
        self.logger.log(values, envstep, learner.train_iter, section="eval")
        self.progress.update(envstep, learner.train_iter, self.result["eval_value"])
        if self.result["eval_value"] > self._best:
            self._best = self.result["eval_value"]
            self.save("ckpt_best")
        if learner.train_iter > 0 and self.parts.evaluator.reached(self.result["eval_value"]):
            self.stopped = True
            self.stop(f"stop value {self.parts.evaluator.stop_value:g} reached")
        learner.call_hook("after_eval")
        return self.result

    def stop(self, reason: str) -> None:
        """End the run before it collects again; the first reason counts."""
        self.reason = self.reason or reason

    def state_dict(self) -> dict[str, Any]:
        """Counters and results."""
        return {
            "stopped": self.stopped,
            "reason": self.reason,
            "result": self.result,
            "best": self._best,
            "logged": [self._logged_at, self._logged_episodes],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.stopped, self.reason, self.result = state["stopped"], state["reason"], state["result"]
        self._best = state["best"]
        self._logged_at, self._logged_episodes = state["logged"]

    def _limit_reached(self) -> bool:
        return self.learner.train_iter >= self.max_train_iter or self.parts.collector.envstep >= self.max_env_step

    def _log_collect(self) -> None:
        """Training returns, where episodes ended since the last line and the learner's log is due."""
        collector, train_iter = self.parts.collector, self.learner.train_iter
        if train_iter - self._logged_at < self.learner.log_freq or collector.episode_count == self._logged_episodes:
            return
        self._logged_at, self._logged_episodes = train_iter, collector.episode_count
        setting = {k: v for k, v in collector.setting.items() if isinstance(v, (int, float))}
        self.logger.log({**collector.statistics(), **setting}, collector.envstep, train_iter, section="collect")
