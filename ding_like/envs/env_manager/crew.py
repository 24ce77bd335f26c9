"""The worker processes of an env manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.checks import compare_spaces
from ding_like.envs.env_manager.env_specs import packed_envs
from ding_like.envs.env_manager.env_worker import Made, row_spec, serve
from ding_like.envs.env_manager.worker_handle import WorkerHandle
from ding_like.utils.child import Child
from ding_like.utils.shared_memory import SharedTree
from ding_like.utils.workers import Workers, split_columns

PRELOAD = ("ding_like.envs.env_manager.env_worker",)
KINDS = ("env", "env_wrapper")  # registries whose entries a process without a policy needs


class Crew(Workers[WorkerHandle]):
    """Workers that hold the columns of a manager, each some that stand side by side.

    Args:
        env_fns: one factory a column.
        workers: number of processes, at most one a column.
        options: role and further arguments of every worker's `BaseEnvManager`.
        on_death, max_restarts: see `Workers`.
        limit: seconds an answer to `step` may take; None: any.

    Attributes:
        made: name and spaces of the envs.
        shared: the arrays of `row_spec`.
        seed, anew: of the seeds that a worker begins with when it is started again; `anew` counts.

    Raises EnvError, after which every process is gone: what an env raised, or a death that the run cannot go on after.
    """

    error = EnvError

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        workers: int,
        options: Mapping[str, Any],
        on_death: str = "raise",
        limit: float | None = None,
        max_restarts: int = 0,
    ) -> None:
        super().__init__(on_death, max_restarts)
        self.seed = self.anew = 0
        with self.whole():
            for number, columns in enumerate(split_columns(len(env_fns), workers)):
                start = _starter(number, columns, env_fns[slice(*columns)], dict(options))
                self.workers.append(WorkerHandle(number, columns, start, limit))
            told: list[Made] = self.begin()
            self.made = told[0]
            for made in told:
                compare_spaces(made[:4], self.made[:4])
            self.shared = self.keep(SharedTree(row_spec(self.made, len(env_fns))))
        for worker in self.workers:
            self._share(worker)
            worker.live = True

    def _share(self, worker: WorkerHandle) -> None:
        worker.tell("share", self.shared.spec, [self.shared.fd])

    def welcome(self, worker: WorkerHandle, made: Made) -> None:
        """Let a worker that was started again begin its episodes, with seeds that were not used before."""
        compare_spaces(made[:4], self.made[:4])
        self._share(worker)
        self.anew += 1
        worker.ask("begin_anew", (self.seed, self.anew))

    def insist(self, kind: str, values: Mapping[WorkerHandle, Any]) -> dict[WorkerHandle, Any]:
        """Ask workers for something, those again that died of it; what each answered, but those that are gone."""
        answers: dict[WorkerHandle, Any] = {}
        while True:
            self.wait_for(list(values), every=True)
            asked = {worker: value for worker, value in values.items() if not (worker in answers or worker.gone)}
            if not asked:
                return answers
            answers |= self.ask(kind, asked)


def _starter(
    number: int, columns: tuple[int, int], env_fns: Sequence[Callable[[], Any]], options: dict[str, Any]
) -> Callable[[int], Child]:
    first, last = columns[0], columns[1] - 1
    where = f"column {first}" if first == last else f"columns {first} to {last}"
    name = f"env worker {number} ('{_name(env_fns[0])}', {where}, {options['role']})"
    load = packed_envs(name, list(env_fns), KINDS, env_fns)
    return lambda incarnation: Child(name, serve, (load, first, options), PRELOAD, kinds=())


def _name(fn: Any) -> str:
    while isinstance(fn, partial) and not hasattr(fn, "__name__"):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
