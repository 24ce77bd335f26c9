"""Evaluation in a process of its own, while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ding_like.data import tree_map
from ding_like.utils.child import Child, ChildDied, ChildTimeout, receive, tell
from ding_like.utils.log import get_logger
from ding_like.utils.seed import set_global_seed
from ding_like.utils.shipping import packed_for, unpickled
from ding_like.worker import Evaluator

PRELOAD = ("torch", "ding_like.distributed.evaluation", "ding_like.policy", "ding_like.envs.make")
START_PATIENCE = 120.0  # seconds to import and to make envs and policy


class EvaluationError(RuntimeError):
    """The evaluation process died twice in one evaluation."""


@dataclass
class EvaluationTask:
    """What the process is started with.

    Attributes:
        make: makes env manager, policy and evaluator, in the process.
        seed: of the run.
        threads: of torch.
    """

    make: Callable[[], tuple[Any, Any, Evaluator]]
    seed: int
    threads: int = 1


def run(conn: Connection, load: bytes) -> None:
    """The process's program, given a pickled `EvaluationTask`: evaluate the weights that it is sent until it is told to
    close.
    """
    task: EvaluationTask = unpickled(load)
    torch.set_num_threads(task.threads)
    set_global_seed(task.seed)
    manager, policy, evaluator = task.make()
    try:
        tell(conn, "ready")
        while (message := receive(conn))[0] != "close":
            kind, value = message
            if kind == "load":
                evaluator.load_state_dict(value)
            else:
                policy.get_model().load_state_dict(value)
                tell(conn, "result", (evaluator.evaluate(), evaluator.state_dict()))
    finally:
        manager.close()


class EvaluatorProcess(Evaluator):
    """An evaluator whose episodes a child process plays, with the weights of the moment it was asked.

    One evaluation at a time. Where the process dies, or takes longer than `timeout`, another one makes the evaluation
    again.

    Args:
        cfg: the `policy.eval.evaluator` section.
        policy: of the run.
        task: what the process is started with.

    Raises what making envs and policy raises there.
    """

    def __init__(self, cfg: Any, policy: Any, task: EvaluationTask) -> None:
        super().__init__(cfg, None, policy, task.seed)
        self._timeout = None if cfg.timeout is None else float(cfg.timeout)
        remedy = (
            "take out of env and model what cannot be pickled (locks, open files), or set "
            "policy.eval.evaluator.where to 'here'"
        )
        self._load = packed_for("evaluation", "its env or model", remedy, task)
        self._weights: Any = None  # of the evaluation under way
        self._env_state: dict = {}  # of the envs before it
        self._deadline = float("inf")
        self._lost = 0  # processes, in this evaluation
        self._child = self._start()

    def _start(self) -> Child:
        child = Child("evaluation", run, (self._load,), PRELOAD, kinds=())
        try:
            child.recv(START_PATIENCE)
        except BaseException:
            child.close(0.0)
            raise
        return child

    @property
    def under_way(self) -> bool:
        """Whether an evaluation was begun of which nobody has taken the result."""
        return self._weights is not None

    def begin(self) -> None:
        """Begin an evaluation of the policy as it is now."""
        assert not self.under_way
        self._weights = tree_map(_copied, dict(self._policy.get_model().state_dict()))
        self._lost = 0
        self._ask()

    def _ask(self) -> None:
        self._deadline = float("inf") if self._timeout is None else time.monotonic() + self._timeout
        try:
            self._child.send("evaluate", self._weights, self._timeout)
        except (ChildDied, ChildTimeout) as err:
            self._again(err)

    def poll(self) -> dict[str, Any] | None:
        """The result of the evaluation under way, if it is there. Raises as `wait`."""
        there = self._child.ready() or time.monotonic() > self._deadline
        return self.wait() if there else None

    def wait(self) -> dict[str, Any]:
        """The result of the evaluation under way.

        Raises what the evaluation raises, EvaluationError where two processes died of it.
        """
        while True:
            left = None if self._timeout is None else max(0.0, self._deadline - time.monotonic())
            try:
                result, self._env_state = self._child.recv(left)[1]
            except (ChildDied, ChildTimeout) as err:
                self._again(err)
                continue
            self._weights = None
            return result

    def _again(self, why: Exception) -> None:
        """Make the evaluation once more, in another process."""
        self._child.close(0.0)
        self._lost += 1
        if self._lost > 1:
            raise EvaluationError(
                f"{why}, the second time in one evaluation; policy.eval.evaluator.where='here' evaluates in this "
                "process, policy.eval.evaluator.timeout is the time that it may take"
            ) from why
        get_logger().warning(f"{why}; another process makes the evaluation again")
        self._child = self._start()
        if self._env_state:
            self._child.send("load", self._env_state)
        self._ask()

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the policy as it is now and wait for the result; see `Evaluator.evaluate`."""
        self.begin()
        return self.wait()

    def state_dict(self) -> dict:
        """The envs as they were before the evaluation under way, and its weights: it is made again."""
        return {"env": self._env_state, "weights": self._weights}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`, and begin the evaluation that was under way."""
        self._env_state, self._lost = state["env"], 0
        if self._env_state:
            self._child.send("load", self._env_state)
        if state["weights"] is not None:
            self._weights = tree_map(_copied, state["weights"])
            self._ask()

    def close(self) -> None:
        """End the process, also amid an evaluation. Idempotent."""
        self._child.close(0.0 if self.under_way else 2.0)


def _copied(x: Any) -> Any:
    return x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x
