"""The env manager whose columns are stepped by worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ding_like.config.checks import Check, at_least, one_of, optional, positive
from ding_like.data import tree_index, tree_map, tree_write
from ding_like.envs.base_env import EnvError, EnvTimestep
from ding_like.envs.env_manager.checks import check_columns, check_not_waiting, checked_actions
from ding_like.envs.env_manager.crew import Crew
from ding_like.envs.env_manager.env_worker import DONE, PackedInfos
from ding_like.envs.env_manager.plan import NO_COLUMN, Plan, joined, make_plan
from ding_like.envs.env_manager.worker_handle import WorkerHandle
from ding_like.utils import ENV_MANAGER_REGISTRY
from ding_like.utils.cores import usable_cores

PLANS = 64  # kept at most
TOGETHER = "its envs were written down together, by one process that held all columns, and this run has several"


@ENV_MANAGER_REGISTRY.register("subprocess")
class SubprocessEnvManager:
    """B envs in W worker processes behind the API of `BaseEnvManager`: the same numbers, whatever W is.

    A worker holds columns that stand side by side and steps them one after the other. Every array returned is fresh.
    `step` is `send` and `recv`; of two `groups`, one can be stepped while the other is acted for.

    Args:
        env_fns: one factory an env column; cloudpickle must be able to send it.
        cfg: values for `config`.
        role, auto_reset, seed_every_episode: see `BaseEnvManager`.

    Attributes:
        may_idle: whether a worker's death may leave rows that are no transition.
        same_step: an ended column is reset in the same step.
        idle: columns whose row in the last `recv` is none (reward 0, no flag): their worker died or is being started.
        lost: those of them whose worker died in that very step: the row before was the last of its episode.
        ready_obs, finished, not_exact: see `BaseEnvManager`.

    Raises EnvError with the worker's traceback as its cause when an env raises. When a worker dies, EnvError naming it,
    its columns and how it ended, where `on_worker_death` says so, no worker is left, or whole episodes are needed
    (`auto_reset` is False). The manager is closed then. TypeError where a factory cannot be pickled.
    """

    same_step = True
    config: dict = dict(
        num_workers=None,  # worker processes, at most one an env column; None: as many as there are usable cores
        on_worker_death="raise",  # or restart: begin its episodes anew; shrink: go on without its columns
        step_timeout=None,  # seconds after which a worker that does not answer counts as dead; None: any time
        max_restarts=20,  # of workers, in one run; the next death is raised
    )
    config_checks: dict[str, Check] = {
        "num_workers": optional(at_least(1)),
        "on_worker_death": one_of("raise", "restart", "shrink"),
        "step_timeout": optional(positive),
        "max_restarts": at_least(0),
    }

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        cfg: Any = None,
        role: str = "collect",
        auto_reset: bool = True,
        seed_every_episode: bool = False,
    ) -> None:
        if not env_fns:
            raise ValueError("env_fns is empty; wanted one env factory for each column")
        setting = {**self.config, **(cfg or {})}
        options = {"role": role, "auto_reset": auto_reset, "seed_every_episode": seed_every_episode}
        on_death = setting["on_worker_death"] if auto_reset else "raise"
        workers = int(setting["num_workers"] or usable_cores())
        self._crew = Crew(env_fns, workers, options, on_death, setting["step_timeout"], int(setting["max_restarts"]))
        made = self._crew.made
        self._shared: Any = self._crew.shared.tree
        self.role, self.auto_reset, self.env_num, self.env_name = role, auto_reset, len(env_fns), made.name
        self.observation_space, self.action_space = made.observation_space, made.action_space
        self.may_idle = on_death != "raise"
        self.idle = self.lost = NO_COLUMN
        self.finished: list[dict] = []
        self.not_exact: str | None = None
        self._running = self._closed = False
        self._waiting: set[int] = set()
        self._ready: Any = None
        self._newer: dict[int, tuple[Plan, Any]] = {}  # rows of `ready_obs` that `_ready` does not have yet
        self._all = make_plan(np.arange(self.env_num), self._crew.workers)
        self._plans = {self._all.columns.tobytes(): self._all}

    # ------------------------------------------------------------------ columns
    @property
    def workers(self) -> list[range]:
        """The columns of each worker."""
        return [range(*worker.columns) for worker in self._crew.workers]

    def groups(self, count: int = 2) -> list[np.ndarray]:
        """The columns in so many groups of whole workers, as equal as these allow.

        Raises ValueError for more groups than workers.
        """
        workers = self.workers
        if not 1 <= count <= len(workers):
            raise ValueError(f"{count} groups of columns need as many workers; there are {len(workers)}: num_workers")
        parts = np.array_split(np.arange(len(workers)), count)
        return [np.concatenate([np.arange(self.env_num)[workers[i].start : workers[i].stop] for i in p]) for p in parts]

    def _plan(self, columns: Any) -> Plan:
        if columns is None:
            return self._all
        columns = np.asarray(columns, np.int64)
        key = columns.tobytes()
        if key not in self._plans:
            if len(self._plans) >= PLANS:
                self._plans = {k: plan for k, plan in self._plans.items() if plan.busy or plan is self._all}
            self._plans[key] = make_plan(columns, self._crew.workers)
        return self._plans[key]

    # ------------------------------------------------------------------ episodes
    @property
    def ready_obs(self) -> Any:
        """Tree `[B, ...]` to act on next; the last `timestep.obs` itself where all columns were stepped and none was
        reset.
        """
        if self._newer:
            self._ready = _copy(self._ready)
            for plan, rows in self._newer.values():
                tree_write(self._ready, plan.rows, rows)
            self._newer = {}
        return self._ready

    def ready(self, columns: Any = None) -> Any:
        """The rows of `ready_obs` of some columns; after their `recv`, without a copy."""
        plan = self._plan(columns)
        if plan is self._all:
            return self.ready_obs
        last = next(reversed(self._newer.values()), None)
        return last[1] if last is not None and last[0] is plan else tree_index(self.ready_obs, plan.rows)

    def launch(self, seed: int) -> Any:
        """Reset every column with the seed of its episode 0; returns `ready_obs`."""
        self._check_open()
        self._drain()
        self._crew.seed, self._crew.anew = seed, 0
        self.finished, self._running = [], True
        return self._reset(self._all, "launch", dict.fromkeys(self._crew.workers, (seed,)))

    def reset(self, columns: Sequence[int] | None = None) -> Any:
        """Start a new episode in `columns` (all by default), dropping open ones; returns `ready_obs`."""
        self._check_running()
        plan = self._plan(columns)
        self._check_not_busy(plan)
        return self._reset(plan, "reset", {worker: (local,) for worker, local, _, _ in plan.parts})

    def _reset(self, plan: Plan, kind: str, values: dict[WorkerHandle, Any]) -> Any:
        self._crew.insist(kind, values)
        for worker in values:
            worker.lost = False  # nothing goes on where it was
        self._set_ready(plan, _taken(self._shared["ready"], plan.rows))
        self._waiting.difference_update(plan.columns.tolist())
        return self.ready_obs

    def _set_ready(self, plan: Plan, rows: Any) -> None:
        if plan is self._all:
            self._ready, self._newer = rows, {}
        else:
            self._newer.pop(id(plan), None)
            self._newer[id(plan)] = plan, rows

    # ------------------------------------------------------------------ steps
    def step(self, action: Any, columns: Sequence[int] | None = None) -> Any:
        """One step in every column, or in `columns` only.

        Args:
            action: array `[b, ...]`, one row a stepped column.
        Returns:
            EnvTimestep of `[b]` fields: reward float32, flags bool, `info` an `Infos` of b dicts.
        """
        self.send(action, columns)
        return self.recv(columns)

    def send(self, action: Any, columns: Any = None) -> None:
        """Begin a step of every column, or of `columns`; `recv` of the same ones ends it."""
        if not self._running or self._waiting or self._crew.over:
            self._check_running()
            check_not_waiting(self._waiting, columns)
        plan = self._all if columns is None else self._plan(columns)
        self._check_not_busy(plan)
        if self.action_space.shape is None:
            tree_write(self._shared["action"], plan.rows, action)
        else:
            self._shared["action"][plan.rows] = checked_actions(action, len(plan.columns), self.action_space)
        plan.busy = True
        for worker, local, _, _ in plan.parts:
            if worker.live:
                worker.step(local)

    def recv(self, columns: Any = None) -> Any:
        """The end of the step that `send` began; returns what `step` returns."""
        plan = self._all if columns is None else self._plan(columns)
        if not plan.busy:
            told = f"columns {plan.columns.tolist()}"
            raise EnvError(f"no step of {told} is under way; call send(action, columns) with the same columns first")
        infos, ended, idle, lost = self._answers(plan)
        n, shared = len(plan.columns), self._shared
        obs, reward = _taken(shared["obs"], plan.rows), _taken(shared["reward"], plan.rows)
        done, terminated, truncated = np.zeros((3, n), bool)
        for at in ended:
            terminated[at], truncated[at] = shared["flags"][plan.columns[at]].T
        np.logical_or(terminated, truncated, out=done)
        self.idle = self.lost = NO_COLUMN
        if idle:
            self.idle, self.lost = plan.columns[joined(idle)], plan.columns[joined(lost)]
            reward[joined(idle)] = 0
            tree_write(obs, joined(idle), tree_index(self.ready_obs, self.idle))
        self._set_ready(plan, self._began(plan, obs, done) if ended else obs)
        if idle:
            self._take_new(plan)
        return EnvTimestep(obs, reward, done, PackedInfos(infos, plan.order), terminated, truncated)

    def _answers(self, plan: Plan) -> tuple[list, list, list, list]:
        """What the workers say of a step: infos, and where in the plan's columns stand those of workers in which an
        episode ended, those that were not stepped, and of them those whose worker died.
        """
        plan.busy = False
        infos: list[tuple[int, bytes | None]] = []
        ended, idle, lost, finished = [], [], [], []
        for worker, _, at, count in plan.parts:
            packed = None
            message = self._crew.answer(worker) if worker.busy and worker.live else None
            if message is None:
                idle.append(at)
                if worker.lost:
                    lost.append(at)
                    worker.lost = False
            elif message[0] != DONE:
                episodes, packed = message[1]
                finished += episodes
                if episodes:
                    ended.append(at)
            infos.append((count, packed))
        if finished and plan.order is not None:
            place = {int(column): j for j, column in enumerate(plan.columns)}
            finished.sort(key=lambda episode: place[episode["column"]])
        self.finished += finished
        return infos, ended, idle, lost

    def _began(self, plan: Plan, obs: Any, done: np.ndarray) -> Any:
        """The observations to act on next after a step in which episodes ended."""
        places = done.nonzero()[0]
        columns = plan.columns[places]
        if not self.auto_reset:
            self._waiting.update(columns.tolist())
            return obs
        ready = _copy(obs)
        tree_write(ready, places, tree_index(self._shared["ready"], columns))
        return ready

    def _take_new(self, plan: Plan) -> None:
        """Look for workers that were started again and have begun their episodes; wait for one where none is left."""
        starting = [worker for worker, *_ in plan.parts if worker.starting]
        self._crew.wait_for(starting)
        for worker in starting:
            if worker.live:
                mine = self._plan(np.arange(*worker.columns))
                self._set_ready(mine, _taken(self._shared["ready"], mine.rows))

    def take_finished(self) -> list[dict]:
        """The episodes in `finished`, which is emptied."""
        taken, self.finished = self.finished, []
        return taken

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict:
        """The state of `BaseEnvManager`, its snapshots taken column by column in the workers; a manager with any number
        of workers, also a base one, goes on from it.
        """
        self._check_open()
        self._check_not_busy(self._all)
        live = [worker for worker in self._crew.workers if worker.live]
        told = self._crew.ask("state", dict.fromkeys(live))  # one that died is replaced in a step, which says so
        each = [told.get(worker) or _unknown(worker.width) for worker in self._crew.workers]
        reason = next((one["not_exact"] for one in each if one["not_exact"]), None)
        envs = [one["envs"] for one in each]
        return {
            "seed": self._crew.seed,
            "restarts": self._crew.anew,
            "running": self._running,
            "resets": [count for one in each for count in one["resets"]],
            "returns": np.concatenate([one["returns"] for one in each]),
            "lengths": np.concatenate([one["lengths"] for one in each]),
            "waiting": sorted(self._waiting),
            "ready_obs": self.ready_obs,
            "envs": None if None in envs else [env for part in envs for env in part],
            "not_exact": reason,
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict`, of this class or of `BaseEnvManager`, was taken. Without a snapshot of the envs
        every column starts a new episode, with a seed that it did not have before, and `not_exact` says why.

        Raises ValueError for another number of columns.
        """
        self._check_open()
        check_columns(len(state["resets"]), self.env_num)
        self._drain()
        if isinstance(state["envs"], bytes) and len(self._crew.workers) > 1:
            state = {**state, "envs": None, "not_exact": state["not_exact"] or TOGETHER}
        self._crew.seed, self._crew.anew, self._running = state["seed"], state["restarts"], state["running"]
        self._waiting, self.finished, self.idle, self.lost = set(state["waiting"]), [], NO_COLUMN, NO_COLUMN
        self._set_ready(self._all, state["ready_obs"])
        reasons = self._crew.insist("load", {worker: _part(state, worker) for worker in self._crew.workers})
        self.not_exact = next((reason for reason in reasons.values() if reason), None)
        if self.not_exact is not None and self._running:
            self._crew.anew += 1
            again = (self._crew.seed, self._crew.anew)
            self._reset(self._all, "begin_anew", dict.fromkeys(self._crew.workers, again))

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Close every env and end the workers; an error of an env's `close` is raised at the end. Idempotent."""
        if not self._closed:
            self._running, self._closed = False, True
            self._crew.close()

    def _drain(self) -> None:
        """Take the answers to a step that nobody came back for."""
        for worker in self._crew.workers:
            if worker.busy and worker.live:
                self._crew.answer(worker)
        for plan in self._plans.values():
            plan.busy = False

    def _check_open(self) -> None:
        if self._closed or self._crew.over:
            raise EnvError("the env manager is closed; make a new one")

    def _check_running(self) -> None:
        self._check_open()
        if not self._running:
            raise EnvError("the env manager has no running episodes; call launch(seed) first")

    def _check_not_busy(self, plan: Plan) -> None:
        for worker, *_ in plan.parts:
            if worker.busy and worker.live:
                raise EnvError(f"columns of {worker.child.name} are being stepped; call recv(columns) first")


def _part(state: dict, worker: WorkerHandle) -> dict:
    """What a worker's manager needs of the state of all columns."""
    first, stop = worker.columns
    envs, ready = state["envs"], state["ready_obs"]
    return {
        **{key: state[key] for key in ("seed", "restarts", "running", "not_exact")},
        **{key: state[key][first:stop] for key in ("resets", "returns", "lengths")},
        "waiting": [b - first for b in state["waiting"] if first <= b < stop],
        "ready_obs": None if ready is None else tree_index(ready, slice(first, stop)),
        "envs": envs[first:stop] if isinstance(envs, list) else envs,
    }


def _unknown(columns: int) -> dict:
    """The state of columns whose worker is gone."""
    numbers = {"resets": [0] * columns, "returns": np.zeros(columns), "lengths": np.zeros(columns, int)}
    return {**numbers, "envs": None, "not_exact": "the worker processes of some env columns are gone"}


def _copy(tree: Any) -> Any:
    return tree.copy() if isinstance(tree, np.ndarray) else tree_map(np.copy, tree)


def _taken(tree: Any, rows: Any) -> Any:
    """A copy of some rows."""
    return tree[rows].copy() if isinstance(tree, np.ndarray) else tree_map(lambda leaf: leaf[rows].copy(), tree)


for _alias in ("async_subprocess", "subprocess_v2", "async_subprocess_v2"):
    ENV_MANAGER_REGISTRY.register(_alias, SubprocessEnvManager)
