"""A sum tree in one array: numbers at its leaves, drawn in proportion to them; every operation on whole arrays."""

from __future__ import annotations

import numpy as np

TOP = 1024  # nodes searched as a list; below them a level of the tree costs as much as so many more


class SumTree:
    """`size` leaves of float64, all 0 at first.

    Parents are always the sum of their two children as they are, never a sum that differences were added to, so a tree
    of any age equals a new one with the same leaves, bit for bit.

    Levels lie one behind the other, node `i` above nodes `2 i` and `2 i + 1`, from the uppermost, which has up to
    `top` nodes, to the leaves. What a root and the levels below it would be is the running sum of the uppermost level:
    searching that is quicker than ten more levels.
    """

    def __init__(self, size: int, top: int = TOP) -> None:
        self.depth = 0
        while -(-size >> self.depth) > top:
            self.depth += 1
        self._top = -(-size >> self.depth)
        self._base = self._top << self.depth
        self._nodes = np.zeros(2 * self._base)
        self._pairs = self._nodes.view(np.complex128)  # two children at once
        self._running = np.zeros(self._top + 1)
        self._old = False  # whether `_running` lags behind
        self.leaves = self._nodes[self._base : self._base + size]
        """`[size]`, to read."""

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._sums()[-1])

    def set(self, index: np.ndarray, value: np.ndarray) -> None:
        """Leaves `index [n]` (int64) become `value [n]` (finite, at least 0); of equal indices the last counts."""
        node, nodes, pairs = index + self._base, self._nodes, self._pairs
        nodes[node] = value
        for _ in range(self.depth):
            node >>= 1
            children = pairs.take(node, mode="wrap")
            nodes[node] = children.real + children.imag
        self._old = True

    def load(self, leaves: np.ndarray) -> None:
        """The first leaves become `leaves [k]`, the others 0."""
        self._nodes[:] = 0
        self.leaves[: len(leaves)] = leaves
        stop = 2 * self._base
        for _ in range(self.depth):
            start = stop // 2
            self._nodes[start // 2 : start] = self._nodes[start:stop:2] + self._nodes[start + 1 : stop : 2]
            stop = start
        self._old = True

    def find(self, mass: np.ndarray) -> np.ndarray:
        """The leaf that each of `mass [n]` in `[0, total]` falls on, leaves laid end to end; never one that is 0.

        Raises ValueError where all leaves are 0.
        """
        sums, nodes = self._sums(), self._nodes
        if not sums[-1] > 0:
            raise ValueError("all leaves of the sum tree are 0; there is none to find")
        mass = np.minimum(mass, np.nextafter(sums[-1], 0))
        node = sums.searchsorted(mass, "right")
        node -= 1
        rest = mass - sums.take(node)
        node += self._top
        start = node.copy(), rest.copy()
        left, right = np.empty(len(node)), np.empty(len(node), bool)
        for _ in range(self.depth):
            node <<= 1
            nodes.take(node, None, left, "wrap")
            np.greater_equal(rest, left, right)
            node += right
            left *= right
            rest -= left
        missed = nodes.take(node) == 0
        if missed.any():
            node[missed] = self._find_carefully(*(a[missed] for a in start))
        node -= self._base
        return node

    def _find_carefully(self, node: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """The descent of `find` for those that rounding led astray: it goes to no child that is 0."""
        for _ in range(self.depth):
            left, right = self._nodes[2 * node], self._nodes[2 * node + 1]
            goes_right = (rest >= left) & (right > 0)
            node = 2 * node + goes_right
            rest = rest - left * goes_right
        return node

    def _sums(self) -> np.ndarray:
        """The running sum of the uppermost level, `[top + 1]`, from 0."""
        if self._old:
            np.add.accumulate(self._nodes[self._top : 2 * self._top], out=self._running[1:])
            self._old = False
        return self._running
