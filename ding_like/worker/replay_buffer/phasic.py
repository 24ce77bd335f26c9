"""The store of phasic policy gradient: rollouts, and after some of them epochs over all of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, tree_cat, tree_map
from ding_like.utils import BUFFER_REGISTRY
from ding_like.worker.replay_buffer.rollout import Rollout


@BUFFER_REGISTRY.register("phasic")
class PhasicRollout(Rollout):
    """A rollout whose items are kept and used once more, in an auxiliary phase, with those of some rollouts before.

    Args:
        cfg: the `policy.other.replay_buffer` section.
        seed: keys the permutations.
    """

    config: dict = dict(
        policy_phases=32,  # rollouts until an auxiliary phase, which trains on all of them
        aux_epochs=6,  # passes of an auxiliary phase
        aux_batch_size=256,  # most samples (of a recurrent network: segments) of its minibatches
    )

    def __init__(self, cfg: Any, seed: int = 0) -> None:
        super().__init__(cfg, seed)
        self._phases, self._aux_epochs = int(cfg.policy_phases), int(cfg.aux_epochs)
        self._aux_batch_size = int(cfg.aux_batch_size)
        self._kept: list[ArrayDict] = []  # rollouts of this phase

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """As of a `Rollout`; after every `policy_phases` of them those of the auxiliary phase, which have a field
        `auxiliary` and no `index`.
        """
        if self._parts:
            self._kept.append(self._parts[0] if len(self._parts) == 1 else tree_cat(self._parts))
        yield from super().batches(updates, batch_size)
        if len(self._kept) < self._phases:
            return
        data, self._kept = tree_cat(self._kept), []
        for batch in self._epochs(data, self._aux_epochs, self._aux_batch_size):
            yield ArrayDict(auxiliary=np.ones(len(batch.pop("index")), bool), **batch)

    def state_dict(self) -> dict:
        """Everything an exact continuation needs; refers to the stored arrays."""
        return {**super().state_dict(), "kept": list(self._kept)}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        self._kept = [ArrayDict(tree_map(np.copy, part)) for part in state["kept"]]
