"""From the rows of a slab to train samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import Block, tree_index, tree_map
from ding_like.worker.attribute import attribute_of
from ding_like.worker.collector.slab import NonFiniteError, Slab
from ding_like.worker.collector.trajectory import make_stream


class Emitter:
    """Makes the train samples of some columns: a stream of the policy's does, or its `get_train_sample` of every block.

    Args:
        policy: a `collect_mode`.
        columns: how many a row has.
        first: number of the first of them among all env columns.

    Attributes:
        stream: what cuts rows into samples, or None.
        carry: rows of a block that the next one must show again.
        sample_len: rows of a column that one sample is made of, as far as that is fixed.
        seen: observations that the normaliser has yet to take in.
    """

    def __init__(self, policy: Any, columns: int, first: int = 0) -> None:
        self._policy, self.columns, self._first = policy, columns, first
        self.sample_len = int(attribute_of(policy, "sample_len", 1))
        self.stream = make_stream(policy, columns)
        self.carry = int(policy.get_attribute("carry")) if self.stream is None else self.stream.carry
        self._normalised = bool(policy.get_attribute("norm_obs"))
        self.seen: list[Any] = []

    def rows_for(self, samples: int) -> int:
        """Rows of a block: those that give so many samples, or, of a stream, no more."""
        if self.stream is not None:
            return self.stream.rows_for(samples)
        return max(1, -(-samples * self.sample_len // self.columns))

    def take_seen(self) -> list[Any]:
        """Observations `[T, B, ...]` that the normaliser has yet to take in; they are forgotten here."""
        seen, self.seen[:] = list(self.seen), []
        return seen

    def emit(self, slab: Slab, ready_obs: Any, envstep: int, last: bool = False, rows: int | None = None) -> Any:
        """The samples that the rows of a slab complete: a `Block`, a tree `[N, ...]` or a list; None if there is none.

        Args:
            ready_obs: the observations `[B, ...]` after the last row.
            envstep: env steps by then.
            last: every open episode was made to end with the last row, so that no row waits.
            rows: of each column by then; None: as many as make these env steps.

        Raises FloatingPointError naming an observation or reward that is not finite, TypeError for what are no samples.
        """
        try:
            block = slab.block(ready_obs)
        except NonFiniteError as err:
            since = err.rows - err.row
            before = max(0, envstep - since * self.columns)
            row = before // self.columns if rows is None else rows - since
            raise FloatingPointError(
                f"{err.field} of env column {self._first + err.column} is not finite at env step {before} (row "
                f"{row} of that column). Nothing of this block was trained on; checkpoints written "
                "so far are good. Check the env, or clip in an env wrapper."
            ) from None
        if self._normalised and not last:
            self.seen.append(_observed(block, slab.fresh))
        if self.stream is not None:
            items = self.stream.take(block, slab.fresh)
        else:
            block.starts = len(block) if last else block.starts
            items = self._policy.get_train_sample(block)
        if items is None or (isinstance(items, list) and not items):
            return None
        if isinstance(items, (Block, list, dict)):
            return items
        raise TypeError(
            f"_get_train_sample returned {type(items).__name__}; wanted a Block, a tree [N, ...] or a list of "
            "dictionaries"
        )


def _observed(block: Block, fresh: int) -> Any:
    """A copy of the observations of the rows from `fresh` on: `[T, B, ...]`, or `[N, ...]` where some are none."""
    obs = tree_index(block["obs"], slice(fresh, None))
    if "mask" not in block:
        return tree_map(np.copy, obs)
    return tree_index(obs, block["mask"][fresh:] > 0)
