"""The training episodes of a run: how many, and the statistics of the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

EPISODES = 100  # the statistics are of the last so many, of each task
KEYS = {"return": "return_", "return_raw": "return_raw", "length": "length"}  # as logged: as env managers tell


class EpisodeLog:
    """Counts the episodes that ended and keeps the last (at most 100) of each task.

    Args:
        tasks: names of several tasks; env column b runs number `b % len(tasks)`.
    """

    def __init__(self, tasks: Sequence[str] = ()) -> None:
        self._tasks = tuple(tasks)
        self.count = 0
        self._kept: list[deque[Any]] = [deque() for _ in self._tasks or ("",)]  # of sequences, made when looked at

    def add(self, finished: Any) -> None:
        """Book a sequence of episodes, as `take_finished` gives them."""
        self.count += len(finished)
        for i, kept in enumerate(self._kept):
            own = [e for e in finished if e["column"] % len(self._kept) == i] if self._tasks else finished
            if len(own):
                kept.append(own)
            while sum(map(len, kept)) - len(kept[0] if kept else ()) >= EPISODES:
                kept.popleft()

    def last(self) -> list[list[dict]]:
        """The last episodes, of each task."""
        return [[episode for some in kept for episode in some[-EPISODES:]][-EPISODES:] for kept in self._kept]

    def statistics(self) -> dict[str, float]:
        """Means of returns and lengths: `return/<task>` and the like of each task that ended an episode, `return` over
        these tasks; empty before the first ends.
        """
        found: dict[str, float] = {}
        kept = self.last()
        for key, field in KEYS.items():
            means = [float(np.mean([e[field] for e in some])) if some else None for some in kept]
            if ended := [mean for mean in means if mean is not None]:
                found[key] = float(np.mean(ended))
            found |= {f"{key}/{name}": mean for name, mean in zip(self._tasks, means) if mean is not None}
        return {**found, "episodes": self.count} if found else {}

    def state_dict(self) -> dict[str, Any]:
        """The count and the episodes, as plain types."""
        keys = ("column", *KEYS.values())
        return {"count": self.count, "last": [[{key: e[key] for key in keys} for e in some] for some in self.last()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self.count = state["count"]
        self._kept = [deque([some] if some else []) for some in state["last"]]
