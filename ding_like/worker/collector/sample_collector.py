"""The collector: the one loop that steps envs with a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, tree_cat, tree_leaves, tree_map
from ding_like.utils.collate import collate_items
from ding_like.utils.seed import episode_seed
from ding_like.worker.collector.emitter import Emitter
from ding_like.worker.collector.episodes import EpisodeLog
from ding_like.worker.collector.row_loop import RowLoop
from ding_like.worker.collector.slab import NO_ENDS, Slab

Sink = Callable[[Any], int]


class SampleCollector:
    """Collects train samples from an env manager with a policy's collect mode.

    Args:
        cfg: the `policy.collect` section (its `collector` part holds this class's own settings).
        env_manager: launched by `start`.
        policy: a `collect_mode`.
        seed: seed of the env columns.
        tasks: names of several tasks, of which env column b runs number `b % len(tasks)`.
    """

    config: dict = dict(
        sampler="auto",  # serial, local, server, alternating or auto; -m serial makes it serial, -m async local
        num_workers=None,  # worker processes; None: one for each usable core (with -m async but the learner's)
        on_worker_death="raise",  # or restart it, or shrink (go on without its columns); an env's error always raises
        step_timeout=None,  # seconds of one step after which a worker counts as dead; None waits for ever
        max_restarts=20,  # of workers in a run, with on_worker_death=restart
        lag=1,  # with -m async: rounds of learning that a block may be behind; 0 is -m parallel
        barrier=None,  # with -m async: True: workers fill a block together; False: each its own; None: the policy says
        slots=2,  # without a barrier: blocks that a worker may have filled, or under way, beyond those taken
    )

    train_iter = 0
    """Gradient steps so far; whoever trains keeps it up to date."""

    def __init__(self, cfg: Any, env_manager: Any, policy: Any, seed: int = 0, tasks: Sequence[str] = ()) -> None:
        self._policy = policy
        self._seed = seed
        self.n_sample, steps = int(cfg.n_sample), cfg.get("n_step")
        self.n_step = None if steps is None else int(steps)  # in place of n_sample
        for name, value in (("n_sample", self.n_sample), ("n_step", self.n_step)):
            if value is not None and value < 1:
                raise ValueError(f"policy.collect.{name} is {value}; wanted at least 1")
        self._columns = env_manager.env_num
        self._surplus = 0  # what collects gave beyond what they were asked for, of what the config counts
        self._started = False
        self._begun = 0  # rows asked for that are not in a block yet
        self._early: int | None = None  # of these, once they are all there: how many entries are no transition
        self.envstep = 0
        self.setting: dict[str, Any] = {}
        self._episodes = EpisodeLog(tasks)
        self.not_exact: str | None = None
        self._set_up(cfg, env_manager)

    def _set_up(self, cfg: Any, env_manager: Any) -> None:
        """The rows, the slab that they are written into, and what makes samples of them."""
        self._emitter = Emitter(self._policy, self._columns)
        self._stream, self._seen, carry = self._emitter.stream, self._emitter.seen, self._emitter.carry
        rows = self._emitter.rows_for(self.n_sample) if self.n_step is None else -(-self.n_step // self._columns)
        slab = self._slab = Slab(carry + rows, carry, masked=bool(getattr(env_manager, "may_idle", False)))
        make_rows = getattr(env_manager, "rows", None)
        if make_rows is None:
            alternate = int(getattr(env_manager, "alternate", 1))
            self._rows: Any = RowLoop(env_manager, self._policy, slab, alternate)
        else:
            self._rows = make_rows(self._policy, slab)

    @property
    def waited(self) -> float:
        """Seconds that this process has waited for workers so far."""
        return float(getattr(self._rows, "waited", 0.0))

    @property
    def busy(self) -> list[float]:
        """Seconds that each worker has filled rows so far; empty where there are none."""
        return list(getattr(self._rows, "busy", ()))

    def start(self) -> None:
        """Reset the envs (once)."""
        if not self._started:
            self._rows.launch(self._seed)
            self._started = True

    def begin(self) -> None:
        """Let workers fill the first block of the next `collect`, with the network as it is now; does not wait.

        The normaliser takes in nothing here: what was collected last may be yet to be trained on.
        """
        self.start()
        if self._begun:
            return
        self.setting = self._policy.get_setting(self.envstep)
        need = (self.n_sample if self.n_step is None else self.n_step) - self._surplus
        if need > 0:
            self._begin(self._rows_of(need, self.n_step is not None), False)

    def collect(
        self,
        sink: Sink | None = None,
        n_sample: int | None = None,
        random: bool = False,
        n_step: int | None = None,
    ) -> Any:
        """Step until at least `n_sample` train samples are complete; whole rows, extras count for the next collect.

        Where the config has `n_step`, so many env steps, in rows of all columns, are what is asked for instead.

        Args:
            sink: takes the items of each block (views into memory that the next block overwrites) and returns their
                number. None joins them into one tree `[N, ...]`, which is returned (None if extras of before suffice).
            n_sample: in place of the config's number of train samples.
            random: uniformly random actions.
            n_step: collect at least so many env steps instead (whole rows); what they give is counted for no collect.
        """
        taken: list[Any] = []
        give = sink or (lambda items: _keep(taken, items))
        counted = n_sample is None and n_step is None
        self._observe()
        if counted and not random:
            self.begin()
        else:
            self.start()
            self.setting = {} if random else self._policy.get_setting(self.envstep)
        steps, need = n_step, n_sample
        if counted:
            steps, need = self.n_step, self.n_sample
            need = None if steps is not None else need
        if need is None:
            left = self._collect_rows(int(steps or 0) - (self._surplus if counted else 0), give, random, counted)
        else:
            left = self._collect_samples(need - (self._surplus if counted or self.n_step is None else 0), give, random)
        if counted or (n_sample is not None and self.n_step is None):
            self._surplus = left
        return tree_cat(taken) if taken else None

    def _observe(self) -> None:
        """Let the normaliser take in blocks that were trained on: never between collecting and learning."""
        for seen in self._emitter.take_seen():
            self._policy.observe(seen)

    def _collect_samples(self, need: int, give: Sink, random: bool) -> int:
        """Collect that many train samples, in rows of all columns. Returns how many there are too many."""
        while need > 0:
            self._fill(self._rows_of(need, False), random)
            need -= self._emit(give)
        return -need

    def _collect_rows(self, need: int, give: Sink, random: bool, counted: bool) -> int:
        """Collect that many env steps, in rows of all columns. Returns how many there are too many.

        Args:
            counted: a row counts as a step of every column, also of one that was only reset: rollouts have one length.
        """
        while need > 0:
            before = self.envstep
            rows = self._rows_of(need, True)
            self._fill(rows, random)
            need -= rows * self._columns if counted else self.envstep - before
            if self._slab.fill > self._slab.carry:
                self._emit(give)
        return -need

    def _rows_of(self, need: int, steps: bool) -> int:
        """Rows of the next block, which has to give so many env steps, or train samples."""
        slab = self._slab
        if steps:
            return min(slab.capacity - slab.fill, -(-need // self._columns))
        return min(slab.capacity, slab.carry + self._emitter.rows_for(need)) - slab.fill

    def _begin(self, rows: int, random: bool) -> None:
        self._begun = rows
        self._rows.begin(rows, self.setting, random)

    def _fill(self, rows: int, random: bool) -> None:
        if not self._begun:
            self._begin(rows, random)
        self._await()
        none, self._early = self._early or 0, None
        self.envstep += self._begun * self._columns - none
        self._begun = 0

    def _await(self) -> None:
        """The rows that were begun are in the slab."""
        if self._begun and self._early is None:
            self._early = self._rows.finish()
            self._episodes.add(self._rows.take_finished())
            gapped, self._rows.gapped = self._rows.gapped, NO_ENDS
            if len(gapped) and self._stream is not None:
                self._stream.cut(gapped)

    @property
    def episode_count(self) -> int:
        """Training episodes that ended so far."""
        return self._episodes.count

    @property
    def episodes(self) -> list[dict]:
        """The last (at most 100) training episodes, of each task."""
        return [episode for some in self._episodes.last() for episode in some]

    def _emit(self, give: Sink) -> int:
        items = self._emitter.emit(self._slab, self._rows.ready_obs, self.envstep)
        count = 0 if items is None else give(items)
        self._slab.shift()
        return count

    def state_dict(self) -> dict:
        """Envs, rows that come again, counters and statistics: all that decides how collecting goes on after a collect.

        `not_exact` says why the envs cannot go on where they are, or is None.
        """
        self._await()
        rows = self._rows.state_dict()
        return {
            "env": rows,
            "not_exact": rows["not_exact"],
            "ready_obs": self._rows.ready_obs,
            "begun": [self._begun, self._early],
            "slab": self._slab.state_dict(),
            "stream": None if self._stream is None else self._stream.state_dict(),
            "seen": list(self._seen),
            **self._counters(),
        }

    def _counters(self) -> dict[str, Any]:
        return {
            "surplus": self._surplus,
            "setting": dict(self.setting),
            "started": self._started,
            "envstep": self.envstep,
            "episodes": self._episodes.state_dict(),
        }

    def _load_counters(self, state: dict[str, Any]) -> None:
        self._surplus, self.setting = state["surplus"], dict(state["setting"])
        self._started, self.envstep = state["started"], state["envstep"]
        self._episodes.load_state_dict(state["episodes"])

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict` was taken, in a new collector.

        Where the envs cannot, `not_exact` says why: open episodes are truncated and every column starts a new one.
        """
        self._load_counters(state)
        self._seen[:] = state["seen"]
        again = episode_seed(self._seed, "collect/restart", 0, self.envstep) if self._started else None
        self.not_exact = self._rows.load_state_dict(state["env"], again)
        self._slab.load_state_dict(state["slab"])
        self._begun, self._early = state["begun"]
        if self._stream is not None:
            self._stream.load_state_dict(state["stream"])
        if self.not_exact is not None and self._started:
            self._slab.cut(state["ready_obs"])
            if self._stream is not None and self._slab.fill == self._slab.fresh:  # else it has yet to see the last row
                self._stream.cut()
            self._policy.reset()

    def statistics(self) -> dict[str, float]:
        """Mean returns and lengths of the last training episodes; see `EpisodeLog.statistics`."""
        return self._episodes.statistics()


def _keep(taken: list[Any], items: Any) -> int:
    if isinstance(items, list):
        items = collate_items(items)
    kept = items.flat() if isinstance(items, Block) else ArrayDict(items)
    taken.append(tree_map(np.copy, kept))
    return len(tree_leaves(kept)[0])
