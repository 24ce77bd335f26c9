"""Randomness by name: every stream is keyed by (seed, role, column, ...), never by which worker drew it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import numpy as np
import torch


def _words(seed: int, role: str, *index: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}; wanted a whole number of at least 0")
    return np.random.SeedSequence([seed, zlib.crc32(role.encode()), *index])


def episode_seed(seed: int, role: str, column: int, episode: int) -> int:
    """The seed of the `episode`-th episode of env column `column`, 31 bits hashed from all arguments."""
    return int(_words(seed, f"env/{role}", column, episode).generate_state(1)[0] >> 1)


def generator(seed: int, role: str, index: int = 0) -> np.random.Generator:
    """A NumPy generator for one named purpose (replay sampling, ...)."""
    return np.random.Generator(np.random.PCG64(_words(seed, role, index)))


def set_global_seed(seed: int) -> None:
    """Seed Python, NumPy and torch, for model initialisation and for user code that draws from them."""
    state = int(_words(seed, "global").generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)
    torch.manual_seed(state)


class ColumnNoise:
    """Pre-drawn uniform numbers, one Philox stream an env column.

    The numbers of a column depend on (seed, role, global column, step) alone: not on how many columns there are, who
    draws them or in which batch. The state is one integer, the step.

    Args:
        width: uniforms per column and step.
        columns: global column numbers.
    """

    BLOCK = 512

    def __init__(self, seed: int, role: str, columns: Sequence[int], width: int) -> None:
        self._keys = [_words(seed, f"noise/{role}", int(c)).generate_state(2, np.uint64) for c in columns]
        self._width = width
        self._block = -1
        self._rows = np.empty((self.BLOCK, len(self._keys), width))
        self.step = 0

    def row(self) -> np.ndarray:
        """Uniforms `[B, width]` in [0, 1) of this step; moves on by one step. Valid until the next block is drawn."""
        block, offset = divmod(self.step, self.BLOCK)
        if block != self._block:
            self._draw(block)
        self.step += 1
        return self._rows[offset]

    def _draw(self, block: int) -> None:
        for b, key in enumerate(self._keys):
            bits = np.random.Philox(key=key, counter=[0, 0, block, 0])
            self._rows[:, b] = np.random.Generator(bits).random((self.BLOCK, self._width))
        self._block = block
