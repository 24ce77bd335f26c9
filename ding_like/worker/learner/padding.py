"""Says where a loss trains on padding unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ding_like.data import ArrayDict
from ding_like.utils.log import warn_once


class WatchedBatch(ArrayDict):
    """A batch that notes which fields are read of it, or of what trees are made from it."""

    reads: ClassVar[set[str]] = set()

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            self.reads.add(key)
        return super().__getitem__(key)

    def pop(self, key: str, *default: Any) -> Any:
        self.reads.add(key)
        return super().pop(key, *default)

    def __iter__(self) -> Iterator[str]:
        """Overridden so that `dict(batch)` reads the fields one by one."""
        return super().__iter__()

    def items(self) -> Any:
        self.reads.update(self.keys())
        return super().items()

    def values(self) -> Any:
        self.reads.update(self.keys())
        return super().values()


def learn_watched(forward: Callable[[Any], dict], data: ArrayDict) -> dict:
    """`forward(data)` of a batch with null steps; warns once where it reads neither `mask` nor `null`."""
    WatchedBatch.reads.clear()
    info = forward(WatchedBatch(dict.items(data)))
    if not WatchedBatch.reads & {"mask", "null"}:
        warn_once(
            "mask never read",
            "_forward_learn read neither 'mask' nor 'null' of a batch with null steps, the padding of short episodes: "
            "it trains on them as if they were real; multiply the weights of its loss by data['mask'] [U, N], 0 there",
        )
    return info
