"""The sync loop: evaluate, collect, train, in turn, in one thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ding_like.distributed.evaluation import EvaluatorProcess
from ding_like.entry.build import Components
from ding_like.entry.diagnostics import Diagnostics
from ding_like.entry.resume import ResumePoints
from ding_like.entry.stop import StopRequest
from ding_like.utils.log import Logger, get_logger
from ding_like.utils.progress import Progress
from ding_like.utils.seed import set_rng_state
from ding_like.worker import Learner
from ding_like.worker.learner import EvaluationHook


@dataclass
class Moment:
    """What is evaluated by another process: when it was, and the policy's state then, for a checkpoint of it."""

    envstep: int
    train_iter: int
    state: dict[str, Any]


@dataclass
class SyncLoop:
    """One run of `Components`; hooks know it as `learner.run`.

    Args:
        save: `save(name, moment)` writes a checkpoint of that name; of another moment than now, where one is given.
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
    save: Callable[..., Any]
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
    _evaluated_at: int = -1  # gradient step of the last evaluation
    _under_way: Moment | None = None  # of which another process makes an evaluation now

    def __post_init__(self) -> None:
        evaluator = self.parts.evaluator
        self._aside = evaluator if isinstance(evaluator, EvaluatorProcess) else None
        self.diagnostics = Diagnostics(self.parts, self.learner)
        self._evaluation = EvaluationHook(evaluator.eval_freq)
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
            gc.collect()  # a finished run's shared memory goes with its last cycle of references

    def _start(self) -> None:
        collector, size = self.parts.collector, int(self.parts.cfg.policy.random_collect_size)
        collector.start()
        if size > 0:
            self.diagnostics.collecting()
            collector.collect(self.diagnostics.push, n_step=min(size, self.max_env_step), random=True)
            self.diagnostics.phases.enter("other")

    def _run(self, resumed: bool) -> None:
        learner, collector, points, whole = self.learner, self.parts.collector, self.points, True
        phases = self.diagnostics.phases
        while True:
            self._look_for_result()
            if not resumed:  # the point was written after those of its round
                learner.call_hook("before_collect")
            resumed = False
            if self.reason is not None or self._limit_reached():
                break
            if self.request.error is not None:
                if points is not None:
                    points.write()
                raise self.request.error
            self.diagnostics.collecting()  # a point waits for rows that are under way
            if points is not None and (points.due or learner.train_iter + self._round >= self.max_train_iter):
                points.write()
            collector.collect(self.diagnostics.push)
            if self.parts.lag and not self._limit_reached():
                self.diagnostics.ahead()
                collector.begin()  # workers fill the next block with the network as it is, while it learns here
            phases.enter("learn")
            whole = self._train()
            phases.enter("other")
            self._log_collect()
            self.diagnostics.log(self.logger)
            self.progress.update(collector.envstep, learner.train_iter)
        self.diagnostics.log_rates(self.logger)
        if points is not None and whole:  # a round cut short cannot be gone on with: the point before it counts
            points.write()  # before the last evaluation, which a run with a larger limit would not make here
        self._await_result()
        if self._evaluated_at != learner.train_iter and not (self.stopped and self._aside):
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
        self.diagnostics.before_batches()
        batches = iter(store.batches(updates, size))
        for batch in batches:
            self.diagnostics.note(batch)
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

    def evaluate(self, wait: bool = True) -> dict[str, Any]:
        """One evaluation: log it, keep the best checkpoint, look for the stop value. Returns its result.

        Args:
            wait: False: where another process evaluates, go on meanwhile, and return the result of the one before.
        """
        aside, learner, envstep = self._aside, self.learner, self.parts.collector.envstep
        self._await_result()
        if aside is not None and not wait and self.reason is not None:  # what was awaited ends the run
            self._evaluation.evaluated_at = self._evaluated_at
            return self.result
        self._evaluated_at = self._evaluation.evaluated_at = learner.train_iter
        former = self.diagnostics.phases.enter("evaluate")
        if aside is not None:
            self._under_way = Moment(envstep, learner.train_iter, learner.policy.state_dict())
            aside.begin()
            if wait:
                self._await_result()
        else:
            self._take(self.parts.evaluator.evaluate(), envstep, learner.train_iter)
        self.diagnostics.phases.enter(former)
        return self.result

    def _look_for_result(self) -> None:
        """Take the result of an evaluation by another process, if it is there."""
        if self._aside is not None and self._under_way is not None and (result := self._aside.poll()) is not None:
            self._take_late(result)

    def _await_result(self) -> None:
        """Wait for the evaluation by another process, if one is under way."""
        if self._aside is not None and self._under_way is not None:
            former = self.diagnostics.phases.enter("evaluate")
            self._take_late(self._aside.wait())
            self.diagnostics.phases.enter(former)

    def _take_late(self, result: dict[str, Any]) -> None:
        moment, self._under_way = self._under_way, None
        assert moment is not None
        self._take(result, moment.envstep, moment.train_iter, moment)

    def _take(self, result: dict[str, Any], envstep: int, train_iter: int, moment: Moment | None = None) -> None:
        """An evaluation of the policy of this env and gradient step is over."""
        self.result = result
        values = {k: v for k, v in result.items() if k != "returns"}
        self.logger.log(values, envstep, train_iter, section="eval")
        self.progress.update(self.parts.collector.envstep, self.learner.train_iter, result["eval_value"])
        if result["eval_value"] > self._best:
            self._best = result["eval_value"]
            self.save("ckpt_best", moment)
        if train_iter > 0 and self.parts.evaluator.reached(result["eval_value"]):
            self.stopped = True
            self.stop(f"stop value {self.parts.evaluator.stop_value:g} reached")
        self.learner.call_hook("after_eval")

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
            "evaluated_at": self._evaluated_at,
            "under_way": None if self._under_way is None else vars(self._under_way),
            "diagnostics": self.diagnostics.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.stopped, self.reason, self.result = state["stopped"], state["reason"], state["result"]
        self._best = state["best"]
        self._logged_at, self._logged_episodes = state["logged"]
        self._evaluated_at = state["evaluated_at"]
        self._under_way = None if state["under_way"] is None else Moment(**state["under_way"])
        self.diagnostics.load_state_dict(state["diagnostics"])

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
