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
from ding_like.worker.collector.slab import NonFiniteError, Slab
from ding_like.worker.collector.trajectory import make_stream

Sink = Callable[[Any], int]
NO_COLUMN = np.empty(0, np.int64)
EPISODES = 100  # the statistics are of the last so many


class SampleCollector:
    """Collects train samples from an env manager with a policy's collect mode.

    Args:
        cfg: the `policy.collect` section (its `collector` part holds this class's own settings).
        env_manager: launched by `start`.
        policy: a `collect_mode`.
        seed: seed of the env columns.
    """

    config: dict = {}

    def __init__(self, cfg: Any, env_manager: Any, policy: Any, seed: int = 0) -> None:
        self._env = env_manager
        self._policy = policy
        self._seed = seed
        self.n_sample = int(cfg.n_sample)
        if self.n_sample < 1:
            raise ValueError(f"policy.collect.n_sample is {self.n_sample}; wanted at least 1")
        columns = env_manager.env_num
        self._sample_len = int(attribute_of(policy, "sample_len", 1))
        self._stream = make_stream(policy, columns)
        carry = int(policy.get_attribute("carry")) if self._stream is None else self._stream.carry
        self._slab = Slab(
            carry + self._rows_for(self.n_sample), carry, masked=bool(getattr(env_manager, "may_idle", False))
        )
        self._surplus = 0
        self._normalised = bool(policy.get_attribute("norm_obs"))
        self._seen: list[Any] = []  # observations the normaliser has yet to take in
        self._started = False
        self.envstep = 0
        self.setting: dict[str, Any] = {}
        self.episode_count = 0
        self._finished: deque[Any] = deque()  # sequences of dicts, which some managers make when somebody looks
        self.not_exact: str | None = None

    def start(self) -> None:
        """Reset the envs (once)."""
        if not self._started:
            self._env.launch(self._seed)
            self._policy.reset()
            self._started = True

    def collect(
        self,
        sink: Sink | None = None,
        n_sample: int | None = None,
        random: bool = False,
        n_step: int | None = None,
    ) -> Any:
        """Step until at least `n_sample` train samples are complete; whole rows, extras count for the next collect.

        Args:
            sink: takes the items of each block (views into memory that the next block overwrites) and returns their
                number. None joins them into one tree `[N, ...]`, which is returned (None if extras of before suffice).
            random: uniformly random actions.
            n_step: collect at least so many env steps instead (whole rows); what they give is counted for no collect.
        """
        self.start()
        taken: list[Any] = []
        give = sink or (lambda items: _keep(taken, items))
        for seen in self._seen:
            self._policy.observe(seen)
        self._seen.clear()
        policy = self._policy
        self.setting = {} if random else policy.get_setting(self.envstep)
        forward = policy.forward_random if random else policy.forward
        slab = self._slab
        need = (self.n_sample if n_sample is None else n_sample) - self._surplus
        until = None if n_step is None else self.envstep + n_step
        while until is not None and self.envstep < until:
            rows = min(slab.capacity - slab.fill, -(-(until - self.envstep) // self._env.env_num))
            self._fill(rows, forward)
            if slab.fill > slab.carry:
                self._emit(give)
        while until is None and need > 0:
            rows = min(slab.capacity, slab.carry + self._rows_for(need)) - slab.fill
            self._fill(rows, forward)
            need -= self._emit(give)
        self._surplus = -need if until is None else self._surplus
        return tree_cat(taken) if taken else None

    def _rows_for(self, samples: int) -> int:
        """Rows of the next block: those that give so many samples, or, of a stream, no more."""
        if self._stream is not None:
            return self._stream.rows_for(samples)
        return max(1, -(-samples * self._sample_len // self._env.env_num))

    def _fill(self, rows: int, forward: Callable[..., ArrayDict]) -> None:
        env, slab, setting = self._env, self._slab, self.setting
        process = self._policy.process_transition
        obs, masked, none = env.ready_obs, slab.masked, 0
        for _ in range(rows):
            output = forward(obs, **setting)
            timestep = env.step(output["action"])
            row = process(obs, output, timestep)
            if "terminated" not in row:
                row["terminated"] = timestep.terminated
            if "truncated" not in row:
                row["truncated"] = timestep.truncated
            idle = env.idle if masked else NO_COLUMN
            if len(idle):
                none += len(idle)
                self._policy.reset(idle)  # here and not at the end: what it says of the last observation is ignored
            slab.write(obs, row, timestep, idle)
            obs = env.ready_obs
            if obs is not timestep.obs:
                self._end(timestep)
        self.envstep += rows * env.env_num - none
        self._book(env.take_finished())

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

    def _end(self, timestep: Any) -> None:
        """Note where episodes ended. Where the next row of an ended column is its reset, it shows the final
        observation, so that none is kept beside (but a masked one, whose mask the manager changes there).
        """
        if self._slab.masked and not isinstance(timestep.obs, dict):
            return
        columns = timestep.done.nonzero()[0]
        self._slab.end(columns, timestep.obs)
        if not self._slab.masked:
            self._policy.reset(columns)

    def _emit(self, give: Sink) -> int:
        try:
            block = self._slab.block(self._env.ready_obs)
        except NonFiniteError as err:
            before = max(0, self.envstep - (err.rows - err.row) * self._env.env_num)
            raise FloatingPointError(
                f"{err} at env step {before} (row {before // self._env.env_num} of that column). Nothing of this block "
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
        env = self._env.state_dict() if hasattr(self._env, "state_dict") else {}
        unknown = f"the env manager {type(self._env).__name__} has no state_dict"
        return {
            "env": env,
            "not_exact": env.get("not_exact", unknown),
            "ready_obs": self._env.ready_obs,
            "slab": self._slab.state_dict(),
            "stream": None if self._stream is None else self._stream.state_dict(),
            "surplus": self._surplus,
            "seen": list(self._seen),
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
        self._slab.load_state_dict(state["slab"])
        if self._stream is not None:
            self._stream.load_state_dict(state["stream"])
        self._started, self.not_exact = state["started"], state["not_exact"]
        if state["env"]:
            self._env.load_state_dict(state["env"])
            self.not_exact = self._env.not_exact
        elif self._started:
            self._env.launch(episode_seed(self._seed, "collect/restart", 0, self.envstep))
        if self.not_exact is not None and self._started:
            self._slab.cut(state["ready_obs"])
            if self._stream is not None:
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
