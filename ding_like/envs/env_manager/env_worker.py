"""The process that steps some of a manager's env columns.

Actions, observations, rewards and flags stand in shared arrays `[B, ...]`. What goes over the pipe in a step is one
byte each way; with it go ended episodes and infos, where there are some.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ding_like.data import Infos, tree_index, tree_map, tree_write
from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.base_env_manager import BaseEnvManager
from ding_like.envs.env_manager.env_specs import register_specs
from ding_like.envs.spaces import obs_batch
from ding_like.utils.child import post, receive, tell
from ding_like.utils.shared_memory import SharedTree, recv_fd, spec_of
from ding_like.utils.shipping import unpickled

STEP, DONE = b"s", b"d"  # messages of one byte: step all of your columns; it is done and there is nothing to tell


class Made(NamedTuple):
    """What a worker tells of the envs it made: its first column; whether rows may be no transition."""

    column: int
    name: str
    observation_space: Any
    action_space: Any
    idles: bool = False


def row_spec(made: Made, columns: int) -> dict:
    """What manager and workers share: the next `action`; of the last step the true next observations `obs`, `reward`
    and `flags` (terminated, truncated); `ready`, the observations that episodes began with.

    Raises TypeError where actions hold no numbers.
    """
    obs = spec_of(obs_batch(made.observation_space).empty(0), (columns,), skip=1)
    return {
        "action": spec_of(made.action_space.sample(), (columns,)),
        "obs": obs,
        "ready": obs,
        "reward": spec_of(np.float32(0), (columns,)),
        "flags": spec_of(np.zeros(2, bool), (columns, 2), skip=1),
    }


def serve(conn: Connection, load: bytes, first_column: int, options: dict) -> None:
    """The worker's main function: make the envs, then do what the manager asks.

    Args:
        load: `pickled((env_fns, specs))`.
        options: further arguments of `BaseEnvManager`.
    """
    env_fns, specs = unpickled(load)
    register_specs(specs)
    manager = BaseEnvManager(env_fns, first_column=first_column, **options)
    made = Made(first_column, manager.env_name, manager.observation_space, manager.action_space)
    tell(conn, "made", cloudpickle.dumps(made))
    columns = _Columns(conn, manager)
    step, ask = columns.step, columns.ask
    while True:
        kind, value = receive(conn)
        if kind == STEP:
            step(None)
        elif kind == "close":
            return manager.close()
        else:
            ask(kind, value)


class _Columns:
    """The columns of a worker and its part of the shared arrays."""

    def __init__(self, conn: Connection, manager: BaseEnvManager) -> None:
        self._conn, self._manager = conn, manager
        self._fresh = manager.empty_obs
        self._rows: Any = None
        self._copies = manager.action_space.shape is None  # else the manager copies actions before envs get them

    def ask(self, kind: str, value: Any) -> None:
        """Do what a message says, and answer."""
        manager = self._manager
        if kind == "step":
            self.step(value)
        elif kind == "share":
            shared = SharedTree(value, recv_fd(self._conn))
            shared.close()  # the memory stays with the arrays
            self._rows = tree_index(shared.tree, slice(manager.first_column, manager.first_column + manager.env_num))
        elif kind == "state":
            tell(self._conn, "state", manager.state_dict(apart=True))
        elif kind == "load":
            tell(self._conn, "loaded", manager.go_on(value))
        else:
            call: Any = {"launch": manager.launch, "reset": manager.reset, "begin_anew": manager.begin_anew}[kind]
            tree_write(self._rows["ready"], slice(None), call(*value))
            post(self._conn, DONE)

    def step(self, columns: list[int] | None) -> None:
        """Step all columns, or some, with the actions that stand there."""
        manager, rows = self._manager, self._rows
        at: Any = slice(None) if columns is None else columns
        actions = tree_map(np.copy, rows["action"]) if self._copies else rows["action"]
        if columns is None:
            obs = rows["obs"]
            manager.empty_obs = lambda n: obs  # written where the manager's process reads them
            timestep = manager.step(actions)
        else:
            manager.empty_obs = self._fresh
            timestep = manager.step(tree_index(actions, columns), columns)
            tree_write(rows["obs"], at, timestep.obs)
        rows["reward"][at] = timestep.reward
        finished, infos = manager.take_finished(), packed(timestep.info)
        if not finished and infos is None:
            post(self._conn, DONE)
            return
        if finished:
            rows["flags"][at, 0], rows["flags"][at, 1] = timestep.terminated, timestep.truncated
        if finished and manager.auto_reset:
            ended = [episode["column"] - manager.first_column for episode in finished]
            tree_write(rows["ready"], ended, tree_index(manager.ready_obs, ended))
        tell(self._conn, "row", (finished, infos))


# ---------------------------------------------------------------------- infos
def packed(infos: Infos) -> bytes | None:
    """Infos of one worker as bytes; None where all are empty. Raises EnvError where they cannot be pickled."""
    if not any(infos):
        return None
    try:
        return pickle.dumps(list(infos), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):  # by value, where a class is the running script's
        pass
    try:
        return cloudpickle.dumps(list(infos))
    except Exception as err:
        raise EnvError(
            f"the info that step() returned cannot go to another process ({type(err).__name__}: {err}); leave out of "
            "it what is not plain data, or use sampler='local', where infos stay in the worker"
        ) from err


class PackedInfos(Infos):
    """The infos of some columns, unpacked when somebody looks.

    Args:
        parts: pairs (number of infos, those as bytes, or None: empty dicts).
        order: of the columns among the parts, where it is another.
    """

    _parts: list[tuple[int, bytes | None]]
    _order: Any
    _made: list[dict] | None

    def __new__(cls, parts: list[tuple[int, bytes | None]], order: Any = None) -> PackedInfos:
        made = super().__new__(cls)
        made._parts, made._order, made._made = parts, order, None
        return made

    def _dicts(self) -> list[dict]:
        if self._made is None:
            found: list[dict] = []
            for count, data in self._parts:
                found += [{} for _ in range(count)] if data is None else pickle.loads(data)
            self._made = found if self._order is None else [found[i] for i in self._order]
        return self._made

    def __len__(self) -> int:
        return sum(count for count, _ in self._parts)

    def __iter__(self) -> Iterator[dict]:
        return iter(self._dicts())

    def __getitem__(self, key: Any) -> Any:
        return self._dicts()[key] if isinstance(key, (int, np.integer)) else Infos(self._dicts())[key]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple:
        return Infos, (self._dicts(),)
