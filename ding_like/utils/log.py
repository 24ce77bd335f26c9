"""The package's log (standard `logging` under `ding_like`, to stderr) and the metrics of a run."""

import errno
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIR = "log"
_RESERVED = ("section", "envstep", "train_iter", "wall_time_s")

_FLUSH_EVERY_S = 10.0

_warned: set[str] = set()


class RunFolderError(OSError):
    """A run folder that cannot be made or written; says which, why and what to do."""


def disk_remedy(error: Exception) -> str:
    """What to do where a file of a run cannot be written."""
    if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "give the run another exp_name"
    return "free some space, or give the run an exp_name on another disk"


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
    It gets no value at an earlier step than that, and none that is not finite. Where its file cannot be written, a
    warning says so and the run goes on without it.

    Args:
        run_dir: an existing folder; None logs to the console only.
        tensorboard: write event files to `run_dir/log`.
        console: print a line for each call with section 'eval'.
        resume: a `state_dict` of the run that this one continues: what was logged after it is cut off, so that no
            record comes twice, and times go on from there.

    Attributes:
        listeners: called as `listener(values, envstep, train_iter, section)` with the scalars of each call, after they
            are written; `close()` closes those that have a `close`.

    Raises RunFolderError where `metrics.jsonl` is not the one that `resume` speaks of.
    """

    def __init__(
        self,
        run_dir: str | Path | None,
        tensorboard: bool = True,
        console: bool = True,
        resume: Mapping[str, Any] | None = None,
    ) -> None:
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._tensorboard = tensorboard and run_dir is not None
        self._console = console
        self.listeners: list[Callable[[Mapping[str, Any], int, int, str], Any]] = []
        self._start = time.perf_counter()
        self._file = None
        self._pending: dict[str, tuple[int, float]] = {}  # newest value of each tag, not written yet
        if resume is not None:
            self._resume(resume)
        if self._run_dir is not None:  # line-buffered: a killed run loses no line
            self._file = (self._run_dir / METRICS_FILE).open("a", buffering=1, encoding="utf-8")
        self._events: _Events | None = None
        self._closed = False
        if console:
            setup_console()

    def log(self, values: Mapping[str, Any], envstep: int, train_iter: int, section: str) -> None:
        """Log scalars (numbers, bools, strings, 0-d arrays or tensors) of one moment.

        Raises:
            ValueError: the logger is closed, or a key is one of the record's own.
            TypeError: a value that is not a scalar; names it.
            RunFolderError: `metrics.jsonl` cannot be written.
        """
        if self._closed:
            raise ValueError(f"log of section {section!r}: the logger is closed")
        scalars = {key: _scalar(key, value) for key, value in values.items()}
        if self._file is not None:
            record = {"section": section, "envstep": int(envstep), "train_iter": int(train_iter)}
            record |= {key: _finite(value) for key, value in scalars.items()}
            record["wall_time_s"] = round(time.perf_counter() - self._start, 3)  # type: ignore[assignment]
            self._write_line(json.dumps(record) + "\n")
        if self._tensorboard:
            for key, value in scalars.items():
                if not isinstance(value, str) and math.isfinite(value):
                    self._queue(f"{section}/{key}", int(envstep), float(value))
        if self._console and section == "eval":
            get_logger().info(_line(section, envstep, train_iter, scalars))
        for listener in self.listeners:
            listener(scalars, int(envstep), int(train_iter), section)

    def state_dict(self) -> dict[str, Any]:
        """What `Logger(run_dir, resume=...)` needs to go on from here: sizes of the files, of which all is on disk
        then, seconds so far, and the TensorBoard values that wait for a later step.
        """
        if self._events is not None:
            try:
                self._events.flush()
            except OSError as error:
                self._drop_tensorboard(error)
        if self._file is not None:
            os.fsync(self._file.fileno())  # a machine that goes down must not leave less than the point counts on
        return {
            "metrics_bytes": 0 if self._run_dir is None else (self._run_dir / METRICS_FILE).stat().st_size,
            "elapsed": time.perf_counter() - self._start,
            "pending": {tag: list(point) for tag, point in self._pending.items()},
            "events": {path.name: path.stat().st_size for path in _event_files(self._run_dir)},
        }

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._start -= state["elapsed"]
        self._pending = {tag: (int(step), float(value)) for tag, (step, value) in state["pending"].items()}
        if self._run_dir is None:
            return
        _cut(self._run_dir / METRICS_FILE, state["metrics_bytes"])
        for path in _event_files(self._run_dir):
            if path.name not in state["events"]:
                path.unlink()
        for name, size in state["events"].items():
            try:
                _cut(self._run_dir / TENSORBOARD_DIR / name, size)
            except RunFolderError as error:
                get_logger().warning(f"the run goes on with a gap in TensorBoard's curves: {error}")

    def _queue(self, tag: str, step: int, value: float) -> None:
        last_step, last_value = self._pending.get(tag, (step, value))
        if step > last_step:
            self._write(tag, last_step, last_value)
        if step >= last_step:
            self._pending[tag] = (step, value)

    def _write_line(self, line: str) -> None:
        assert self._file is not None and self._run_dir is not None
        try:
            self._file.write(line)
        except OSError as error:
            file, self._file = self._file, None
            with suppress(OSError):  # it tries to write the same line again
                file.close()
            raise RunFolderError(
                f"{self._run_dir / METRICS_FILE} cannot be written: {error.strerror or error}; free some space, or "
                "give the run an exp_name on another disk"
            ) from error

    def _write(self, tag: str, step: int, value: float) -> None:
        assert self._run_dir is not None
        if not self._tensorboard:
            return
        try:
            if self._events is None:
                self._events = _Events(self._run_dir / TENSORBOARD_DIR)
            self._events.add_scalar(tag, value, step)
        except OSError as error:
            self._drop_tensorboard(error)

    def _drop_tensorboard(self, error: OSError) -> None:
        self._tensorboard, self._events = False, None
        get_logger().warning(
            f"TensorBoard's file in {self._run_dir}/{TENSORBOARD_DIR} cannot be written: {error.strerror or error}; "
            "the run goes on without it"
        )

    def close(self) -> None:
        """Write what is pending and close the files; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for tag, (step, value) in self._pending.items():
            self._write(tag, step, value)
        if self._events is not None:
            try:
                self._events.close()
            except OSError as error:
                self._drop_tensorboard(error)
        if self._file is not None:
            self._file.close()
        for listener in self.listeners:
            if hasattr(listener, "close"):
                listener.close()

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Events:
    """An event file of tensorboardX's, written by the thread that calls.

    Its `SummaryWriter` writes in a thread of its own through a bounded queue: once that thread has died, of a full
    disk, the next `add_scalar` or `close` waits for ever.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # slow to import, and not every run wants it
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        folder.mkdir(exist_ok=True)
        self._event, self._scalar = Event, scalar
        count = len(_event_files(folder.parent))  # in the name: it tells seconds only and would overwrite
        self._writer = EventsWriter(str(folder / "events"), f".{count}" if count else "")
        self._flushed = time.monotonic()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Write one value; it is on disk after some seconds."""
        now = time.monotonic()
        self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=self._scalar(tag, value)))
        if now - self._flushed >= _FLUSH_EVERY_S:
            self.flush()
            self._flushed = now

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._writer.flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        self._writer.close()


def _event_files(run_dir: Path | None) -> list[Path]:
    return [] if run_dir is None else sorted((run_dir / TENSORBOARD_DIR).glob("events.*"))


def _cut(path: Path, size: int) -> None:
    """Cut a file back to the size it had at a resume point. Raises RunFolderError where it is shorter or missing."""
    have = path.stat().st_size if path.exists() else None
    if have is None or have < size:
        found = "is missing" if have is None else f"holds {have} bytes"
        raise RunFolderError(
            f"{path} {found}, and held {size} bytes when the resume point was written: it was changed since. Put the "
            "file back, or start a new run"
        )
    with path.open("r+b") as file:
        if path.name == METRICS_FILE and size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                raise RunFolderError(
                    f"{path} was changed since the resume point was written: its first {size} bytes do not end with a "
                    "line. Put the file back, or start a new run"
                )
        file.truncate(size)


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
