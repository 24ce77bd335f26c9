"""The plain ring: preallocated rows `[R, B]` written in place, each observation kept once.

An item's next observation is the row `hop` further in the same column, or, where an episode ended in between, an entry
of the final-observation table. The `look` rows past the write cursor hold the observations the newest items bootstrap
from; R = capacity rows + look, so they never touch a valid item.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, buffer_from_example, tree_index, tree_leaves, tree_map

NONE = np.empty(0, np.int64)


class FinalTable:
    """Final observations in reusable slots; grows by doubling, so its memory is flat once the ring is full."""

    def __init__(self, rows: int, columns: int, example: Any) -> None:
        self.slot = np.full(rows * columns, -1, np.int32)
        self._free = np.empty(0, np.int32)  # a stack of the slots not in use, its top at `_free_count`
        self._free_count = 0
        self._values: Any = buffer_from_example(example, 0)

    @property
    def empty(self) -> bool:
        """Whether it holds nothing."""
        return self._free_count == len(self._free)

    def clear(self, start: int, stop: int) -> None:
        """Forget the entries of flat rows `[start, stop)`."""
        span = self.slot[start:stop]
        old = span[span >= 0]
        if old.size:
            self._free[self._free_count : self._free_count + old.size] = old
            self._free_count += old.size
            span[:] = -1

    def put(self, index: np.ndarray, obs: Any) -> None:
        """Keep `obs [K, ...]` as the final observations of the flat rows `index [K]`."""
        while self._free_count < len(index):
            self._grow()
        left = self._free_count - len(index)
        slots = self._free[left : self._free_count][::-1]
        self._free_count = left
        self.slot[index] = slots
        tree_map(lambda to, value: to.__setitem__(slots, value), self._values, obs)

    def patch(self, out: Any, rows: np.ndarray) -> None:
        """Overwrite those entries of `out [n]` whose flat row in `rows [n]` ended an episode."""
        if self.empty:
            return
        slots = self.slot.take(rows, mode="wrap")
        if np.maximum.reduce(slots) >= 0:
            hit = (slots >= 0).nonzero()[0]
            chosen = slots[hit]
            tree_map(lambda to, value: to.__setitem__(hit, value.take(chosen, 0)), out, self._values)

    def _grow(self) -> None:
        old = len(self._free)
        size = max(16, old + old // 2)
        self._values = tree_map(lambda a: _lengthened(a, size), self._values)
        count, self._free = self._free_count, _lengthened(self._free, size)
        self._free[count : count + size - old] = np.arange(size - 1, old - 1, -1)
        self._free_count = count + size - old

    def state_dict(self, used: int) -> dict:
        """Slots of the first `used` flat rows, free slots and values; refers to live memory."""
        return {
            "slot": self.slot[:used],
            "free": self._free[: self._free_count],
            "values": _plain(self._values),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict` in a new table."""
        self.slot[: len(state["slot"])] = state["slot"]
        self._values = _copied(state["values"])
        self._free_count = len(state["free"])
        self._free = _lengthened(state["free"], len(tree_leaves(self._values)[0]))


class Ring:
    """Rows of items by time and env column.

    Args:
        size: rows times columns kept at least; rounded up to whole rows. Those that are no transition count.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"replay_buffer_size is {size}; wanted at least 1")
        self.size = size
        self.columns = 0
        self._fields: dict[str, Any] = {}  # [R, B, ...]
        self._flat: dict[str, Any] = {}  # the same memory as [R * B, ...]
        self._finals: FinalTable | None = None
        self._hop: np.ndarray | None = None  # [R * B], None where every distance is 1
        self._real: np.ndarray | None = None  # [R, B]: which rows are transitions; None where all are
        self._idle = 0  # valid rows that are none
        self._rows = self._capacity = self._look = 0
        self._written = 0  # rows written so far, of which the newest `_filled` are valid
        self._filled = 0

    @property
    def _cursor(self) -> int:
        """Row the next item goes to."""
        return self._written % self._rows if self._rows else 0

    @property
    def first(self) -> int:
        """Serial number of the oldest item. Items (and rows that are none) are numbered as they come."""
        return (self._written - self._filled) * self.columns

    @property
    def end(self) -> int:
        """Serial number that the next item gets."""
        return self._written * self.columns

    @property
    def places(self) -> int:
        """Addresses there are; an item's is its serial number modulo this."""
        return self._rows * self.columns

    @property
    def count(self) -> int:
        """Valid items."""
        return self._filled * self.columns - self._idle

    @property
    def full(self) -> bool:
        """Whether a push overwrites the oldest rows."""
        return 0 < self._capacity == self._filled

    @property
    def slots(self) -> int:
        """Serial numbers in use, from `first` on: the valid items and, between them, rows that are no transition."""
        return self._filled * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of item storage, the final-observation table included."""
        arrays = tree_leaves(self._fields) + ([self._hop] if self._hop is not None else [])
        if self._finals is not None:
            arrays += [self._finals.slot, *tree_leaves(self._finals._values)]
        return sum(a.nbytes for a in arrays)

    # ------------------------------------------------------------------ writing
    def push(self, items: Any) -> int:
        """Append a `Block` (its first `starts` rows) or a tree `[N, ...]`. Returns the number of items.

        Rows of a block whose `mask` is 0 take a place, but are no items.

        Raises ValueError when one push is larger than the ring.
        """
        if not isinstance(items, Block):
            return self._push_flat(items)
        link = items.link if items.linked else None
        if not self._fields:
            self._allocate(items if link or "next_obs" not in items else _with_next(items), link, items.starts)
        if link is None and self._finals is not None:
            raise ValueError(
                "the policy's _get_train_sample replaced obs or next_obs of this block but not of earlier ones; the "
                "replay buffer keeps one layout, so do it for every block or for none"
            )
        rows = items.starts
        if rows > self._capacity:
            raise ValueError(
                f"one collect brings {rows * self.columns} items and other.replay_buffer.replay_buffer_size is "
                f"{self.size}; raise it or lower collect.n_sample"
            )
        spans = self._spans(self._cursor, rows)
        idle = 0 if self._real is None else self._push_mask(items["mask"][:rows], spans)
        for name, field in self._fields.items():
            if name != "obs" or self._finals is None:
                _write(field, spans, items[name])
        if self._finals is not None:
            self._push_link(link, rows, spans)
        self._written += rows
        self._filled = min(self._filled + rows, self._capacity)
        return rows * self.columns - idle

    def _push_mask(self, mask: np.ndarray, spans: list) -> int:
        """Note which of the rows about to be written are transitions; returns how many are none."""
        assert self._real is not None
        leaving = max(0, self._filled + len(mask) - self._capacity)
        for start, stop, _ in self._spans((self._cursor - self._filled) % self._rows, leaving):
            gone = self._real[start:stop]
            self._idle -= gone.size - int(np.count_nonzero(gone))
        real = mask > 0
        _write(self._real, spans, real)
        idle = real.size - int(np.count_nonzero(real))
        self._idle += idle
        return idle

    def _push_link(self, link: Any, rows: int, spans: list) -> None:
        total = rows + self._look
        assert self._finals is not None
        _write(self._fields["obs"], self._spans(self._cursor, total), link.rows)
        if self._hop is not None:
            _write(self._hop.reshape(self._rows, self.columns), spans, link.hop)
        b = self.columns
        if not self._finals.empty:
            for start, stop, _ in self._spans(self._cursor, total - 1):
                self._finals.clear(start * b, stop * b)
        inside = int(np.searchsorted(link.ends, (total - 1) * b))
        if inside:
            rows_of, columns = np.divmod(link.ends[:inside], b)
            at = (self._cursor + rows_of) % self._rows * b + columns
            self._finals.put(at, tree_index(link.finals, slice(inside)))

    def _push_flat(self, items: Any) -> int:
        items = ArrayDict({k: v for k, v in items.items() if v is not None})
        n = len(tree_leaves(items)[0])
        if not self._fields:
            self._allocate(tree_map(lambda a: np.asarray(a)[:, None], items))
        if self.columns != 1 or self._finals is not None:
            raise ValueError(
                f"the replay buffer holds blocks of {self.columns} env columns, this push is a flat tree of {n} items; "
                "_get_train_sample must return one of the two, always the same"
            )
        for start in range(0, n, self._capacity):
            part = tree_map(lambda a, s=start: np.asarray(a)[s : s + self._capacity, None], items)
            rows = min(self._capacity, n - start)
            spans = self._spans(self._cursor, rows)
            for name, value in part.items():
                _write(self._fields[name], spans, value)
            self._written += rows
            self._filled = min(self._filled + rows, self._capacity)
        return n

    def cut(self) -> None:
        """The newest row ends every episode that is open there: whatever is pushed next, items keep their `next_obs`.

        For envs that start anew after a resume. The look-ahead row, which the next push overwrites, goes to the
        final-observation table. With more of them (n-step items) there is nothing to do: a collector starts with the
        rows that wait for their future, cut, and the first of them is the look-ahead row as it was.
        """
        if self._finals is None or self._look != 1 or not self._written:
            return
        rows = (self._written - 1) % self._rows * self.columns + np.arange(self.columns)
        column = np.flatnonzero(self._finals.slot[rows] < 0)
        if len(column):
            self._finals.put(rows[column], tree_index(self._fields["obs"], (self._cursor, column)))

    def _allocate(self, items: ArrayDict, link: Any = None, starts: int = 0) -> None:
        self.columns = tree_leaves(items)[0].shape[1]
        self._capacity = -(-self.size // self.columns)
        self._look = 0 if link is None else len(tree_leaves(link.rows)[0]) - starts
        self._rows = self._capacity + self._look
        lead = (self._rows, self.columns)
        self._fields = {
            name: buffer_from_example(tree_index(value, (0, 0)), lead)
            for name, value in dict.items(items)
            if value is not None
        }
        if "mask" in self._fields and isinstance(items, Block):
            del self._fields["mask"]
            self._real = np.ones(lead, bool)
        if link is not None:
            self._finals = FinalTable(*lead, tree_index(link.rows, (0, 0)))
            if link.hop is not None:
                self._hop = np.ones(self._rows * self.columns, np.int64)
        self._view()

    def _view(self) -> None:
        self._flat = tree_map(lambda a: a.reshape((-1,) + a.shape[2:]), self._fields)

    def _spans(self, start: int, rows: int) -> list[tuple[int, int, slice]]:
        """Where `rows` rows from `start` lie: (first row, end row, the part of the source), split at the wrap."""
        end = start + rows
        if end <= self._rows:
            return [(start, end, slice(0, rows))]
        head = self._rows - start
        return [(start, self._rows, slice(0, head)), (0, rows - head, slice(head, rows))]

    # ------------------------------------------------------------------ reading
    def address(self, index: np.ndarray) -> np.ndarray:
        """Flat rows of the items with these serial numbers `[n]`."""
        return index if self._written <= self._rows else index % self.places

    def serial(self, address: np.ndarray) -> np.ndarray:
        """Serial numbers of the items at flat rows `address [n]`."""
        if self._written <= self._rows:
            return address
        lap = self.end - self.end % self.places  # that of row 0, in this lap
        return address + (lap - self.places * (address >= self.end - lap))

    def idle(self, index: np.ndarray) -> np.ndarray:
        """Positions in `index [n]` (serial numbers) of rows that are no transition."""
        if self._real is None:
            return NONE
        return np.flatnonzero(~self._real.reshape(-1).take(self.address(index), mode="wrap"))

    def gather(self, index: np.ndarray) -> ArrayDict:
        """Items with the serial numbers `index [n]`, as fresh numpy fields `[n, ...]`, with `next_obs`."""
        address = self.address(index)
        out = {
            name: value.take(address, 0, None, "wrap") if type(value) is np.ndarray else _take(value, address)
            for name, value in self._flat.items()
        }
        if self._finals is not None:
            b = self.columns
            end = address if self._hop is None else address + (self._hop.take(address) - 1) * b
            out["next_obs"] = _take(self._flat["obs"], end + b)
            self._finals.patch(out["next_obs"], end)
        return ArrayDict(out)

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict:
        """The rows written so far and the counters; refers to live memory."""
        used = min(self._written + self._look, self._rows)
        flat = used * self.columns
        return {
            "fields": {name: _plain(tree_index(field, slice(used))) for name, field in self._fields.items()},
            "finals": None if self._finals is None else self._finals.state_dict(flat),
            "hop": None if self._hop is None else self._hop[:flat],
            "real": None if self._real is None else self._real[:used],
            "idle": self._idle,
            "layout": [self.size, self.columns, self._rows, self._capacity, self._look],
            "rows": [self._written, self._filled],
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises ValueError for a state of another size."""
        if state["layout"][0] != self.size:
            raise ValueError(f"the saved replay buffer has size {state['layout'][0]}, this one {self.size}")
        _, self.columns, self._rows, self._capacity, self._look = state["layout"]
        self._written, self._filled = state["rows"]
        self._fields = {name: _copied(field, self._rows) for name, field in state["fields"].items()}
        flat = self._rows * self.columns
        self._hop = None if state["hop"] is None else _lengthened(state["hop"], flat, fill=1)
        self._real = None if state["real"] is None else _lengthened(state["real"], self._rows, fill=1)
        self._idle = state["idle"]
        self._finals = None
        if state["finals"] is not None:
            self._finals = FinalTable(self._rows, self.columns, tree_index(self._fields["obs"], (0, 0)))
            self._finals.load_state_dict(state["finals"])
        self._view()


def _plain(tree: Any) -> Any:
    """The same arrays in plain dictionaries and tuples."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in dict.items(tree)}
    return tuple(map(_plain, tree)) if type(tree) is tuple else tree


def _copied(tree: Any, length: int | None = None) -> Any:
    """A copy of what `_plain` made, its arrays lengthened to `length`, with `ArrayDict` for its dictionaries."""
    if isinstance(tree, dict):
        return ArrayDict({name: _copied(value, length) for name, value in tree.items()})
    if type(tree) is tuple:
        return tuple(_copied(value, length) for value in tree)
    return tree_map(lambda a: _lengthened(a, len(a) if length is None else length), tree)


def _lengthened(array: np.ndarray, length: int, fill: int = 0) -> np.ndarray:
    """A copy that goes on with `fill` to `length` rows."""
    new = np.zeros((length,) + array.shape[1:], array.dtype)
    new[: len(array)] = array
    if fill:
        new[len(array) :] = fill
    return new


def _with_next(items: Block) -> Block:
    return Block({**dict(items.items()), "next_obs": items["next_obs"]}, items.starts)


def _write(field: Any, spans: list[tuple[int, int, slice]], value: Any) -> None:
    if type(field) is np.ndarray:
        for start, stop, part in spans:
            field[start:stop] = value[part]
    else:
        tree_map(lambda to, source: _write(to, spans, source), field, value)


def _take(value: Any, address: np.ndarray) -> Any:
    """Rows at `address`, which may run past the end by less than one round."""
    if type(value) is np.ndarray:
        return value.take(address, 0, None, "wrap")
    return tree_map(lambda a: a.take(address, 0, mode="wrap"), value)
