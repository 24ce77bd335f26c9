"""The worker of the `local` sampler: some env columns, a policy and a row loop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np
import torch

from ding_like.data import tree_map, tree_write
from ding_like.distributed.parameters import ParameterBoard
from ding_like.envs.env_manager.env_specs import register_specs
from ding_like.envs.env_manager.env_worker import Made
from ding_like.utils.child import receive, tell
from ding_like.utils.cores import stay_on
from ding_like.utils.seed import episode_seed, set_global_seed
from ding_like.utils.shared_memory import SharedTree, recv_fd, spec_of
from ding_like.utils.shipping import unpickled
from ding_like.worker.collector.row_loop import RowLoop
from ding_like.worker.collector.slab import Slab

HEARTBEAT = 8  # int64 of a cache line; the first is counted up with every row
EPISODE = ("column", "length", "return_", "return_raw")  # of a finished episode, what the collector asks for


@dataclass
class Task:
    """What a worker is started with.

    Attributes:
        load: `pickled((make_env, specs))`; `make_env(first, end)` makes the manager of its columns.
        columns: its columns `[first, end)` of all.
        seed: of the run.
        incarnation: how often workers of these columns were started before.
        core: to stay on; None: any.
    """

    load: bytes
    columns: tuple[int, int]
    seed: int
    incarnation: int
    core: int | None = None


@dataclass
class PolicyTask:
    """What a worker needs to act and to fill rows. The descriptors of board and heartbeat follow.

    Attributes:
        load: `pickled(make_policy)`.
        board: spec of the parameter board.
        capacity, masked: of the slab.
        blocks: slabs of its columns alone, filled in turn; None: it fills its columns of one slab of all.
    """

    load: bytes
    board: Any
    capacity: int
    masked: bool
    blocks: int | None


def published(policy: Any) -> Any:
    """What of a policy goes from learner to workers: the tensors of its network, by reference."""
    return policy.get_model().state_dict()


def run(conn: Connection, task: Task) -> None:
    """The worker's program: answers the messages of its master until it is told to close."""
    torch.set_num_threads(1)
    stay_on(task.core)
    set_global_seed(episode_seed(task.seed, "worker", task.columns[0], task.incarnation))
    make_env, specs = unpickled(task.load)
    register_specs(specs)
    env = make_env(*task.columns)
    try:
        name, idles = getattr(env, "env_name", ""), bool(getattr(env, "may_idle", False))
        made = Made(task.columns[0], name, env.observation_space, env.action_space, idles)
        tell(conn, "made", cloudpickle.dumps(made))
        kind, value = receive(conn)
        if kind != "close":
            _Worker(conn, task, env, value).serve()
    finally:
        env.close()


class _Worker:
    """Its policy, its part of the shared memory and the answers to messages."""

    def __init__(self, conn: Connection, task: Task, env: Any, order: PolicyTask) -> None:
        self.conn, self.task, self.env = conn, task, env
        board, beat = recv_fd(conn), recv_fd(conn)
        self.policy = unpickled(order.load)()
        self.model = published(self.policy)
        self.board = ParameterBoard(order.board, board)
        self.version = 0
        self.slabs = [
            Slab(order.capacity, 0, masked=order.masked, memory=partial(self._memory, k))
            for k in range(order.blocks or 1)
        ]
        self.loop = RowLoop(env, self.policy.collect_mode, self.slabs[0])
        self.loop.beat = SharedTree(spec_of(np.zeros(HEARTBEAT, np.int64)), beat).tree
        self.span = slice(*task.columns) if order.blocks is None else slice(None)
        self.shared: SharedTree | None = None

    def serve(self) -> None:
        """Answer until the parent closes."""
        while True:
            kind, value = receive(self.conn)
            if kind == "close":
                return
            if kind == "memory":  # what another worker's first row, or a resumed run, has made
                self._attach(value)
            else:
                tell(self.conn, kind, getattr(self, f"_on_{kind}")(value))

    def _on_launch(self, seed: int) -> Any:
        """Reset the envs; answers what to act on first."""
        first = self.task.columns[0]
        if getattr(self.env, "native", False) and first:  # such an env numbers its columns from 0 everywhere
            seed = episode_seed(seed, "worker", first, 0)
        self.loop.launch(seed)
        return self.env.ready_obs

    def _on_fill(self, order: tuple[int, int, int, dict, bool]) -> dict[str, Any]:
        """Fill rows `[start, start + rows)` of a slab with the newest parameters."""
        block, start, rows, setting, random = order
        began = time.perf_counter()
        self.version = self.board.fetch(self.model, self.version)
        slab = self.loop.slab = self.slabs[block]
        slab.fill = slab.fresh = start
        self.loop.begin(rows, setting, random)
        none = self.loop.finish()
        assert self.shared is not None
        tree_write(self.shared.tree[block]["ready"], self.span, self.env.ready_obs)
        return {
            "none": none,
            "ends": slab.take_ends(),
            "finished": self._finished(),
            "train_iter": self.board.train_iter,
            "done_at": time.monotonic(),
            "busy": time.perf_counter() - began,
        }

    def _finished(self) -> list[tuple[int, dict[str, Any]]]:
        """The episodes that ended, each with its row; columns counted as in all workers."""
        first = self.task.columns[0] if getattr(self.env, "native", False) else 0
        told = [{key: episode[key] for key in EPISODE} for episode in self.loop.take_finished()]
        return [(t, {**one, "column": one["column"] + first}) for t, one in zip(self.loop.over, told, strict=True)]

    def _on_state(self, _: None) -> dict[str, Any]:
        return {**self.loop.state_dict(), "policy": self.policy.run_state_dict()}

    def _on_load(self, order: tuple[dict[str, Any], int | None]) -> str | None:
        """Go on from a state; answers why that is not exact."""
        state, again = order
        self.policy.load_run_state_dict(state["policy"])
        return self.loop.load_state_dict(state, again)

    def _attach(self, spec: Any) -> None:
        self.shared = SharedTree(spec, recv_fd(self.conn))
        self.shared.close()  # the memory stays with the arrays

    def _memory(self, block: int, row: dict[str, Any], linked: bool) -> dict[str, Any]:
        """Its columns of a shared slab; where there is none yet, the parent makes it for rows like this one."""
        if self.shared is None:
            example = tree_map(lambda a: np.asarray(a)[:1], row)
            tell(self.conn, "layout", (example, linked))
            self._attach(receive(self.conn)[1])
        assert self.shared is not None
        return tree_map(lambda a: a[:, self.span], self.shared.tree[block]["fields"])
