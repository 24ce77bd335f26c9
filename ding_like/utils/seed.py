"""Randomness by name: every stream is keyed by (seed, role, column, ...), never by which worker drew it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


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
    import torch

    state = int(_words(seed, "global").generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)
    torch.manual_seed(state)


def rng_state() -> dict[str, Any]:
    """The global generators of Python, NumPy and torch (of every GPU too), as they stand."""
    import torch

    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore `rng_state`. GPUs that this machine does not have are left out."""
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)


class ColumnNoise:
    """Pre-drawn uniform numbers, one Philox stream an env column.

    The numbers of a column depend on (seed, role, global column, step of that column) alone: not on how many columns
    there are, who draws them, or which other columns are asked with it.

    Args:
        width: uniforms per column and step.
        columns: global numbers of the local columns 0, 1, ...; None means they are the same. Local columns beyond
            these take their own number.
    """

    BLOCK = 512

    def __init__(self, seed: int, role: str, width: int, columns: Sequence[int] | None = None) -> None:
        self._seed, self._role, self.width = seed, role, width
        self._columns = list(columns or ())
        self._keys: list[np.ndarray] = []
        self._streams: dict[int, tuple[Any, Any]] = {}  # bit generator and generator of a column
        self._rows = np.empty((self.BLOCK, 0, width))
        self._block = np.empty(0, np.int64)  # the block each column's rows are of
        self._steps = np.empty(0, np.int64)  # rows each column has given
        self._together = 0  # that number where it is one for all columns (`_steps` then lags behind), else -1

    def rows(self, columns: np.ndarray | None, count: int) -> np.ndarray:
        """Uniforms `[count, width]` in [0, 1) for local `columns` (None: columns 0 to `count`); they move on a step."""
        have = len(self._keys)
        if columns is None and count == have and self._together >= 0:
            offset = self._together % self.BLOCK
            if offset == 0:
                self._count()
                self._fill(range(have))
            self._together += 1
            return self._rows[offset]
        self._count()
        ids = np.arange(count) if columns is None else np.asarray(columns)
        self._grow(int(ids.max()) + 1)
        self._fill(ids[self._steps[ids] // self.BLOCK != self._block[ids]])
        out = self._rows[self._steps[ids] % self.BLOCK, ids]
        self._steps[ids] += 1
        same = bool((self._steps == self._steps[0]).all())
        self._together = int(self._steps[0]) if same else -1
        return out

    def _count(self) -> None:
        if self._together >= 0:
            self._steps[:] = self._together

    def _grow(self, count: int) -> None:
        more = range(len(self._keys), count)
        for c in more:
            column = self._columns[c] if c < len(self._columns) else c
            self._keys.append(_words(self._seed, f"noise/{self._role}", column).generate_state(2, np.uint64))
        if more:
            self._rows = np.concatenate([self._rows, np.empty((self.BLOCK, len(more), self.width))], 1)
            self._block = np.append(self._block, np.full(len(more), -1))
            self._steps = np.append(self._steps, np.zeros(len(more), np.int64))

    def _fill(self, columns: Iterable[int]) -> None:
        """Draw the block that holds the next row of each of these columns."""
        ids = np.fromiter(columns, np.int64)
        drawn = np.empty((len(ids), self.BLOCK, self.width))
        for c, out in zip(ids.tolist(), drawn):
            block, (bits, made) = int(self._steps[c]) // self.BLOCK, self._streams.get(c, (None, None))
            if bits is not None and block == self._block[c] + 1:  # half the time of a new stream
                bits.advance(2**128 - self.BLOCK * self.width // 4)  # to counter [0, 0, block, 0]: 4 numbers a count
            else:
                bits = np.random.Philox(key=self._keys[c], counter=[0, 0, block, 0])
                made = np.random.Generator(bits)
                self._streams[c] = bits, made
            made.random(out=out)
            self._block[c] = block
        self._rows[:, ids] = drawn.swapaxes(0, 1)

    def state_dict(self) -> dict:
        """The step of every column."""
        self._count()
        return {"steps": self._steps.tolist()}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self._grow(len(state["steps"]))
        self._steps = np.asarray(state["steps"], np.int64)
        self._block[:] = -1
        same = len(self._steps) > 0 and bool((self._steps == self._steps[0]).all())
        self._together = int(self._steps[0]) if same else -1
        self._fill(range(len(self._steps)))
