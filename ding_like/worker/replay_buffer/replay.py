"""The replay store: a ring (where items live) and a sampler (which are drawn)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ding_like.data import ArrayDict, Block, tree_index, tree_leaves
from ding_like.utils import BUFFER_REGISTRY
from ding_like.utils.collate import collate_items
from ding_like.worker.replay_buffer.frame_pool import PooledFrames
from ding_like.worker.replay_buffer.prioritized import PrioritizedSampler
from ding_like.worker.replay_buffer.ring import Ring
from ding_like.worker.replay_buffer.sampler import UniformSampler


class Replay:
    """Off-policy store of transitions.

    Args:
        cfg: the `policy.other.replay_buffer` section. Its `priority` and `priority_IS_weight` are those of the policy
            section, where the policy has them.
        seed: keys the sampling.
    """

    config: dict = dict(
        replay_buffer_size=10000,  # items kept (transitions; rounded up to whole rows of all env columns)
        alpha=0.6,  # with policy.priority an item is drawn in proportion to (priority + priority_eps) ^ alpha
        alpha_end=None,  # alpha after anneal_step batches; None keeps it; a priority keeps the alpha of its writing
        beta=0.4,  # importance weights are (N P) ^ -beta over the batch's largest; beta rises to 1
        anneal_step=100000,  # batches drawn until beta is 1 and alpha is alpha_end; both move linearly
        priority_eps=1e-6,  # added to every priority, so that no item is left for good
        frame_stack=None,  # frames that env.wrappers stack along the first axis of images; then each is kept once
    )

    def __init__(self, cfg: Any, seed: int = 0) -> None:
        stack = cfg.get("frame_stack")
        if stack is not None and (isinstance(stack, bool) or not isinstance(stack, int) or stack < 2):
            raise ValueError(
                f"policy.other.replay_buffer.frame_stack is {stack!r}; wanted the number of stacked frames, at least "
                "2, or None"
            )
        self.ring = Ring(int(cfg.replay_buffer_size), stack)
        self._pooled = None if stack is None else PooledFrames(stack, self.ring.size)
        self.sampler: UniformSampler | PrioritizedSampler = UniformSampler(seed)
        self.priority = bool(cfg.get("priority", False))
        if self.priority:
            weighted = cfg.get("priority_IS_weight")
            self.sampler = PrioritizedSampler(
                seed,
                float(cfg.alpha),
                None if cfg.alpha_end is None else float(cfg.alpha_end),
                float(cfg.beta),
                int(cfg.anneal_step),
                float(cfg.priority_eps),
                weighted=True if weighted is None else bool(weighted),
            )

    @property
    def count(self) -> int:
        """Items that can be drawn."""
        return self.ring.count

    @property
    def nbytes(self) -> int:
        """Bytes of what it holds."""
        return self.ring.nbytes + (0 if self._pooled is None else self._pooled.nbytes)

    def push(self, items: Any) -> int:
        """Store a `Block`, a tree `[N, ...]` or a list of dictionaries. Returns the number of items."""
        if isinstance(items, list):
            if not items:
                return 0
            items = collate_items(items)
        pooled = self._pooled is not None and not isinstance(items, Block)
        count = self._push_pooled(items) if pooled else self.ring.push(items)
        self.sampler.added(self.ring)
        return count

    def _push_pooled(self, items: Any) -> int:
        ring, pooled, count = self.ring, self._pooled, len(tree_leaves(items)[0])
        assert pooled is not None
        for start in range(0, count, ring.size):
            part = tree_index(items, slice(start, start + ring.size))
            leaving = max(0, ring.slots + min(ring.size, count - start) - ring.size)
            if leaving:
                pooled.release(ring.gather(np.arange(ring.first, ring.first + leaving)))
            ring.push(pooled.pack(part))
        return count

    def ready(self, n: int) -> bool:
        """Whether a batch of `n` can be drawn: as many items are there, or as many as there ever will be."""
        return self.ring.count >= n or (self.ring.full and self.ring.count > 0)

    def sample(self, n: int) -> ArrayDict:
        """A batch `[n, ...]` (numpy) with `index`, the serial number of each item, and where drawing is prioritised
        `weight`, multiplied with what the items themselves have under that name.

        Items come more than once where there are fewer than `n`. Raises ValueError while the store is empty.
        """
        ring, sampler = self.ring, self.sampler
        if not ring.count:
            raise ValueError("the replay buffer is empty; collect before sampling")
        index, weight = sampler.draw(n, ring)
        batch = ring.gather(index)
        if self._pooled is not None:
            batch = self._pooled.unpack(batch)
        batch["index"] = index
        if weight is not None:
            batch["weight"] = weight * batch["weight"] if "weight" in batch else weight
        return batch

    def batches(self, updates: int, batch_size: int) -> Iterator[ArrayDict]:
        """What to train on after one collect: `updates` batches drawn one by one, none before the first can be."""
        for _ in range(updates):
            if not self.ready(batch_size):
                return
            yield self.sample(batch_size)

    def update(self, index: np.ndarray, priority: Any) -> None:
        """Write the priorities `[n]` (array or tensor) of the items `index [n]` of a batch.

        Items overwritten since are left out. Does nothing where drawing is uniform. Raises ValueError or
        FloatingPointError for what is no priority.
        """
        if self.priority:
            self.sampler.update(self.ring, index, _on_cpu(priority))

    def cut(self) -> None:
        """Open episodes end here, since the envs start anew: what is pushed next belongs to others."""
        self.ring.cut()

    def state_dict(self) -> dict:
        """Everything an exact continuation needs; refers to live memory."""
        return {
            "priority": self.priority,
            "ring": self.ring.state_dict(),
            "pooled": None if self._pooled is None else self._pooled.state_dict(),
            "sampler": self.sampler.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises ValueError for a state of another size, or of the other way of drawing."""
        if state["priority"] != self.priority:
            raise ValueError(
                f"the saved replay buffer is of a run with policy.priority={state['priority']}, this one of a run with "
                f"{self.priority}"
            )
        self.ring.load_state_dict(state["ring"])
        if self._pooled is not None:
            self._pooled.load_state_dict(state["pooled"])
        self.sampler.load_state_dict(state["sampler"])


def _on_cpu(priority: Any) -> Any:
    """A tensor as an array; of bfloat16 too, which numpy lacks."""
    if not isinstance(priority, torch.Tensor):
        return priority
    priority = priority.detach().cpu()
    return (priority.double() if priority.is_floating_point() else priority).numpy()


for _name in ("replay", "naive", "deque", "advanced"):  # DI-engine's names for what is one store here
    BUFFER_REGISTRY.register(_name, Replay)
