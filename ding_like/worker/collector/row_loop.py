"""The one loop that steps envs with a policy and writes the rows: in a collector's process or in a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_index
from ding_like.worker.collector.slab import NO_ENDS, Part, Slab


class RowLoop:
    """Fills a slab with rows of a manager's columns; what a collector knows as its *rows*.

    Where the manager steps groups of columns apart (`groups` more than 1), one group is acted for while the other is
    stepped.

    Args:
        env: a launched env manager.
        policy: a `collect_mode`.
        slab: takes the rows.
        groups: of columns, as many as `env.groups` is asked for.

    Attributes:
        over: the row in which each episode of the last `finish` ended, in the order of `take_finished`; of one group.
        gapped: columns whose last row was made an end although a block had shown it before; the collector empties it.
    """

    def __init__(self, env: Any, policy: Any, slab: Slab, groups: int = 1) -> None:
        self.env, self.policy, self.slab = env, policy, slab
        self.env_num = env.env_num
        self.may_idle = bool(getattr(env, "may_idle", False))
        self.gapped: np.ndarray = NO_ENDS
        self.over: list[int] = []
        self.beat: np.ndarray | None = None  # its first entry is counted up with every row, where somebody watches
        self._order: tuple[int, dict[str, Any], bool] | None = None
        self._parts: list[tuple[np.ndarray, Part]] = []
        if groups > 1:
            found = env.groups(groups)
            self._parts = [
                (columns, Part(slice(int(columns[0]), int(columns[-1]) + 1), self.env_num, g == 0))
                for g, columns in enumerate(found)
            ]

    @property
    def ready_obs(self) -> Any:
        """What every column is to act on next."""
        return self.env.ready_obs

    def launch(self, seed: int) -> None:
        """Reset the envs."""
        self.env.launch(seed)
        self.policy.reset()

    def begin(self, rows: int, setting: dict[str, Any], random: bool = False) -> None:
        """Ask for so many rows."""
        self._order = rows, setting, random

    def finish(self) -> int:
        """Write the rows that were asked for. Returns how many entries of them are no transition."""
        assert self._order is not None
        (rows, setting, random), self._order = self._order, None
        if random:  # takes all columns at once
            return self._run(rows, setting, self.policy.forward_random)
        run = self._alternate if len(self._parts) > 1 else self._run
        return run(rows, setting, self.policy.forward)

    def _run(self, rows: int, setting: dict[str, Any], forward: Callable[..., ArrayDict]) -> int:
        env, none = self.env, 0
        obs = env.ready_obs
        self.over = []
        for t in range(rows):
            output = forward(obs, **setting)
            timestep = env.step(output["action"])
            none += self._write(obs, output, timestep)
            obs = env.ready_obs
            if self.beat is not None:
                self.beat[0] += 1
            if obs is not timestep.obs:
                ended = timestep.done.nonzero()[0]
                self.over += [t] * len(ended)
                self._end(timestep, ended)
        return none

    def _alternate(self, rows: int, setting: dict[str, Any], forward: Callable[..., ArrayDict]) -> int:
        """Of two groups one always is on its way while the other's rows are written and acted for."""
        env, none = self.env, 0
        seen: list[Any] = [None] * len(self._parts)
        sent: list[Any] = [None] * len(self._parts)

        def act(g: int) -> None:
            columns, _ = self._parts[g]
            seen[g] = env.ready(columns)
            sent[g] = forward(seen[g], data_id=columns, **setting)
            env.send(sent[g]["action"], columns)

        for g in range(len(self._parts)):
            act(g)
        for t in range(rows):
            for g, (columns, part) in enumerate(self._parts):
                timestep = env.recv(columns)
                none += self._write(seen[g], sent[g], timestep, part)
                self._end(timestep, timestep.done.nonzero()[0], part)
                if t + 1 < rows:
                    act(g)
        return none

    def _write(self, obs: Any, output: ArrayDict, timestep: Any, part: Part | None = None) -> int:
        """One row, or part of one. Returns how many entries are no transition."""
        row = self.policy.process_transition(obs, output, timestep)
        if "terminated" not in row:
            row["terminated"] = timestep.terminated
        if "truncated" not in row:
            row["truncated"] = timestep.truncated
        if not self.may_idle:
            self.slab.write(obs, row, timestep, NO_ENDS, part)
            return 0
        lost = getattr(self.env, "lost", NO_ENDS)
        if len(lost):
            self._gap(lost, part)
        idle = self.env.idle
        if len(idle):
            self.policy.reset(idle)  # here and not at the end: what it says of the last observation is ignored
        self.slab.write(obs, row, timestep, idle, part)
        return len(idle)

    def _gap(self, columns: np.ndarray, part: Part | None) -> None:
        """The row to be written is none in `columns`: their worker died. The row before ends an episode there."""
        row = self.slab.fill if part is None or part.begins else self.slab.fill - 1
        if row == self.slab.fresh:
            self.gapped = np.union1d(self.gapped, columns)
        self.slab.gap(columns, row)

    def _end(self, timestep: Any, ended: np.ndarray, part: Part | None = None) -> None:
        """Note where episodes ended. Where the next row of an ended column is its reset, it shows the final
        observation, so that none is kept beside (but a masked one, whose mask the manager changes there).
        """
        if not len(ended) or (self.slab.masked and not self.env_resets and not isinstance(timestep.obs, dict)):
            return
        offset = 0 if part is None else part.columns.start
        self.slab.end(ended + offset, tree_index(timestep.obs, ended))
        if not self.slab.masked or self.env_resets:
            self.policy.reset(ended + offset)

    @property
    def env_resets(self) -> bool:
        """Whether an ended column shows its reset observation in the same step."""
        return bool(getattr(self.env, "same_step", not self.may_idle))

    def take_finished(self) -> Any:
        """The episodes that ended since this was asked for last."""
        return self.env.take_finished()

    def state_dict(self) -> dict[str, Any]:
        """The envs; `not_exact` says why they cannot go on where they are."""
        if not hasattr(self.env, "state_dict"):
            return {"env": None, "not_exact": f"the env manager {type(self.env).__name__} has no state_dict"}
        env = self.env.state_dict()
        return {"env": env, "not_exact": env["not_exact"]}

    def load_state_dict(self, state: dict[str, Any], again: int | None) -> str | None:
        """Go on where `state_dict` was taken; envs that know nothing of it start with the seed `again` (None: not now).

        Returns why that is not exact, where it is not.
        """
        if state["env"] is not None:
            self.env.load_state_dict(state["env"])
            return self.env.not_exact
        if again is not None:
            self.env.launch(again)
        return state["not_exact"]

    def close(self) -> None:
        """Close the envs."""
        self.env.close()
