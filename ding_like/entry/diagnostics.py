"""What a run says of itself: how it spends its time, and how old the data are that it trains on."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np

from ding_like.data import ArrayDict, Block, tree_leaves
from ding_like.utils.collate import collate_items
from ding_like.worker import Replay, Rollout

CLOCK_SECTION = "rate"  # of what depends on the clock, and so differs between runs of one seed
DATA_SECTION = "data"  # of what does not
PHASES = ("collect", "learn", "evaluate", "other")
RATES_EVERY = 1.0  # seconds between records of rates, at least
ORIGIN = "origin"  # field `[N, 2]` of the items of a store that keeps any field
LOOKS = 10  # batches of a replay, for each record, of which lags and ages are looked up


class Phases:
    """Seconds by what the loop is doing; it does one thing at a time."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase, self._since = "other", time.perf_counter()

    def enter(self, phase: str) -> str:
        """From now on it does this. Returns what it did before."""
        now, former = time.perf_counter(), self._phase
        self._seconds[former] += now - self._since
        self._phase, self._since = phase, now
        return former

    def read(self) -> dict[str, float]:
        """Seconds of every phase so far."""
        self.enter(self._phase)
        return dict(self._seconds)


class Origins:
    """Of every item of a store: the gradient step whose parameters it was collected with, and the env step at which it
    was stored.

    Items of one push have one origin. A replay's are kept in a table by row of its ring, into which a list of newer
    pushes goes from time to time (`settle`): rows that were overwritten since they were drawn are still known.

    Args:
        store: a replay or a rollout, or one that `keeps_origin`: gets it as a field. Of any other, nothing is known.
    """

    def __init__(self, store: Any) -> None:
        self.known = isinstance(store, Replay | Rollout)
        self._store = store
        self._ring = store.ring if isinstance(store, Replay) else None
        self._pushed = 0  # items of a rollout so far, whose serial numbers go on from one rollout to the next
        self._fresh: list[tuple[int, int, int]] = []  # first row, gradient step, env step of pushes not in the table
        self._table: np.ndarray | None = None  # [R, 2]
        self._settled = 0  # rows below are in the table

    def push(self, items: Any, train_iter: int, envstep: int) -> int:
        """Put items into the store, which came of this gradient step's parameters. Returns what the store returns."""
        if getattr(self._store, "keeps_origin", False):
            return self._store.push(_stamped(items, train_iter, envstep))
        if self._ring is None:
            before = self._store.count if self.known else 0
            count = self._store.push(items)
            if self.known and self._store.count > before:
                self._fresh.append((self._pushed, train_iter, envstep))
                self._pushed += self._store.count - before
            return count
        before = self._ring.end
        count = self._store.push(items)
        if self._ring.end > before:
            self._fresh.append((before // self._ring.columns, train_iter, envstep))
        return count

    @property
    def base(self) -> int:
        """What the `index` of the batches that the store is about to give starts from."""
        return self._pushed - self._store.count if self._ring is None and self.known else 0

    @property
    def common(self) -> tuple[int, int] | None:
        """Gradient step and env step of all items that wait in a rollout; None where they differ, and of a replay."""
        if self._ring is not None or not self.known:
            return None
        found, base = set(), self.base
        for first, train_iter, envstep in reversed(self._fresh):
            if first < base:
                break
            found.add((train_iter, envstep))
        return found.pop() if len(found) == 1 else None

    @property
    def sampled(self) -> bool:
        """Whether batches are so many random draws that some stand for all."""
        return self._ring is not None

    def find(self, serial: np.ndarray) -> np.ndarray:
        """Gradient step and env step `[n, 2]` of the items with these serial numbers `[n]`."""
        return self._find(serial if self._ring is None else serial // self._ring.columns)

    def _find(self, row: np.ndarray) -> np.ndarray:
        if self._table is not None and not self._fresh:
            return self._table.take(row % len(self._table), 0)
        fresh = np.array(self._fresh, np.int64).reshape(-1, 3)
        found = fresh[np.searchsorted(fresh[:, 0], row, "right") - 1, 1:]
        if self._table is not None and len(old := np.flatnonzero(row < self._settled)):
            found[old] = self._table.take(row[old] % len(self._table), 0)
        return found

    def settle(self) -> None:
        """Put the newer pushes into the table; none of a rollout that was trained on is asked for again."""
        if self._ring is None:
            if self.known and not self._store.count:
                self._fresh.clear()
            return
        if not self._fresh:
            return
        rows, end = self._ring.places // self._ring.columns, self._ring.end // self._ring.columns
        new = np.arange(max(self._settled, end - rows), end)
        found = self._find(new)
        if self._table is None:
            self._table = np.zeros((rows, 2), np.int64)
        self._table[new % rows] = found
        self._settled = end
        self._fresh.clear()

    def state_dict(self) -> dict[str, Any]:
        """The table as far as it was written, and counters; refers to live memory."""
        self.settle()
        table = self._table
        return {
            "pushed": self._pushed,
            "fresh": [list(push) for push in self._fresh],
            "table": None if table is None else table[: self._settled],
            "rows": 0 if table is None else len(table),
            "settled": self._settled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._pushed, self._settled = state["pushed"], state["settled"]
        self._fresh = [(first, train_iter, envstep) for first, train_iter, envstep in state["fresh"]]
        self._table = None
        if state["table"] is not None:
            self._table = np.zeros((state["rows"], 2), np.int64)
            self._table[: len(state["table"])] = state["table"]


class Diagnostics:
    """Logs, beside what the learner logs, a record of rates and one of the data.

    Section `rate` depends on the clock: env steps and updates a second, the shares of the wall time, busy shares of the
    workers. Section `data` does not:

    `lag`, `lag_max`: gradient steps by which the parameters were behind with which the items trained on were collected,
    mean and largest; `lag_p50`, `lag_p90`, `lag_p99`: not exceeded by so many of a hundred items;
    `age`: env steps since these items were stored;
    `replay_ratio`, `replay_ratio_now`: items trained on for each env step, in the run and since the last record.

    A window of a recurrent policy is one item, and as old as its last step. Of a replay, lag and age are those of some
    batches, spread evenly. Rates are logged once a second at most, and at the end.

    Args:
        parts: of the run: collector and store.
        learner: counts gradient steps.
    """

    def __init__(self, parts: Any, learner: Any) -> None:
        self.phases = Phases()
        self._collector, self._learner = parts.collector, learner
        self._origins = Origins(parts.store)
        self._begun_at: int | None = None  # gradient step of the parameters of a block that was begun ahead
        self._base, self._common = 0, self._origins.common
        self._stride = max(1, learner.log_freq // LOOKS) if self._origins.sampled else 1
        self._drawn: list[tuple[np.ndarray, int, int, int]] = []  # index, base, gradient step, env step of batches
        self._lags: Counter[int] = Counter()  # items by lag
        self._ages = 0  # of all of them: whole numbers, so that it does not matter when they are added up
        self._trained = 0
        self._logged_at = 0
        self._logged = [0, 0]  # items trained on and env steps by then
        self._mark = self._now()

    # ------------------------------------------------------------------ what the loop tells
    def collecting(self) -> None:
        """The collector is about to be asked for items."""
        self.phases.enter("collect")
        self._collector.train_iter = self._learner.train_iter

    def push(self, items: Any) -> int:
        """The collector's sink: into the store."""
        train_iter = self._learner.train_iter if self._begun_at is None else self._begun_at
        self._begun_at = None  # of a collect, the first block alone can have been begun ahead
        train_iter = getattr(self._collector, "acted_at", train_iter)
        return self._origins.push(items, train_iter, self._collector.envstep)

    def ahead(self) -> None:
        """A block is about to be begun, with the parameters as they are now, for the next round."""
        self._begun_at = self._learner.train_iter

    def before_batches(self) -> None:
        """The store is about to be asked for batches."""
        if self._drawn and not self._origins.sampled:
            self._measure()
        self._base, self._common = self._origins.base, self._origins.common

    def note(self, batch: Any) -> None:
        """This batch is about to be trained on; what stands in it of where its items are from is taken out."""
        origin = batch.pop(ORIGIN, None)
        index, train_iter = batch.get("index"), self._learner.train_iter
        count = len(tree_leaves(batch)[0] if index is None else index)
        self._trained += count
        if origin is not None:
            self._add(train_iter - origin[:, 0], int((self._collector.envstep - origin[:, 1]).sum()))
            return
        if index is None or not self._origins.known or train_iter % self._stride:
            return
        if self._common is None:
            self._drawn.append((index, self._base, train_iter, self._collector.envstep))
        else:
            lag, age = train_iter - self._common[0], self._collector.envstep - self._common[1]
            self._add(np.full(count, lag), count * age)

    def _add(self, lags: np.ndarray, ages: int) -> None:
        values, counts = np.unique(lags, return_counts=True)
        self._lags.update(dict(zip(values.tolist(), counts.tolist())))
        self._ages += ages

    def _measure(self) -> None:
        """Add up lags and ages of the batches noted since."""
        if not self._drawn:
            return
        serial = np.concatenate([index for index, *_ in self._drawn])
        base, *now = np.array([entry[1:] for entry in self._drawn]).T.repeat([len(e[0]) for e in self._drawn], axis=1)
        lag, age = np.stack(now) - self._origins.find(serial + base).T
        self._add(lag, int(age.sum()))
        self._drawn = []

    # ------------------------------------------------------------------ what it says
    def log(self, logger: Any) -> None:
        """Log what is due, to be called at the end of a round."""
        train_iter, envstep = self._learner.train_iter, self._collector.envstep
        if train_iter - self._logged_at < self._learner.log_freq:
            return
        logger.log(self._data(), envstep, train_iter, section=DATA_SECTION)
        self._origins.settle()
        self._logged_at, self._logged = train_iter, [self._trained, envstep]
        self._lags, self._ages = Counter(), 0
        if time.perf_counter() - self._mark["time"] >= RATES_EVERY:
            self.log_rates(logger)

    def log_rates(self, logger: Any) -> None:
        """Log the rates since they were logged last."""
        mark, self._mark = self._mark, self._now()
        if self._mark["train_iter"] > mark["train_iter"]:
            logger.log(_rates(mark, self._mark), self._mark["envstep"], self._mark["train_iter"], section=CLOCK_SECTION)

    def _data(self) -> dict[str, float]:
        self._measure()
        items, found = self._lags.total(), {}
        if items:
            lags, counts = np.array(sorted(self._lags.items())).T
            found = {"lag": float(lags @ counts) / items, "lag_max": int(lags[-1]), "age": self._ages / items}
            below = counts.cumsum()
            found |= {f"lag_p{p}": int(lags[np.searchsorted(below, p * items / 100)]) for p in (50, 90, 99)}
        trained, envstep = self._logged
        found["replay_ratio"] = _ratio(self._trained, self._collector.envstep)
        found["replay_ratio_now"] = _ratio(self._trained - trained, self._collector.envstep - envstep)
        return found

    def _now(self) -> dict[str, Any]:
        collector = self._collector
        return {
            "time": time.perf_counter(),
            "envstep": collector.envstep,
            "train_iter": self._learner.train_iter,
            "wait": collector.waited,
            "busy": np.array(collector.busy),
            **self.phases.read(),
        }

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict[str, Any]:
        """All that does not depend on the clock."""
        self._measure()
        return {
            "origins": self._origins.state_dict(),
            "begun_at": self._begun_at,
            "lags": dict(self._lags),
            "ages": self._ages,
            "trained": self._trained,
            "logged": [self._logged_at, *self._logged],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`; the first rates are those since now. Collector and learner are restored already."""
        self._origins.load_state_dict(state["origins"])
        self._begun_at, self._trained = state["begun_at"], state["trained"]
        self._lags, self._ages = Counter(state["lags"]), state["ages"]
        self._logged_at, *self._logged = state["logged"]
        self._mark = self._now()


def _stamped(items: Any, train_iter: int, envstep: int) -> ArrayDict:
    """The same items with a field `origin`."""
    if isinstance(items, list):
        items = collate_items(items)
    items = items.flat() if isinstance(items, Block) else ArrayDict(items)
    items[ORIGIN] = np.tile((train_iter, envstep), (len(tree_leaves(items)[0]), 1))  # [N, 2]
    return items


def _rates(mark: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    """The record of section `rate` between two moments."""
    seconds = {phase: now[phase] - mark[phase] for phase in PHASES}
    wall, wait, busy = sum(seconds.values()), now["wait"] - mark["wait"], now["busy"] - mark["busy"]
    envsteps, updates = now["envstep"] - mark["envstep"], now["train_iter"] - mark["train_iter"]
    collecting = max(seconds["collect"], busy.max(initial=0.0))  # workers may collect beside the learner
    return {
        "envstep_per_s": _ratio(envsteps, wall),
        "collect_envstep_per_s": _ratio(envsteps, collecting),
        "learn_iter_per_s": _ratio(updates, seconds["learn"]),
        "collect_share": _ratio(seconds["collect"] - wait, wall),
        "wait_share": _ratio(wait, wall),
        "learn_share": _ratio(seconds["learn"], wall),
        "evaluate_share": _ratio(seconds["evaluate"], wall),
        **{f"worker_{number}_busy": _ratio(one, wall) for number, one in enumerate(busy)},
    }


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
