"""The sync loop: evaluate, collect, train, in turn, in one thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ding_like.entry.build import Components
from ding_like.utils.log import Logger, get_logger
from ding_like.utils.progress import Progress
from ding_like.worker import Learner


@dataclass
class SyncLoop:
    """One run of `Components`.

    Args:
        save: `save(name)` writes a checkpoint of that name.
        max_train_iter, max_env_step: the run ends at whichever comes first.

    Attributes:
        stopped: whether an evaluation reached the stop value.
        result: the last evaluation.
    """

    parts: Components
    learner: Learner
    logger: Logger
    save: Callable[[str], Any]
    progress: Progress
    max_train_iter: int
    max_env_step: int
    stopped: bool = False
    result: dict[str, Any] = field(default_factory=dict)
    _best: float = float("-inf")
    _evaluated_at: int = -1
    _logged_at: int = 0
    _logged_episodes: int = 0

    def run(self) -> None:
        """Train until the stop value or a limit; the last evaluation is of the final policy."""
        gc.freeze()  # what was made so far stays for the run: not to be looked through again and again
        try:
            self._run()
        finally:
            gc.unfreeze()

    def _run(self) -> None:
        parts, learner, policy_cfg = self.parts, self.learner, self.parts.cfg.policy
        collector, store = parts.collector, parts.store
        updates, batch_size = int(learner.policy.get_attribute("updates")), int(policy_cfg.learn.batch_size)
        learner.call_hook("before_run")
        collector.start()
        if policy_cfg.random_collect_size > 0:
            prefill = min(int(policy_cfg.random_collect_size), self.max_env_step)
            collector.collect(store.push, n_sample=prefill, random=True)
        while True:
            if self._evaluation_due():
                self.evaluate()
            if self.stopped or self._limit_reached():
                break
            collector.collect(store.push)
            for batch in store.batches(updates, batch_size):
                info = learner.train(batch, collector.envstep)
                if "priority" in info:
                    store.update(batch["index"], info["priority"])
                if learner.train_iter >= self.max_train_iter or info.get("stop_updates"):
                    break
            self._log_collect()
            self.progress.update(collector.envstep, learner.train_iter)
        if self._evaluated_at != learner.train_iter:
            self.evaluate()
        if learner.train_iter == 0 and self.max_train_iter > 0:
            get_logger().warning(
                f"no gradient step was taken: {store.count} items were collected in {collector.envstep} env steps, a "
                f"batch is {batch_size}; raise --env-step, or lower policy.learn.batch_size or policy.nstep"
            )
        learner.call_hook("after_run")

    def evaluate(self) -> None:
        """One evaluation: log it, keep the best checkpoint, look for the stop value."""
        learner, envstep = self.learner, self.parts.collector.envstep
        self._evaluated_at = learner.train_iter
        self.result = self.parts.evaluator.evaluate()
        values = {k: v for k, v in self.result.items() if k != "returns"}
        self.logger.log(values, envstep, learner.train_iter, section="eval")
        self.progress.update(envstep, learner.train_iter, self.result["eval_value"])
        if self.result["eval_value"] > self._best:
            self._best = self.result["eval_value"]
            self.save("ckpt_best")
        if learner.train_iter > 0 and self.parts.evaluator.reached(self.result["eval_value"]):
            self.stopped = True

    def _evaluation_due(self) -> bool:
        return self._evaluated_at < 0 or (
            self.learner.train_iter - self._evaluated_at >= self.parts.evaluator.eval_freq
        )

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
