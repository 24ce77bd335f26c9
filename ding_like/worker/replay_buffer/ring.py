"""The plain ring: preallocated rows `[R, B]` written in place, each observation kept once.

An item's next observation is the row `hop` further in the same column, or, where an episode ended in between, an entry
of the final-observation table. The `look` rows past the write cursor hold the observations the newest items bootstrap
from; R = capacity rows + look, so they never touch a valid item. With stacked frames (`frame_ring`) k - 1 rows more
keep the older frames of the oldest items.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, RowLink, buffer_from_example, tree_index, tree_leaves, tree_map
from ding_like.worker.replay_buffer.finals import FinalTable
from ding_like.worker.replay_buffer.frame_ring import FrameRows, StackedLeaves
from ding_like.worker.replay_buffer.storage import Spans, copied, lengthened, plain, spans, take, write

NONE = np.empty(0, np.int64)


class Ring:
    """Rows of items by time and env column.

    Args:
        size: rows times columns kept at least; rounded up to whole rows. Those that are no transition count.
        frame_stack: observations are stacks of so many frames, kept once each (`frame_ring`); None keeps them whole.
    """

    def __init__(self, size: int, frame_stack: int | None = None) -> None:
        if size < 1:
            raise ValueError(f"replay_buffer_size is {size}; wanted at least 1")
        self.size = size
        self.columns = 0
        self._fields: dict[str, Any] = {}  # [R, B, ...]
        self._flat: dict[str, Any] = {}  # the same memory as [R * B, ...]
        self._finals: FinalTable | None = None
        self._stack = frame_stack
        self._frames: FrameRows | None = None  # stacked frames of the observations, which `_fields` then lacks
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
        apart = [part.nbytes for part in (self._finals, self._frames) if part is not None]
        return sum(a.nbytes for a in arrays) + sum(apart)

    # ------------------------------------------------------------------ writing
    def push(self, items: Any) -> int:
        """Append a `Block` (its first `starts` rows) or a tree `[N, ...]`. Returns the number of items.

        Rows of a block whose `mask` is 0 take a place, but are no items.

        Raises ValueError when one push is larger than the ring.
        """
        if not isinstance(items, Block):
            return self._push_flat(items)
        link = items.link if items.linked else None
        if link is None and self._stack is not None:
            raise ValueError(
                f"policy.other.replay_buffer.frame_stack is {self._stack}, but the policy stores other observations "
                "than those of the env (_process_transition or _get_train_sample replaced obs or next_obs), whose "
                "frames cannot be kept once; keep the env's own, or set it to None"
            )
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
        where = spans(self._cursor, rows, self._rows)
        idle = 0 if self._real is None else self._push_mask(items["mask"][:rows], where)
        for name, field in self._fields.items():
            if name != "obs" or self._finals is None:
                write(field, where, items[name])
        if link is not None and self._finals is not None:
            self._push_link(items, link, where)
        self._written += rows
        self._filled = min(self._filled + rows, self._capacity)
        return rows * self.columns - idle

    def _push_mask(self, mask: np.ndarray, where: Spans) -> int:
        """Note which of the rows about to be written are transitions; returns how many are none."""
        assert self._real is not None
        leaving = max(0, self._filled + len(mask) - self._capacity)
        for start, stop, _ in spans((self._cursor - self._filled) % self._rows, leaving, self._rows):
            gone = self._real[start:stop]
            self._idle -= gone.size - int(np.count_nonzero(gone))
        real = mask > 0
        write(self._real, where, real)
        idle = real.size - int(np.count_nonzero(real))
        self._idle += idle
        return idle

    def _push_link(self, items: Block, link: RowLink, where: Spans) -> None:
        assert self._finals is not None
        rows = items.starts
        total = rows + self._look
        obs, finals = link.rows, link.finals
        if self._frames is not None:
            idle = None if self._real is None else items["mask"] <= 0
            oldest = self._written - min(self._filled, self._capacity - rows)
            self._frames.push(link, idle, self._written, oldest)
            obs, finals = self._frames.leaves.rest(obs), self._frames.leaves.newest(finals, 1)
        write(self._fields["obs"], spans(self._cursor, total, self._rows), obs)
        if self._hop is not None:
            write(self._hop.reshape(self._rows, self.columns), where, link.hop)
        b = self.columns
        if not self._finals.empty:
            for start, stop, _ in spans(self._cursor, total - 1, self._rows):
                self._finals.clear(start * b, stop * b)
        inside = int(np.searchsorted(link.ends, (total - 1) * b))
        if inside:
            rows_of, columns = np.divmod(link.ends[:inside], b)
            at = (self._cursor + rows_of) % self._rows * b + columns
            self._finals.put(at, tree_index(finals, slice(inside)))

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
            where = spans(self._cursor, rows, self._rows)
            for name, value in part.items():
                write(self._fields[name], where, value)
            self._written += rows
            self._filled = min(self._filled + rows, self._capacity)
        return n

    def cut(self) -> None:
        """The newest row ends every episode that is open there: whatever is pushed next, items keep their `next_obs`.

        For envs that start anew after a resume. The look-ahead row, which the next push overwrites, goes to the
        final-observation table. With more of them (n-step items) there is nothing to do: a collector starts with the
        rows that wait for their future, cut, and the first of them is the look-ahead row as it was.
        """
        if self._finals is None or not self._written:
            return
        if self._look == 1:
            rows = (self._written - 1) % self._rows * self.columns + np.arange(self.columns)
            column = np.flatnonzero(self._finals.slot[rows] < 0)
            if len(column):
                obs = tree_index(self._fields["obs"], (self._cursor, column))
                if self._frames is not None:
                    obs = self._frames.leaves.join(obs, self._frames.newest(self._cursor, column))
                self._finals.put(rows[column], obs)
        if self._frames is not None:
            self._frames.cut()

    def _allocate(self, items: ArrayDict, link: Any = None, starts: int = 0) -> None:
        self.columns = tree_leaves(items)[0].shape[1]
        self._capacity = -(-self.size // self.columns)
        self._look = 0 if link is None else len(tree_leaves(link.rows)[0]) - starts
        self._rows = self._capacity + self._look
        examples = {name: tree_index(value, (0, 0)) for name, value in dict.items(items) if value is not None}
        newest = examples.get("obs")
        if link is not None and self._stack is not None:
            leaves = StackedLeaves.of(self._stack, newest)
            self._rows += self._stack - 1  # frames of the oldest item
            self._frames = FrameRows(leaves, self._rows, self.columns, self._look)
            newest, examples["obs"] = leaves.newest(newest, 0), leaves.rest(newest)
        lead = (self._rows, self.columns)
        self._fields = {name: buffer_from_example(example, lead) for name, example in examples.items()}
        if "mask" in self._fields and isinstance(items, Block):
            del self._fields["mask"]
            self._real = np.ones(lead, bool)
        if link is not None:
            self._finals = FinalTable(*lead, newest)
            if link.hop is not None:
                self._hop = np.ones(self._rows * self.columns, np.int64)
        self._view()

    def _view(self) -> None:
        self._flat = tree_map(lambda a: a.reshape((-1,) + a.shape[2:]), self._fields)

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
            name: value.take(address, 0, None, "wrap") if type(value) is np.ndarray else take(value, address)
            for name, value in self._flat.items()
        }
        if self._finals is not None:
            b = self.columns
            end = address if self._hop is None else address + (self._hop.take(address) - 1) * b
            out["next_obs"] = take(self._flat["obs"], end + b)
            if self._frames is None:
                self._finals.patch(out["next_obs"], *self._finals.hits(end))
            else:
                rest = out["obs"], out["next_obs"]
                out["obs"], out["next_obs"] = self._frames.gather_pair(rest, address, end, self._finals)
        return ArrayDict(out)

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict:
        """The rows written so far and the counters; refers to live memory."""
        used = min(self._written + self._look, self._rows)
        flat = used * self.columns
        return {
            "fields": {name: plain(tree_index(field, slice(used))) for name, field in self._fields.items()},
            "finals": None if self._finals is None else self._finals.state_dict(flat),
            "frames": None if self._frames is None else self._frames.state_dict(used),
            "hop": None if self._hop is None else self._hop[:flat],
            "real": None if self._real is None else self._real[:used],
            "idle": self._idle,
            "frame_stack": self._stack,
            "layout": [self.size, self.columns, self._rows, self._capacity, self._look],
            "rows": [self._written, self._filled],
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`. Raises ValueError for a state of another size, or of other stacks."""
        if state["layout"][0] != self.size:
            raise ValueError(f"the saved replay buffer has size {state['layout'][0]}, this one {self.size}")
        if state["frame_stack"] != self._stack:
            raise ValueError(
                f"the saved replay buffer is of a run with other.replay_buffer.frame_stack={state['frame_stack']}, "
                f"this one of a run with {self._stack}"
            )
        _, self.columns, self._rows, self._capacity, self._look = state["layout"]
        self._written, self._filled = state["rows"]
        self._fields = {name: copied(field, self._rows) for name, field in state["fields"].items()}
        flat = self._rows * self.columns
        self._hop = None if state["hop"] is None else lengthened(state["hop"], flat, fill=1)
        self._real = None if state["real"] is None else lengthened(state["real"], self._rows, fill=1)
        self._idle = state["idle"]
        self._finals = None
        if state["finals"] is not None:
            self._finals = FinalTable(self._rows, self.columns, None)
            self._finals.load_state_dict(state["finals"])
        self._frames = None
        if state["frames"] is not None:
            self._frames = FrameRows.from_state(state["frames"], self._rows, self.columns)
        self._view()


def _with_next(items: Block) -> Block:
    return Block({**dict(items.items()), "next_obs": items["next_obs"]}, items.starts)
