"""The folder of one run: its config, result and checkpoints."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ding_like
from ding_like.config import save_config
from ding_like.utils.log import RunFolderError, disk_remedy, get_logger

CONFIG_FILE = "total_config.yaml"
RESULT_FILE = "result.json"
CKPT_DIR = "ckpt"


class RunFolder:
    """A new folder `<exp_name>/`, or `<exp_name>_1`, `_2`, ... where that exists (an info line says so).

    Two runs that start at the same moment get two folders.

    Args:
        exp_name: path of the folder, `~` for the home folder; missing parents are made.
        on_exists: 'number', or 'error' to raise where the folder exists.

    Raises:
        ValueError: an empty name, or an unknown `on_exists`.
        RunFolderError: the folder exists (`on_exists='error'`) or cannot be made.
    """

    _held: int | None = None

    def __init__(self, exp_name: str | Path, on_exists: str = "number") -> None:
        if not Path(exp_name).name:
            raise ValueError(f"exp_name: got {str(exp_name)!r}, wanted the path of a new folder for the run")
        if on_exists not in ("number", "error"):
            raise ValueError(f"on_exists: got {on_exists!r}, wanted 'number' or 'error'")
        self.path = _make_folder(Path(os.path.expanduser(exp_name)), on_exists)
        with _explained(self.path):
            (self.path / CKPT_DIR).mkdir()
        self._lock()

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """The folder of a run that is resumed."""
        folder = object.__new__(cls)
        folder.path = path
        folder._lock()
        return folder

    def _lock(self) -> None:
        """Keep other processes from resuming this run while it runs; the system lifts the lock with the process."""
        try:
            import fcntl
        except ImportError:  # Windows has another way, which folders do not know
            return
        self._held = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._held)
            raise RunFolderError(
                f"the run in {self.path} is running in another process; wait for its end, or stop it, to resume it"
            ) from None
        except OSError:  # some network file systems know no locks
            pass

    def close(self) -> None:
        """Lift the lock."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    @property
    def ckpt_best(self) -> Path:
        """The checkpoint of the best evaluation."""
        return self.path / CKPT_DIR / "ckpt_best.pth.tar"

    def ckpt_iteration(self, train_iter: int) -> Path:
        """The checkpoint of one training iteration."""
        return self.path / CKPT_DIR / f"iteration_{train_iter}.pth.tar"

    def save_config(self, cfg: Mapping[Any, Any]) -> Path:
        """Write the complete config to `total_config.yaml` and return its path."""
        with _explained(self.path):
            save_config(cfg, self.path / CONFIG_FILE)
        return self.path / CONFIG_FILE

    def save_result(
        self,
        *,
        env_step: int,
        train_iter: int,
        stop: bool,
        eval_value: float | None,
        eval_value_raw: float | None,
        seed: int,
        wall_time_s: float,
        reason: str | None = None,
        tasks: Mapping[str, float] = MappingProxyType({}),
    ) -> Path:
        """Write `result.json` in one step (temp file and rename) and return its path.

        Args:
            stop: whether the run reached its `stop_value`.
            reason: why the run ended, in words.
            eval_value, eval_value_raw: mean return of the last evaluation, through the eval wrappers and
                before any reward wrapper; None where there was none. Written as null where not finite.
            tasks: what the evaluation says of single tasks, by key.
        """
        result = {
            "env_step": int(env_step),
            "train_iter": int(train_iter),
            "stop": bool(stop),
            "eval_value": _finite(eval_value),
            "eval_value_raw": _finite(eval_value_raw),
            **{key: _finite(value) for key, value in tasks.items()},
            "seed": int(seed),
            "wall_time_s": round(float(wall_time_s), 3),
            "reason": reason,
            "version": ding_like.__version__,
        }
        part = self.path / f"{RESULT_FILE}.part"
        with _explained(self.path / RESULT_FILE, "result"):
            try:
                part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
                os.replace(part, self.path / RESULT_FILE)
            finally:
                part.unlink(missing_ok=True)
        return self.path / RESULT_FILE


def _make_folder(wanted: Path, on_exists: str) -> Path:
    """Make `wanted` or its first free numbered sibling; as `mkdir` decides, two runs never share one."""
    with _explained(wanted):
        wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in count():
        path = wanted.with_name(f"{wanted.name}_{number}") if number else wanted
        with _explained(path):
            try:
                path.mkdir()
            except FileExistsError:
                if on_exists == "number":
                    continue
                raise RunFolderError(
                    f"run folder {path} exists; choose another exp_name, or let on_exists='number' choose one"
                ) from None
        if number:
            get_logger().info(f"run folder {wanted} exists; this run takes {path}")
        return path
    raise AssertionError("count() does not end")


@contextmanager
def _explained(path: Path, what: str = "run folder") -> Iterator[None]:
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(
            f"{what} {path} cannot be written: {error.strerror or error}; {disk_remedy(error)}"
        ) from error


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
