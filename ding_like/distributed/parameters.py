"""Parameters on their way from a learner to workers: nobody waits, nobody sees a mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.data import tree_leaves, tree_map
from ding_like.utils.shared_memory import SharedTree, spec_of

BUFFERS = 3
TRIES = 1000


class ParameterBoard:
    """One writer publishes a tree of arrays, many readers take the newest.

    Three buffers and a word that names the newest: a writer never touches the newest or the one before it, so a reader
    has the time of two publications to copy; it looks again afterwards and repeats where that was not enough.

    Args:
        example: the tree of tensors or arrays to be published, of the writer; or the `spec` of another board.
        fd: descriptor of the writer's board; None makes one.

    Attributes:
        train_iter: gradient step of what was fetched last.
    """

    def __init__(self, example: Any, fd: int | None = None) -> None:
        spec = example
        if fd is None:
            one = spec_of(tree_map(_array, example))
            word = spec_of(np.zeros(8, np.int64))
            spec = {"word": word, "buffers": (one,) * BUFFERS}
        self.shared = SharedTree(spec, fd)
        self.train_iter = 0
        self._word = self.shared.tree["word"]  # version; gradient step of each buffer
        self._buffers = [tree_leaves(buffer) for buffer in self.shared.tree["buffers"]]

    @property
    def version(self) -> int:
        """How many publications there were."""
        return int(self._word[0])

    def publish(self, state: Any, train_iter: int = 0) -> int:
        """Write a tree like the example, of that gradient step. Returns its version."""
        version = int(self._word[0]) + 1
        for to, source in zip(self._buffers[version % BUFFERS], tree_leaves(state), strict=True):
            if isinstance(source, torch.Tensor) and source.is_cuda:
                torch.from_numpy(to).copy_(source)
            else:
                np.copyto(to, _array(source))
        self._word[1 + version % BUFFERS] = train_iter
        self._word[0] = version
        return version

    def fetch(self, state: Any, have: int = 0) -> int:
        """Copy the newest into the tensors or arrays of `state`, if it is newer than `have`. Returns its version.

        Raises RuntimeError where the writer is so fast that no copy was whole.
        """
        leaves = tree_leaves(state)
        for _ in range(TRIES):
            version = int(self._word[0])
            if version <= have:
                return have
            for to, source in zip(leaves, self._buffers[version % BUFFERS], strict=True):
                if isinstance(
                    to, torch.Tensor
                ):  # by torch, which counts it as a change: a network may keep what follows
                    to.copy_(torch.from_numpy(source))
                else:
                    np.copyto(to, source)
            self.train_iter = int(self._word[1 + version % BUFFERS])
            if int(self._word[0]) <= version + BUFFERS - 2:  # nobody has begun to write into this buffer since
                return version
        raise RuntimeError("parameters are published faster than they can be copied")


def _array(leaf: Any) -> np.ndarray:
    """A CPU tensor as an array over the same memory; a GPU's as a copy."""
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf
