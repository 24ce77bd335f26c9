"""Collecting without a barrier: every worker acts with the newest parameters there are, hands over a block, goes on."""

from __future__ import annotations

from typing import Any

from ding_like.data import Block
from ding_like.distributed.lanes import Lanes
from ding_like.utils.log import get_logger
from ding_like.utils.seed import episode_seed
from ding_like.worker import SampleCollector
from ding_like.worker.collector.emitter import Emitter
from ding_like.worker.collector.sample_collector import Sink

WHY = "actors without a barrier (policy.collect.collector.barrier) hand over blocks when they are done"


class FreeCollector(SampleCollector):
    """A collector that takes the blocks of workers as they come, the oldest first. Espeholt 2018, fig. 1.

    Parameters are published when `collect` starts; a worker takes the newest at the start of a block. That has the rows
    which make a sample of every column, of single steps a collect's share. It is at most `slots` blocks ahead.
    Items of rows are flat, as those of different columns come at different times.

    Attributes:
        acted_at: gradient step of the parameters with which the rows in hand were collected.
    """

    def _set_up(self, cfg: Any, env_manager: Any) -> None:
        self.acted_at = 0
        self._rows = Lanes(env_manager, self._policy, int(cfg.collector.slots), self._rows_of_block)

    def _rows_of_block(self, emitter: Emitter) -> int:
        if emitter.stream is not None or emitter.sample_len > 1:
            return emitter.rows_for(emitter.columns)
        return -(-(self.n_step or self.n_sample) // self._columns)

    def start(self) -> None:
        """Reset the envs (once)."""
        if not self._started:
            get_logger().info(f"this run is not repeatable: {WHY}; barrier=True makes it so, and lets them wait")
        super().start()

    def begin(self) -> None:
        """Nothing is left to be begun: workers never wait for it."""
        self.start()

    def _observe(self) -> None:
        """Let the normaliser take in what was trained on; then workers may have the network as it is now."""
        for lane in self._rows.lanes:
            for seen in lane.emitter.take_seen():
                self._policy.observe(seen)
        self._rows.enlister.publish(self.train_iter)

    def _collect_samples(self, need: int, give: Sink, random: bool) -> int:
        while need > 0:
            need -= self._take(give, random, None)
        return -need

    def _collect_rows(self, need: int, give: Sink, random: bool, counted: bool) -> int:
        while need > 0 or (random and self._rows.under_way):  # what comes later is not random
            before = self.envstep
            self._take(give, random, need if random else None)
            need -= self.envstep - before
        return -need

    def _take(self, give: Sink, random: bool, steps: int | None) -> int:
        """Take the next block; its worker, and whoever else has a free one, is asked for another. Returns its samples.

        Args:
            steps: those that are wanted at most; None: as many as come.
        """
        lanes = self._rows
        self.setting = {} if random else self._policy.get_setting(self.envstep)
        lanes.order(self.setting, random, steps)
        lane, done = lanes.next()
        taken = 0 if done is None else lane.steps(done)
        self.envstep += taken
        if done is not None:
            self._episodes.add([episode for _, episode in done["finished"]])
        slab = lane.take(done)
        count = 0
        if slab is not None:
            self.acted_at = lane.train_iter
            items = lane.emitter.emit(slab, lane.ready_obs(done), self.envstep, done is None, lane.rows)
            if items is not None:
                count = give(items.flat() if isinstance(items, Block) else items)
        lane.give_back(done)
        lanes.order(self.setting, random, None if steps is None else steps - taken)
        return count

    def state_dict(self) -> dict:
        """Counters and statistics; envs start anew, and blocks that nobody took are not kept."""
        return {**self._counters(), "not_exact": WHY}

    def load_state_dict(self, state: dict) -> None:
        """Go on from the counters of `state_dict`, with envs that start anew."""
        self._load_counters(state)
        self.not_exact = state["not_exact"]
        if self._started:
            self._rows.launch(episode_seed(self._seed, "collect/restart", 0, self.envstep))
