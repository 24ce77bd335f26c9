"""The collector: the one loop that steps envs with a policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, tree_cat, tree_index, tree_leaves, tree_map
from ding_like.utils.collate import collate_items
from ding_like.utils.seed import episode_seed
from ding_like.worker.attribute import attribute_of
from ding_like.worker.collector.row_loop import RowLoop
from ding_like.worker.collector.slab import NO_ENDS, NonFiniteError, Slab
from ding_like.worker.collector.trajectory import make_stream

Sink = Callable[[Any], int]
EPISODES = 100  # the statistics are of the last so many


class SampleCollector:
    """Collects train samples from an env manager with a policy's collect mode.

    Args:
        cfg: the `policy.collect` section (its `collector` part holds this class's own settings).
        env_manager: launched by `start`.
        policy: a `collect_mode`.
        seed: seed of the env columns.
    """

    config: dict = dict(
        sampler="auto",  # serial, local, server, alternating or auto; -m serial makes it serial, -m async local
        num_workers=None,  # worker processes; None: one for each usable core (with -m async but the learner's)
        on_worker_death="raise",  # or restart it, or shrink (go on without its columns); an env's error always raises
        step_timeout=None,  # seconds of one step after which a worker counts as dead; None waits for ever
        max_restarts=20,  # of workers in a run, with on_worker_death=restart
        lag=1,  # with -m async: rounds of learning that a block may be behind; 0 is -m parallel
    )

    def __init__(self, cfg: Any, env_manager: Any, policy: Any, seed: int = 0) -> None:
        self._policy = policy
        self._seed = seed
        self.n_sample, steps = int(cfg.n_sample), cfg.get("n_step")
        self.n_step = None if steps is None else int(steps)  # in place of n_sample
        for name, value in (("n_sample", self.n_sample), ("n_step", self.n_step)):
            if value is not None and value < 1:
                raise ValueError(f"policy.collect.{name} is {value}; wanted at least 1")
        self._columns = env_manager.env_num
        self._sample_len = int(attribute_of(policy, "sample_len", 1))
        self._stream = make_stream(policy, self._columns)
        carry = int(policy.get_attribute("carry")) if self._stream is None else self._stream.carry
        rows = self._rows_for(self.n_sample) if self.n_step is None else -(-self.n_step // self._columns)
        slab = Slab(carry + rows, carry, masked=bool(getattr(env_manager, "may_idle", False)))
        make_rows = getattr(env_manager, "rows", None)
        if make_rows is None:
            self._rows: Any = RowLoop(env_manager, policy, slab, int(getattr(env_manager, "alternate", 1)))
        else:
            self._rows = make_rows(policy, slab)
        self._slab = slab
        self._surplus = 0  # what collects gave beyond what they were asked for, of what the config counts
        self._normalised = bool(policy.get_attribute("norm_obs"))
        self._seen: list[Any] = []  # observations the normaliser has yet to take in
        self._started = False
        self._begun = 0  # rows asked for that are not in a block yet
        self._early: int | None = None  # of these, once they are all there: how many entries are no transition
        self.envstep = 0
        self.setting: dict[str, Any] = {}
        self.episode_count = 0
        self._finished: deque[Any] = deque()  # sequences of dicts, which some managers make when somebody looks
        self.not_exact: str | None = None

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
        for seen in self._seen:
            self._policy.observe(seen)
        self._seen.clear()

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
        return min(slab.capacity, slab.carry + self._rows_for(need)) - slab.fill

    def _rows_for(self, samples: int) -> int:
        """Rows of the next block: those that give so many samples, or, of a stream, no more."""
        if self._stream is not None:
            return self._stream.rows_for(samples)
        return max(1, -(-samples * self._sample_len // self._columns))

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
            self._book(self._rows.take_finished())
            gapped, self._rows.gapped = self._rows.gapped, NO_ENDS
            if len(gapped) and self._stream is not None:
                self._stream.cut(gapped)

    def _book(self, finished: Any) -> None:
        if not len(finished):
            return
        self.episode_count += len(finished)
        self._finished.append(finished)
        while sum(map(len, self._finished)) - len(self._finished[0]) >= EPISODES:
            self._finished.popleft()

    @property
    def episodes(self) -> list[dict]:
        """The last (at most 100) training episodes."""
        return [episode for finished in self._finished for episode in finished[-EPISODES:]][-EPISODES:]

    def _emit(self, give: Sink) -> int:
        try:
            block = self._slab.block(self._rows.ready_obs)
        except NonFiniteError as err:
            before = max(0, self.envstep - (err.rows - err.row) * self._columns)
            raise FloatingPointError(
                f"{err} at env step {before} (row {before // self._columns} of that column). Nothing of this block "
                "was trained on; checkpoints written so far are good. Check the env, or clip in an env wrapper."
            ) from None
        if self._normalised:
            self._seen.append(_observed(block, self._slab.fresh))
        if self._stream is None:
            items = self._policy.get_train_sample(block)
        else:
            items = self._stream.take(block, self._slab.fresh)
        if items is None or (isinstance(items, list) and not items):
            count = 0
        elif isinstance(items, (Block, list, dict)):
            count = give(items)
        else:
            raise TypeError(
                f"_get_train_sample returned {type(items).__name__}; wanted a Block, a tree [N, ...] or a list of "
                "dictionaries"
            )
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
            "surplus": self._surplus,
            "seen": list(self._seen),
            "setting": dict(self.setting),
            "started": self._started,
            "envstep": self.envstep,
            "episode_count": self.episode_count,
            "episodes": [{key: e[key] for key in ("return_", "return_raw", "length")} for e in self.episodes],
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on where `state_dict` was taken, in a new collector.

        Where the envs cannot, `not_exact` says why: open episodes are truncated and every column starts a new one.
        """
        self._surplus, self._seen = state["surplus"], list(state["seen"])
        self.envstep, self.episode_count = state["envstep"], state["episode_count"]
        self._finished = deque([list(state["episodes"])] if state["episodes"] else [])
        self._started, self.setting = state["started"], dict(state["setting"])
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
        """Mean return and length of the last (at most 100) training episodes; empty before the first ends."""
        episodes = self.episodes
        if not episodes:
            return {}
        return {
            "return": float(np.mean([e["return_"] for e in episodes])),
            "return_raw": float(np.mean([e["return_raw"] for e in episodes])),
            "length": float(np.mean([e["length"] for e in episodes])),
            "episodes": self.episode_count,
        }


def _observed(block: Block, fresh: int) -> Any:
    """A copy of the observations of the rows from `fresh` on: `[T, B, ...]`, or `[N, ...]` where some are none."""
    obs = tree_index(block["obs"], slice(fresh, None))
    if "mask" not in block:
        return tree_map(np.copy, obs)
    return tree_index(obs, block["mask"][fresh:] > 0)


def _keep(taken: list[Any], items: Any) -> int:
    if isinstance(items, list):
        items = collate_items(items)
    kept = items.flat() if isinstance(items, Block) else ArrayDict(items)
    taken.append(tree_map(np.copy, kept))
    return len(tree_leaves(kept)[0])
