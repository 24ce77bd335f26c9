"""Observations of stacked frames, each frame kept once and stacked again when it is drawn.

An observation is a stack `[k * C, ...]`: k frames of C channels, the newest last, and within an episode each is the one
before moved on by a frame. A row keeps the newest frame and k references: the rows its frames were the newest of, so
that a stack is one `take`. What a wrapper showed before an episode's first observation (that frame again, zeros, steps
it took on its own) is known from nowhere else: those frames are kept apart, once each, as the *head* of the episode. Of
a final observation the side table has the newest frame.

Frames of a column lie one after the other, `[B, R]`: a stack is then one stretch of memory, which is read about half as
fast again as frames a row of all columns apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ding_like.data import RowLink, buffer_from_example, tree_leaves, tree_map
from ding_like.data.tree import is_node, rebuild_tuple
from ding_like.worker.replay_buffer.finals import FinalTable
from ding_like.worker.replay_buffer.storage import lengthened, spans

WHOLE = 1000  # transitions of which every pixel is compared with the stack before; of later ones one of SPARSE
SPARSE = 251


class StackedLeaves:
    """Which leaves of an observation are stacks of `count` frames.

    Args:
        shapes: of every leaf, in the order of `tree_leaves`, its shape where it is a stack, else None.
    """

    def __init__(self, count: int, shapes: list[list[int] | None]) -> None:
        self.count, self.shapes = count, list(shapes)

    @classmethod
    def of(cls, count: int, obs: Any) -> StackedLeaves:
        """The leaves of an observation that have two axes or more. Raises ValueError where those are no stacks."""
        found = [np.shape(leaf) for leaf in tree_leaves(obs)]
        shapes = [list(shape) if len(shape) > 1 else None for shape in found]
        if not any(shapes) or any(shape is not None and shape[0] % count for shape in shapes):
            raise ValueError(
                f"policy.other.replay_buffer.frame_stack is {count}, but the observation has the shape "
                f"{found[0] if len(found) == 1 else found}; wanted one whose first axis is a stack of {count} frames, "
                f"the newest last, as the env wrapper dict(type='frame_stack', n={count}) makes it; or set it to None"
            )
        return cls(count, shapes)

    def rest(self, tree: Any) -> Any:
        """The leaves that are no stacks; None in the place of those that are."""
        shapes = iter(self.shapes)
        return tree_map(lambda leaf: leaf if next(shapes) is None else None, tree)

    def join(self, rest: Any, stacks: Iterator[Any]) -> Any:
        """`rest` with `stacks` in the places of the leaves that it lacks."""
        if rest is None:
            return next(stacks)
        if isinstance(rest, dict):
            return type(rest)({key: self.join(value, stacks) for key, value in dict.items(rest)})
        if is_node(rest):
            return rebuild_tuple(rest, [self.join(value, stacks) for value in tuple.__iter__(rest)])
        return rest

    def newest(self, tree: Any, lead: int) -> Any:
        """Observations `[*lead, ...]` with the newest frame alone `[*lead, C, ...]` of every stack; views."""
        shapes, every = iter(self.shapes), (slice(None),) * lead

        def leaf(x: Any) -> Any:
            shape = next(shapes)
            return x if shape is None else x[(*every, slice(-(shape[0] // self.count), None))]

        return tree_map(leaf, tree)

    def stacks(self, tree: Any, lead: int) -> list[np.ndarray]:
        """The stacks as `[*lead, k, frame]`, frames flat."""
        pairs = zip(tree_leaves(tree), self.shapes)
        return [np.reshape(x, (*x.shape[:lead], self.count, -1)) for x, shape in pairs if shape is not None]


class FrameRows:
    """The observations of a ring's rows `[R, B]`, less the leaves that are no stacks.

    Args:
        leaves: of one observation.
        rows, columns: R and B; R leaves room for k - 1 rows before the oldest item's.
        look: rows past the write cursor that a push brings.
    """

    def __init__(self, leaves: StackedLeaves, rows: int, columns: int, look: int) -> None:
        self.leaves = leaves
        self._rows, self._columns, self._look = rows, columns, look
        self._ahead = 0  # of the rows that the next push brings, those that are here already
        self._frames: list[np.ndarray] = []  # of every stacked leaf [B * R, frame]
        self._heads: list[np.ndarray] = []  # of every stacked leaf [H, frame]
        self._owner = np.empty(0, np.int64)  # [H], serial number of the row that began with this frame; -1: none did
        # [B, k - 1], the heads that each column's last episode began with
        self._last = np.full((columns, leaves.count - 1), -1, np.int64)
        # [R * B, k], oldest first: a frame b * R + row, or a head B * R + its place
        self._refs = np.zeros((rows * columns, leaves.count), np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of frames, heads and references."""
        return sum(a.nbytes for a in (*self._frames, *self._heads, self._owner, self._refs))

    # ------------------------------------------------------------------ writing
    def push(self, link: RowLink, idle: np.ndarray | None, first: int, oldest: int) -> None:
        """Take the rows of a block. Raises ValueError naming the column where an observation is no moved-on stack.

        Args:
            link: rows `[L + 1, B]`, the first of which becomes row `first` (a serial number).
            idle: bool `[E, B]`, which of the first rows are no transition; of the others it shows. None: none is.
            oldest: serial number of the oldest row that an item is left of.
        """
        stacks, old = self.leaves.stacks(link.rows, 2), self._ahead
        if not self._frames:
            size = self._rows * self._columns
            self._frames = [buffer_from_example(s[0, 0, 0], size) for s in stacks]
            self._heads = [buffer_from_example(s[0, 0, 0], 0) for s in stacks]
        total = len(stacks[0])
        begins = self._begins(stacks, link, idle)
        self._check(stacks, begins, link, idle, first)
        for start, stop, part in spans((first + old) % self._rows, total - old, self._rows):
            for frames, stack in zip(self._frames, stacks):
                by_column = frames.reshape(self._columns, self._rows, -1)
                by_column[:, start:stop] = stack[old:][part, :, -1].swapaxes(0, 1)
        self._refer(stacks, begins, first, oldest)
        self._ahead = self._look

    def _begins(self, stacks: list[np.ndarray], link: RowLink, idle: np.ndarray | None) -> np.ndarray:
        """Which new rows are the first of an episode, `[L + 1, B]`: an end or a row of no transition is before them."""
        begins = np.zeros(stacks[0].shape[:2], bool)
        begins[1:].reshape(-1)[link.ends] = True
        if idle is not None:
            known = len(idle)
            begins[1 : known + 1] |= idle
            begins[known + 1 :] |= np.logical_or.reduce([_strange(s[known:]) for s in stacks])
        begins[: self._ahead] = False
        if not self._ahead:
            begins[0] = True
        return begins

    def _check(
        self, stacks: list[np.ndarray], begins: np.ndarray, link: RowLink, idle: np.ndarray | None, first: int
    ) -> None:
        """The frames but the newest must be those of the observation before."""
        start = max(1, self._ahead)
        for stack in stacks:
            some = min(SPARSE, stack.shape[-1])
            pixels = slice(None) if first * self._columns < WHOLE else slice(first % some, None, SPARSE)
            wrong = _strange(stack[start - 1 :, ..., pixels]) & ~begins[start:]
            if wrong.any():
                self._refuse(int(np.argwhere(wrong)[0, 1]))
        ends = link.ends
        if len(ends):
            real = np.ones(len(ends), bool)
            if idle is not None:  # of a row that is no transition nobody asks what came next
                real = ends < idle.size
                real[real] = ~idle.reshape(-1)[ends[real]]
            for stack, final in zip(stacks, self.leaves.stacks(link.finals, 1)):
                before = stack[:-1].reshape(-1, *stack.shape[2:])[ends]
                wrong = (final[:, :-1] != before[:, 1:]).reshape(len(final), -1).any(-1) & real
                if wrong.any():
                    self._refuse(int(ends[np.argmax(wrong)]) % self._columns)

    def _refuse(self, column: int) -> None:
        count = self.leaves.count
        raise ValueError(
            f"policy.other.replay_buffer.frame_stack is {count}, but an observation of env column {column} is not the "
            f"one before moved on by one frame, so its frames cannot be kept once; wanted {count} frames along the "
            f"first axis, the newest last, one new a step: let dict(type='frame_stack', n={count}) be the last of "
            "env.wrappers that changes the image, or set frame_stack to None"
        )

    def _refer(self, stacks: list[np.ndarray], begins: np.ndarray, first: int, oldest: int) -> None:
        """Write the references of the new rows."""
        old, k, size = self._ahead, self.leaves.count, self._rows
        new = len(begins) - old
        at = np.arange(first + old, first + old + new) % size
        own = (at[:, None] + size * np.arange(self._columns)).astype(np.int32)  # [new, B]
        refs = np.empty((new, self._columns, k), np.int32)
        by_row = self._refs.reshape(size, self._columns, k)
        last = by_row[at[0] - 1]
        for i in range(min(k - 1, new)):  # frames of rows that were here before
            refs[i, :, :-1], refs[i, :, -1] = last[:, 1:], own[i]
            last = refs[i]
        for j in range(k if new >= k else 0):
            refs[k - 1 :, :, j] = own[j : new - k + 1 + j]
        if begins.any():
            row, column = np.nonzero(begins[old:])
            older = self._head(stacks, row + old, column, first, oldest)  # [S, k - 1]
            older = np.where(older < 0, own[row, column][:, None], older)
            for age in range(k - 2, -1, -1):  # the last word has the latest first row of an episode
                inside = row + age < new
                refs[row[inside] + age, column[inside], : k - 1 - age] = older[inside, age:]
        by_row[at] = refs

    def _head(
        self, stacks: list[np.ndarray], row: np.ndarray, column: np.ndarray, first: int, oldest: int
    ) -> np.ndarray:
        """References `[S, k - 1]` to the older frames of the first observations of episodes at `row`, `column` of a
        block; -1 stands for the newest frame, of which the older ones are copies.
        """
        picked = [stack[row, column] for stack in stacks]  # [S, k, frame]
        same = np.logical_and.reduce([(p[:, :-1] == p[:, 1:]).all(-1) for p in picked])  # [S, k - 1] as the next newer
        refs = self._last[column]  # what the column began with before, such as zeros, serves again
        held = (refs >= 0) & ~same
        held[held] = np.logical_and.reduce(
            [(heads[refs[held]] == p[:, :-1][held]).all(-1) for heads, p in zip(self._heads, picked)]
        )
        refs[~held] = -1
        which, age = np.nonzero(held)
        self._owner[refs[which, age]] = first + row[which]
        which, age = np.nonzero(~same & ~held)
        if len(which):
            places = self._places(len(which), oldest - self.leaves.count + 2)
            self._owner[places] = first + row[which]
            for heads, p in zip(self._heads, picked):
                heads[places] = p[which, age]
            refs[which, age] = places
        self._last[column] = refs
        refs[refs >= 0] += self._rows * self._columns
        for j in range(same.shape[1] - 2, -1, -1):
            refs[:, j] = np.where(same[:, j], refs[:, j + 1], refs[:, j])
        return refs

    def _places(self, need: int, limit: int) -> np.ndarray:
        """Places `[need]` for heads: those whose owner is a row before `limit`, and new ones."""
        free = np.flatnonzero(self._owner < max(0, limit))
        if len(free) < need:
            old = len(self._owner)
            size = max(16, old + old // 2, old + need - len(free))
            self._owner = lengthened(self._owner, size, fill=-1)
            self._heads = [lengthened(heads, size) for heads in self._heads]
            free = np.concatenate([free, np.arange(old, size)])
        return free[:need]

    def cut(self) -> None:
        """What is pushed next begins new episodes: the newest row that is here is none of theirs."""
        if self._ahead:
            self._ahead = self._look - 1

    # ------------------------------------------------------------------ reading
    def newest(self, row: int, columns: np.ndarray) -> Iterator[np.ndarray]:
        """The newest frames `[n, C, ...]` of a row in some columns, one array a stacked leaf."""
        shapes = (shape for shape in self.leaves.shapes if shape is not None)
        for frames, shape in zip(self._frames, shapes):
            found = frames[columns * self._rows + row]
            yield found.reshape(-1, shape[0] // self.leaves.count, *shape[1:])

    def gather_pair(
        self, rest: tuple[Any, Any], address: np.ndarray, end: np.ndarray, finals: FinalTable
    ) -> tuple[Any, Any]:
        """Observations `[n, ...]` at the flat rows `address [n]` and those after the flat rows `end [n]`; `rest` holds
        the leaves of both that are no stacks.
        """
        n, after = len(address), self._take(end + self._columns)
        hit, slots = finals.hits(end)
        if len(hit):
            after[hit, :-1] = self._take(end[hit])[:, 1:]
        found = self._restack(np.concatenate([self._take(address), after]))
        obs = self.leaves.join(rest[0], iter([f[:n] for f in found]))
        next_obs = self.leaves.join(rest[1], iter([f[n:] for f in found]))
        finals.patch(self.leaves.newest(next_obs, 1), hit, slots)
        return obs, next_obs

    def _take(self, address: np.ndarray) -> np.ndarray:
        return self._refs.take(address, 0, None, "wrap")  # [n, k]

    def _restack(self, refs: np.ndarray) -> list[np.ndarray]:
        """The stacks `[n, k * C, ...]` of references `[n, k]`, one array a stacked leaf."""
        flat, size = refs.reshape(-1), self._rows * self._columns
        head = np.flatnonzero(flat >= size)
        shapes = (shape for shape in self.leaves.shapes if shape is not None)
        out = []
        for frames, heads, shape in zip(self._frames, self._heads, shapes):
            found = frames.take(flat, 0, None, "clip")  # [n * k, frame]
            if len(head):
                found[head] = heads.take(flat[head] - size, 0)
            out.append(found.reshape(len(refs), *shape))
        return out

    # ------------------------------------------------------------------ state
    def state_dict(self, used: int) -> dict:
        """Frames and references of the first `used` rows, heads, and what is here already; refers to live memory."""
        by_column = [frames.reshape(self._columns, self._rows, -1) for frames in self._frames]
        return {
            "count": self.leaves.count,
            "shapes": list(self.leaves.shapes),
            "look": self._look,
            "ahead": self._ahead,
            "frames": [[column[:used] for column in columns] for columns in by_column],
            "refs": self._refs[: used * self._columns],
            "heads": list(self._heads),
            "owner": self._owner,
            "last": self._last,
        }

    @classmethod
    def from_state(cls, state: dict, rows: int, columns: int) -> FrameRows:
        """What `state_dict` was of."""
        made = cls(StackedLeaves(state["count"], state["shapes"]), rows, columns, state["look"])
        made._ahead = state["ahead"]
        for saved in state["frames"]:
            frames = buffer_from_example(saved[0][0], (columns, rows))
            for column, values in zip(frames, saved):
                column[: len(values)] = values
            made._frames.append(frames.reshape(columns * rows, -1))
        made._heads, made._owner = [heads.copy() for heads in state["heads"]], state["owner"].copy()
        made._refs[: len(state["refs"])], made._last = state["refs"], state["last"].copy()
        return made


def _strange(stacks: np.ndarray) -> np.ndarray:
    """Which of the stacks `[T, B, k, frame]` from the second row on are not those before moved on, `[T - 1, B]`."""
    same = stacks[1:, :, :-1] == stacks[:-1, :, 1:]
    if same.all():
        return np.zeros(same.shape[:2], bool)
    return ~same.reshape(*same.shape[:2], -1).all(-1)
