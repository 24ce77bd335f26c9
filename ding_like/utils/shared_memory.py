"""Arrays that several processes see: one anonymous segment holds the leaves of a tree.

The memory has no name. It travels as a file descriptor, and the kernel frees it with the last process that has it,
however that process ends.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from dataclasses import dataclass
from math import prod
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ding_like.data.tree import tree_leaves, tree_map
from ding_like.utils.cores import free_of_container

NUMBERS = "biufc"
ALIGN = 64  # bytes of a cache line: leaves that different processes write share none


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one leaf."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def spec_of(tree: Any, lead: tuple[int, ...] = (), skip: int = 0) -> Any:
    """The tree of `ArraySpec` of arrays like those of `tree`: their first `skip` axes replaced by `lead`.

    Raises TypeError for a leaf that holds no numbers.
    """

    def leaf(value: Any) -> ArraySpec:
        array = np.asarray(value)
        if array.dtype.kind not in NUMBERS:
            raise TypeError(f"cannot share a field of type {type(value).__name__} between processes; wanted numbers")
        return ArraySpec((*lead, *array.shape[skip:]), array.dtype.str)

    return tree_map(leaf, tree)


class SharedTree:
    """A tree of arrays in one shared segment, zeroed at first.

    Args:
        spec: what `spec_of` gives.
        fd: descriptor of a segment made with the same spec; None makes one.

    Attributes:
        tree: the arrays.
        fd: descriptor to hand to other processes (`send_fd`).

    Raises MemoryError where there is not that much.
    """

    def __init__(self, spec: Any, fd: int | None = None) -> None:
        self.spec = spec
        size = sum(-(-leaf.nbytes // ALIGN) * ALIGN for leaf in tree_leaves(spec)) or ALIGN
        self.fd = _make(size) if fd is None else fd
        try:
            self._memory = mmap.mmap(self.fd, size)
        except BaseException:
            self.close()
            raise
        self._at = 0
        self.tree = tree_map(self._carve, spec)

    def _carve(self, leaf: ArraySpec) -> np.ndarray:
        start, self._at = self._at, self._at + -(-leaf.nbytes // ALIGN) * ALIGN
        count = prod(leaf.shape)
        return np.frombuffer(self._memory, np.dtype(leaf.dtype), count, start).reshape(leaf.shape)

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last array of it. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _make(size: int) -> int:
    """A descriptor of `size` bytes without a name, taken at once: a lack of memory shows here."""
    free = _free_memory()
    if size > free:  # else the kernel would kill some process, any one, to make room
        raise MemoryError(f"cannot share {size / 2**20:.1f} MiB between processes: {free / 2**20:.1f} MiB are free")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ding_like")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)
    except OSError as err:
        os.close(fd)
        raise MemoryError(f"cannot share {size / 2**20:.1f} MiB between processes: {err}") from err
    return fd


def _free_memory() -> float:
    """Bytes that can be had without any process losing its own; unlimited where that is not known."""
    return min(_free_of_machine(), free_of_container())


def _free_of_machine() -> float:
    try:
        with open("/proc/meminfo") as file:
            lines = (line.split() for line in file)
            return sum(int(line[1]) * 1024 for line in lines if line[0] in ("MemAvailable:", "SwapFree:"))
    except OSError:
        return math.inf


def send_fd(conn: Connection, fd: int, pid: int) -> None:
    """Hand a descriptor to the process at the other end of a duplex pipe."""
    reduction.send_handle(conn, fd, pid)


def recv_fd(conn: Connection) -> int:
    """The descriptor that `send_fd` sent."""
    return reduction.recv_handle(conn)
