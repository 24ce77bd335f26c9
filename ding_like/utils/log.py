"""The package's log (standard `logging` under `ding_like`, to stderr) and the metrics of a run."""

import json
import logging
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIR = "log"
_RESERVED = ("section", "envstep", "train_iter", "wall_time_s")

_warned: set[str] = set()


def get_logger(name: str = "ding_like") -> logging.Logger:
    """Return the logger `name`, put below `ding_like` where it is not there already."""
    return logging.getLogger(name if name.split(".")[0] == "ding_like" else f"ding_like.{name}")


def warn_once(key: str, message: str) -> None:
    """Log a warning the first time `key` is given in this process."""
    if key not in _warned:
        _warned.add(key)
        get_logger().warning(message)


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to what `sys.stderr` is at that moment, so that a progress line can put itself below."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_LineFormatter("%(message)s"))

    @property
    def stream(self) -> Any:  # type: ignore[override]
        return sys.stderr


class _LineFormatter(logging.Formatter):
    """INFO lines as they are, others with their level in front."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno == logging.INFO else f"{record.levelname.lower()}: {line}"


def setup_console(level: int = logging.INFO) -> None:
    """Send the package's log lines to stderr, unless the program has set up logging of its own."""
    logger = get_logger()
    if not logger.hasHandlers():
        logger.addHandler(_StderrHandler())
        logger.setLevel(level)


class Logger:
    """The metrics of one run: `metrics.jsonl`, TensorBoard events, and a console line for evaluations.

    `metrics.jsonl` holds every call as one line of valid JSON, with null for a number that is not finite.
    TensorBoard gets `section/key` at step `envstep`, strictly increasing for each tag. Of several values at
    one step it gets the last; so the newest value of a tag is written when a later step comes, or by `close`.
    It gets no value at an earlier step than that, and none that is not finite.

    Args:
        run_dir: an existing folder; None logs to the console only.
        tensorboard: write event files to `run_dir/log`.
        console: print a line for each call with section 'eval'.
    """

    def __init__(self, run_dir: str | Path | None, tensorboard: bool = True, console: bool = True) -> None:
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._tensorboard = tensorboard and run_dir is not None
        self._console = console
        self._start = time.perf_counter()
        self._file = None
        if self._run_dir is not None:  # line-buffered: a killed run loses no line
            self._file = (self._run_dir / METRICS_FILE).open("a", buffering=1, encoding="utf-8")
        self._writer: Any = None
        self._pending: dict[str, tuple[int, float]] = {}  # newest value of each tag, not written yet
        self._closed = False
        if console:
            setup_console()

    def log(self, values: Mapping[str, Any], envstep: int, train_iter: int, section: str) -> None:
        """Log scalars (numbers, bools, strings, 0-d arrays or tensors) of one moment.

        Raises:
            ValueError: the logger is closed, or a key is one of the record's own.
            TypeError: a value that is not a scalar; names it.
        """
        if self._closed:
            raise ValueError(f"log of section {section!r}: the logger is closed")
        scalars = {key: _scalar(key, value) for key, value in values.items()}
        if self._file is not None:
            record = {"section": section, "envstep": int(envstep), "train_iter": int(train_iter)}
            record |= {key: _finite(value) for key, value in scalars.items()}
            record["wall_time_s"] = round(time.perf_counter() - self._start, 3)  # type: ignore[assignment]
            self._file.write(json.dumps(record) + "\n")
        if self._tensorboard:
            for key, value in scalars.items():
                if not isinstance(value, str) and math.isfinite(value):
                    self._queue(f"{section}/{key}", int(envstep), float(value))
        if self._console and section == "eval":
            get_logger().info(_line(section, envstep, train_iter, scalars))

    def _queue(self, tag: str, step: int, value: float) -> None:
        last_step, last_value = self._pending.get(tag, (step, value))
        if step > last_step:
            self._write(tag, last_step, last_value)
        if step >= last_step:
            self._pending[tag] = (step, value)

    def _write(self, tag: str, step: int, value: float) -> None:
        if self._writer is None:
            from tensorboardX import SummaryWriter  # slow to import, and not every run wants it

            assert self._run_dir is not None
            self._writer = SummaryWriter(str(self._run_dir / TENSORBOARD_DIR), flush_secs=10)
        self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Write what is pending and close the files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for tag, (step, value) in self._pending.items():
            self._write(tag, step, value)
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _scalar(key: str, value: Any) -> bool | int | float | str:
    if key in _RESERVED:
        raise ValueError(f"log: the key {key!r} is the record's own; choose another name")
    if isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):
        try:
            return _scalar(key, value.item())
        except (ValueError, RuntimeError):
            pass  # more than one element
    raise TypeError(f"log: {key} is a {type(value).__name__}, wanted a number; log its mean, or each part by name")


def _finite(value: bool | int | float | str) -> bool | int | float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(section: str, envstep: int, train_iter: int, scalars: Mapping[str, Any]) -> str:
    shown = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in scalars.items()]
    return " | ".join([f"{section} | envstep {envstep:,} | train_iter {train_iter:,}", *shown])
