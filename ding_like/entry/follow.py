"""Evaluating a run from outside: a process of its own follows its checkpoints as they appear."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ding_like.config import ConfigError
from ding_like.entry.build import evaluation, full_config
from ding_like.entry.resume import POINT
from ding_like.entry.run_folder import CKPT_DIR, CONFIG_FILE, RESULT_FILE, RunFolderError
from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint, load_model_state
from ding_like.torch_utils.mode import torch_threads
from ding_like.utils.log import disk_remedy, get_logger
from ding_like.utils.seed import set_global_seed

OFFLINE_FILE = "eval_offline.jsonl"
SUFFIX = ".pth.tar"


def follow(
    run: str | os.PathLike,
    input_cfg: Any = None,
    seed: int | None = None,
    *,
    sets: tuple[str, ...] | list[str] = (),
    poll: float = 1.0,
) -> dict[str, Any]:
    """Evaluate every checkpoint of a run, deterministically, until the run is over or Ctrl-C comes.

    Each gradient step is evaluated once: one line of `RUN/eval_offline.jsonl`, which a later call goes on with.

    Args:
        run: the folder of a run, which may be going on.
        input_cfg: anything `read_config` takes, in place of the run's own config.
        seed: of the episodes; None takes the config's, and so the episodes of the run's own evaluations.
        poll: seconds between looks at the folder.

    Returns:
        The best record: `checkpoint`, `envstep`, `train_iter`, `eval_value`, `eval_value_raw`, `eval_value_std`,
        `eval_length`, `n_episode`.

    Raises ConfigError where `run` is no folder of a run, CheckpointError for a checkpoint that does not fit the config
    and where the run left none.
    """
    folder = Path(run)
    if not (folder / CONFIG_FILE).is_file():
        raise ConfigError(f"follow: got {str(run)!r}, wanted the folder of a run, where {CONFIG_FILE} lies")
    cfg = full_config(folder / CONFIG_FILE if input_cfg is None else input_cfg, sets)
    seed = int(cfg.seed or 0) if seed is None else seed
    set_global_seed(seed)
    records = _Records(folder / OFFLINE_FILE)
    with torch_threads(int(cfg.torch_threads)):
        manager, policy, evaluator = evaluation(cfg, seed)
        try:
            for path, content in _checkpoints(folder, records, cfg.policy.type, poll):
                load_model_state(policy.get_model(), content["state"]["model"], path)
                records.add(path.name, content["counters"], evaluator.evaluate())
        except KeyboardInterrupt:
            if not records.best:
                raise
        finally:
            manager.close()
    if not records.best:
        raise CheckpointError(f"the run in {folder} is over and left no checkpoint in {folder / CKPT_DIR}")
    return records.best


def _checkpoints(
    folder: Path, records: _Records, policy_type: str, poll: float
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What lies in the run's checkpoint folder and is not evaluated yet, the oldest first, and what comes later."""
    seen: set[tuple[str, int]] = set()  # names and times of files
    while True:
        over, found = _is_over(folder), []  # before the files: the last of them is written before the result
        for path in (folder / CKPT_DIR).glob(f"*{SUFFIX}"):
            if (stamp := _stamp(path)) is not None and (path.name, stamp) not in seen:
                seen.add((path.name, stamp))
                found.append((stamp, path))
        for _, path in sorted(found):
            content = _read(path, policy_type)
            if content is not None and int(content["counters"]["train_iter"]) not in records.known:
                yield path, content
        if over:
            return
        if not found:
            time.sleep(poll)


def _is_over(folder: Path) -> bool:
    """Whether the run has a result; one that it had before it was resumed is older than its resume point."""
    result, point = _stamp(folder / RESULT_FILE), _stamp(folder / POINT)
    return result is not None and (point is None or point <= result)


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _read(path: Path, policy_type: str) -> dict[str, Any] | None:
    """A checkpoint; None where the run has deleted it meanwhile."""
    try:
        return load_checkpoint(path, policy_type)
    except CheckpointError:
        if path.exists():
            raise
        return None


class _Records:
    """The lines of `eval_offline.jsonl`, and the best of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: set[int] = set()
        self.best: dict[str, Any] = {}
        if path.exists():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    self._take(json.loads(line))
                except (ValueError, LookupError, TypeError) as error:
                    raise RunFolderError(f"{path}, line {number} is no record of an evaluation; remove it") from error

    def _take(self, record: dict[str, Any]) -> None:
        self.known.add(int(record["train_iter"]))
        if not self.best or record["eval_value"] > self.best["eval_value"]:
            self.best = record

    def add(self, checkpoint: str, counters: dict[str, int], result: dict[str, Any]) -> None:
        """Write down an evaluation."""
        record = {"checkpoint": checkpoint, "envstep": int(counters["envstep"])}
        record["train_iter"] = int(counters["train_iter"])
        record |= {key: value for key, value in result.items() if key != "returns"}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise RunFolderError(
                f"{self._path} cannot be written: {error.strerror or error}; {disk_remedy(error)}"
            ) from error
        self._take(record)
        get_logger().info(
            f"{checkpoint}: eval_value {record['eval_value']:.2f} over {record['n_episode']} episodes, at env step "
            f"{record['envstep']:,}, gradient step {record['train_iter']:,}"
        )
