"""Worker processes of the `local` sampler, seen as an env manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ding_like.distributed.local_worker import HEARTBEAT, Task, run
from ding_like.distributed.worker_rows import WorkerRows
from ding_like.distributed.worker_slot import WorkerSlot
from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.checks import compare_spaces
from ding_like.envs.env_manager.env_specs import packed_envs
from ding_like.envs.env_manager.env_worker import Made
from ding_like.utils.child import Child
from ding_like.utils.cores import cores_for
from ding_like.utils.shared_memory import SharedTree, spec_of
from ding_like.utils.workers import Workers, split_columns

PRELOAD = ("torch", "ding_like.distributed.local_worker", "ding_like.policy", "ding_like.envs.make")


class WorkerError(EnvError):
    """A worker process died or hung, and the run cannot go on after it."""


class WorkerGroup(Workers[WorkerSlot]):
    """Workers of the `local` sampler, seen as an env manager by whoever builds a run.

    Args:
        make_env: `make_env(first, end)` makes the manager of these columns, in the worker.
        env_num: columns of all workers.
        num_workers: processes, at most one a column.
        seed: of the run.
        on_worker_death, max_restarts: see `Workers`.
        step_timeout: seconds of one step after which a worker counts as dead; None waits for ever.
        functions: whose modules, like those of what is registered, a worker may not be able to import.

    Attributes:
        enlist: called with a worker that was started again and has made its envs; makes it live, or asks it to begin.
        serving: the policy that its workers act for, and `make_policy` (see `Enlister`).

    Raises EnvError and what else its envs raise where they are made, with a worker's traceback as its cause;
    WorkerError for a worker that dies there.
    """

    error = WorkerError

    def __init__(
        self,
        make_env: Callable[[int, int], Any],
        env_num: int,
        num_workers: int,
        seed: int,
        on_worker_death: str = "raise",
        step_timeout: float | None = None,
        max_restarts: int = 20,
        functions: Sequence[Any] = (),
    ) -> None:
        super().__init__(on_worker_death, max_restarts)
        self.env_num, self.seed = env_num, seed
        self.enlist: Callable[[WorkerSlot], None] | None = None
        self.serving: tuple[Any, Callable[..., Any]] | None = None
        load = packed_envs("sampler workers", make_env, (), functions)
        parts = split_columns(env_num, num_workers)
        with self.whole():
            for number, (columns, core) in enumerate(zip(parts, cores_for(len(parts)))):
                start = _starter(number, columns, seed, load, core)
                beat = self.keep(SharedTree(spec_of(np.zeros(HEARTBEAT, np.int64))))
                self.workers.append(WorkerSlot(number, columns, start, step_timeout, beat))
            told: list[Made] = self.begin()
            self._made = told[0]
            for made in told:
                compare_spaces(made[:4], self._made[:4])
        _, self.env_name, self.observation_space, self.action_space, self.idles = self._made
        self.may_idle = self.idles or on_worker_death != "raise"

    def welcome(self, worker: WorkerSlot, made: Made) -> None:
        """Enlist a worker that was started again."""
        compare_spaces(made[:4], self._made[:4])
        assert self.enlist is not None
        self.enlist(worker)

    def working(self) -> list[WorkerSlot]:
        """The workers that can be asked for rows, one at least: where all are starting, the first is waited for."""
        self.wait_for(self.workers)
        found = [worker for worker in self.workers if worker.live]
        if not found:
            raise WorkerError("no sampler worker is left")
        return found

    def serve(self, policy: Any, make_policy: Callable[..., Any]) -> None:
        """Act for this policy's collector; its workers make theirs by `make_policy` (see `Enlister`)."""
        self.serving = policy, make_policy

    def rows(self, policy: Any, slab: Any) -> WorkerRows:
        """What fills the slab of a collector (see `SampleCollector`)."""
        return WorkerRows(self, slab)


def _starter(number: int, columns: tuple[int, int], seed: int, load: bytes, core: int | None) -> Callable[[int], Child]:
    name = f"sampler worker {number} (env columns {columns[0]} to {columns[1] - 1})"
    return lambda incarnation: Child(name, run, (Task(load, columns, seed, incarnation, core),), PRELOAD)
