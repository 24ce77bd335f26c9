"""The worker processes of an env manager, and what happens when one dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.checks import compare_spaces
from ding_like.envs.env_manager.env_specs import registered_specs
from ding_like.envs.env_manager.env_worker import Made, row_spec
from ding_like.envs.env_manager.worker_handle import WorkerHandle
from ding_like.utils.child import ChildDied, ChildTimeout, first_ready
from ding_like.utils.log import get_logger
from ding_like.utils.shared_memory import SharedTree
from ding_like.utils.shipping import packed_for

KINDS = ("env", "env_wrapper")  # registries whose entries a process without a policy needs


class Crew:
    """Workers that hold the columns of a manager, each some that stand side by side.

    Args:
        env_fns: one factory a column.
        workers: number of processes, at most one a column.
        options: role and further arguments of every worker's `BaseEnvManager`.
        on_death: 'raise', 'restart' or 'shrink'.
        limit: seconds an answer to `step` may take; None: any.
        restarts: how many times workers may be started again.

    Attributes:
        made: name and spaces of the envs.
        shared: the arrays of `row_spec`.
        over: whether every process was ended.
        seed, anew: of the seeds that a worker begins with when it is started again; `anew` counts.

    Raises EnvError, after which every process is gone: what an env raised, or a death that the run cannot go on after.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        workers: int,
        options: Mapping[str, Any],
        on_death: str = "raise",
        limit: float | None = None,
        restarts: int = 0,
    ) -> None:
        self._on_death, self._restarts_left = on_death, restarts
        self.seed = self.anew = 0
        self.over = False
        self.workers: list[WorkerHandle] = []
        self.shared: SharedTree | None = None
        try:
            self._start(env_fns, workers, options, limit)
            self.made = self._compared()
            self.shared = SharedTree(row_spec(self.made, len(env_fns)))
        except BaseException:
            self.end()
            raise
        for worker in self.workers:
            worker.share(self.shared)
            worker.live = True

    def _start(
        self, env_fns: Sequence[Callable[[], Any]], workers: int, options: Mapping[str, Any], limit: float | None
    ) -> None:
        specs = registered_specs()
        for i, part in enumerate(np.array_split(np.arange(len(env_fns)), min(workers, len(env_fns)))):
            first, fns = int(part[0]), [env_fns[b] for b in part]
            columns = f"column {first}" if len(part) == 1 else f"columns {first} to {part[-1]}"
            name = f"env worker {i} ('{_name(fns[0])}', {columns}, {options['role']})"
            load = _load(name, fns, specs)
            self.workers.append(WorkerHandle(name, first, len(part), load, dict(options), limit))

    def _compared(self) -> Made:
        """What the workers made. Raises EnvError where their spaces differ."""
        made = []
        for worker in self.workers:
            try:
                made.append(worker.take_made(worker.answer()[1]))
            except (ChildDied, ChildTimeout) as err:
                raise EnvError(f"{err}, making its envs") from err
        for worker, one in zip(self.workers, made):
            compare_spaces(
                (worker.first, one.name, one.observation_space, one.action_space),
                (0, made[0].name, made[0].observation_space, made[0].action_space),
            )
        return made[0]

    # ------------------------------------------------------------------ deaths
    def _died(self, worker: WorkerHandle, err: Exception) -> None:
        worker.child.kill()
        worker.child.close(0.0)
        worker.live, worker.busy, worker.lost = False, False, True
        if self._on_death == "restart" and self._restarts_left > 0:
            self._restarts_left -= 1
            self.anew += 1
            get_logger().warning(f"{err}; started again (max_restarts leaves {self._restarts_left} more)")
            assert self.shared is not None
            worker.start_again(self.shared, self.seed, self.anew)
            return
        worker.gone = True
        if self._on_death == "shrink" and not all(w.gone for w in self.workers):
            get_logger().warning(f"{err}; its columns stay idle (on_worker_death='shrink')")
            return
        self.end()
        raise EnvError(f"{err}; {_advice(self._on_death)}") from err

    def _unless_dead(self, worker: WorkerHandle, call: Callable[[], Any]) -> Any:
        """What `call` gives; None where it shows that the worker is dead."""
        try:
            return call()
        except (ChildDied, ChildTimeout) as err:
            self._died(worker, err)
            return None
        except EnvError:
            self.end()
            raise

    def answer(self, worker: WorkerHandle) -> tuple[Any, Any] | None:
        """What a worker answers; None where it died."""
        return self._unless_dead(worker, worker.answer)

    def wait_for(self, workers: Sequence[WorkerHandle], every: bool = False) -> None:
        """Wait until one, or every one, of those that are not gone is live."""
        while True:
            for worker in workers:
                if not (worker.live or worker.gone):
                    self._unless_dead(worker, worker.arrived)
            starting = [w for w in workers if not (w.live or w.gone)]
            if not starting or (not every and any(w.live for w in self.workers)):
                return
            first_ready([w.child for w in starting], 0.5)

    def ask_once(self, kind: str) -> dict[WorkerHandle, Any]:
        """Ask the workers that are live; what each answered, but those that died of it."""
        asked = [worker for worker in self.workers if worker.live]
        for worker in asked:
            worker.ask(kind)
        answers = {worker: self.answer(worker) for worker in asked}
        return {worker: answer[1] for worker, answer in answers.items() if answer is not None}

    def ask(self, kind: str, values: Mapping[WorkerHandle, Any]) -> dict[WorkerHandle, Any]:
        """Ask workers for something, those again that died of it; what each answered, but those that are gone."""
        answers: dict[WorkerHandle, Any] = {}
        while True:
            self.wait_for(list(values), every=True)
            asked = [worker for worker in values if not (worker in answers or worker.gone)]
            if not asked:
                return answers
            for worker in asked:
                worker.ask(kind, values[worker])
            for worker in asked:
                answer = self.answer(worker)
                if answer is not None:
                    answers[worker] = answer[1]

    # ------------------------------------------------------------------ the end
    def close(self, patience: float = 2.0) -> None:
        """End every worker, within so many seconds after it closed its envs. Raises what the first `close()` of an env
        that failed raised, at the end.
        """
        failed: EnvError | None = None
        until = time.monotonic() + patience
        for worker in self.workers:
            worker.child.ask_to_close()
        for worker in self.workers:
            try:
                while worker.live:
                    worker.child.recv(max(0.0, until - time.monotonic()))
            except (ChildDied, ChildTimeout):  # as it should
                worker.live = False
            except EnvError as err:
                failed = failed or err
        self.end(patience)
        if failed is not None:
            raise failed

    def end(self, patience: float = 1.0) -> None:
        """End every worker, within so many seconds for all of them. Idempotent."""
        self.over, until = True, time.monotonic() + patience
        for worker in self.workers:
            worker.child.ask_to_close()
        for worker in self.workers:
            worker.live = False
            worker.child.close(max(0.0, until - time.monotonic()))
        if self.shared is not None:
            self.shared.close()


def _advice(on_death: str) -> str:
    if on_death == "shrink":
        return "no worker is left"
    if on_death == "restart":
        return "it was started again as often as max_restarts allows"
    return "to go on after that set policy.collect.collector.on_worker_death to 'restart' or 'shrink'"


def _name(fn: Any) -> str:
    while isinstance(fn, partial) and not hasattr(fn, "__name__"):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def _load(name: str, env_fns: list[Callable[[], Any]], specs: dict[str, Any]) -> bytes:
    entries = [spec.entry_point for spec in specs.values() if callable(spec.entry_point)]
    remedy = "make in the factory what cannot be pickled, or use sampler='serial'"
    return packed_for(name, "its env factory", remedy, (env_fns, specs), KINDS, [*env_fns, *entries])
