"""What a worker gets before it fills rows: a policy of its own, and what it shares with this process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ding_like.data import tree_paths
from ding_like.distributed.local_worker import PolicyTask, published
from ding_like.distributed.parameters import ParameterBoard
from ding_like.distributed.worker_slot import WorkerSlot
from ding_like.utils.seed import episode_seed
from ding_like.utils.shared_memory import spec_of
from ding_like.utils.shipping import packed_for

if TYPE_CHECKING:
    from ding_like.distributed.group import WorkerGroup


class Enlister:
    """Gives the workers of a group, and those that are started again, a policy.

    Args:
        group: its workers are started. It serves a policy, whose network is what the workers act with, and
            `make_policy(columns, total, seed)`, which makes a worker's for its columns `[first, end)`.
        capacity, masked: of the slabs that they fill.
        blocks: slabs of a worker's own columns in turn; None: they fill their columns of one slab.

    Attributes:
        board: where parameters are published.
        seed: of the last launch; workers that are started again take seeds that follow from it.
        launched: whether there was one: new workers reset their envs, too.
    """

    def __init__(self, group: WorkerGroup, capacity: int, masked: bool, blocks: int | None = None) -> None:
        assert group.serving is not None
        self._group, (self._policy, self._make_policy) = group, group.serving
        self._slab = capacity, masked, blocks
        self.board = ParameterBoard(published(self._policy))
        group.keep(self.board.shared)
        self.seed, self.launched = 0, False
        group.enlist = self._enlist
        for slot in group.workers:
            self._enlist(slot)

    def publish(self, train_iter: int = 0) -> None:
        """Publish the parameters as they are now, after so many gradient steps."""
        self.board.publish(published(self._policy), train_iter)

    def _enlist(self, slot: WorkerSlot) -> None:
        seed = self._group.seed
        if slot.incarnation:
            seed = episode_seed(seed, "worker", slot.number, slot.incarnation)
        make = partial(self._make_policy, slot.columns, self._group.env_num, seed)
        remedy = (
            "take out of policy and model what cannot be pickled (locks, open files), or set "
            "policy.collect.collector.sampler to 'serial'"
        )
        known = [type(self._policy), type(self._policy.get_model())]
        load = packed_for(slot.child.name, "its policy", remedy, make, None, known)
        slot.tell("policy", PolicyTask(load, self.board.shared.spec, *self._slab), [self.board.shared.fd, slot.beat.fd])
        if self.launched:
            slot.ask("launch", episode_seed(self.seed, "collect/restart", slot.number, slot.incarnation))
        else:
            slot.live = True


def check_row(name: str, example: dict[str, Any], wanted: Any) -> None:
    """Whether the first row `[1, ...]` of a worker is like the rows of others, of which `wanted` are the specs.

    Raises ValueError naming it.
    """
    found, others = dict(tree_paths(spec_of(example, (), 1))), dict(tree_paths(wanted))
    if found != others:
        raise ValueError(
            f"_process_transition: the first row of {name} has {found}, that of worker 0 {others}; every column needs "
            "the same fields, shapes and types"
        )
