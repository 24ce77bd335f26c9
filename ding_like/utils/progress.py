"""One line that tells how a long run is doing."""

import sys
import time
from collections import deque
from typing import Any

from ding_like.utils.log import get_logger

_NO_LIMIT = 10**9  # limits from here on mean "until something else stops the run"; no ETA from them


class Progress:
    """A progress line on a terminal (stderr), a plain log line every `plain_every_s` seconds elsewhere.

    `update` costs a look at the clock; the line is drawn at most four times a second.

    Args:
        max_env_step, max_train_iter: the run's limits, for the ETA.
        terminal: draw in place; None asks stderr.
    """

    def __init__(
        self,
        max_env_step: int = _NO_LIMIT,
        max_train_iter: int = _NO_LIMIT,
        *,
        plain_every_s: float = 10.0,
        terminal: bool | None = None,
    ) -> None:
        self._limits = (max_env_step, max_train_iter)
        self._live: Any = _live() if (sys.stderr.isatty() if terminal is None else terminal) else None
        self._every_s = 0.25 if self._live else plain_every_s
        self._next = time.perf_counter() + self._every_s
        # (time, envstep, train_iter) at the first update and at the last lines
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=40)
        self._return: float | None = None

    def update(self, envstep: int, train_iter: int, return_: float | None = None) -> None:
        """Take the counters, and the newest mean return where there is one."""
        if return_ is not None:
            self._return = return_
        now = time.perf_counter()
        if now < self._next and self._recent:
            return
        self._recent.append((now, envstep, train_iter))
        if now < self._next:
            return
        self._next = now + self._every_s
        line = self._line()
        if self._live:
            self._live.update(_text(line), refresh=True)
        else:
            get_logger().info(line)

    def _line(self) -> str:
        (then, *old), (now, *new) = self._recent[0], self._recent[-1]
        rates = [(b - a) / max(now - then, 1e-9) for a, b in zip(old, new)]
        limit = f"/{self._limits[0]:,}" if self._limits[0] < _NO_LIMIT else ""
        parts = [f"envstep {new[0]:,}{limit}", f"{rates[0]:,.0f} steps/s"]
        if self._return is not None:
            parts.append(f"return {self._return:.4g}")
        parts.append(f"train_iter {new[1]:,}")
        left = [
            (limit - count) / rate
            for limit, count, rate in zip(self._limits, new, rates)
            if limit < _NO_LIMIT and rate > 0
        ]
        if left:
            parts.append(f"ETA {_clock(min(left))}")
        return " | ".join(parts)

    def close(self) -> None:
        """Take the line off the terminal; a second call does nothing."""
        if self._live:
            self._live.stop()
            self._live = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _live() -> Any:
    from rich.console import Console  # slow to import, and only terminals need it
    from rich.live import Live

    live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True)
    live.start()
    return live


def _text(line: str) -> Any:
    from rich.text import Text

    return Text(line, no_wrap=True, overflow="ellipsis")


def _clock(seconds: float) -> str:
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
