"""Metrics and config to Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ding_like.config import to_plain
from ding_like.config.checks import Check, one_of, optional
from ding_like.utils import HOOK_REGISTRY
from ding_like.utils.log import warn_once
from ding_like.worker.learner.hooks import LearnerHook, argument, text

_TEXTS = Check(
    lambda value: isinstance(value, list | tuple) and all(isinstance(v, str) for v in value), "a list of texts"
)


@HOOK_REGISTRY.register("wandb")
class WandbHook(LearnerHook):
    """Send all that is logged to Weights & Biases, as `section/key` at its env step, and the config with it.

    Where W&B fails, a warning says so once and the run goes on without it. A resumed run goes on under the same id.

    Args:
        project: the W&B project.
        name: of the run there; None: the run folder's.
        mode: 'online', or 'offline' to write files into the run folder for `wandb sync`.
        tags: of the run.
        entity: the W&B user or team; None: your default.
        group: runs that belong together, such as the seeds of one config.
    """

    position = "before_run"

    def __init__(
        self,
        project: str = "ding_like",
        name: str | None = None,
        mode: str = "online",
        tags: Sequence[str] = (),
        entity: str | None = None,
        group: str | None = None,
    ) -> None:
        for key, value in (("name", name), ("entity", entity), ("group", group)):
            argument("wandb", key, value, optional(text))
        self._options = {
            "project": argument("wandb", "project", project, text),
            "name": name,
            "mode": argument("wandb", "mode", mode, one_of("online", "offline")),
            "tags": list(argument("wandb", "tags", tags, _TEXTS)),
            "entity": entity,
            "group": group,
        }
        self._id: str | None = None

    def attach(self, learner: Any) -> None:
        try:
            import wandb  # noqa: F401
        except ImportError as err:
            raise ImportError("hook 'wandb' needs the package wandb: pip install 'ding_like[wandb]'") from err

    def __call__(self, learner: Any) -> None:
        if learner.logger is None:
            return
        import wandb

        folder, options = learner.run.folder, dict(self._options)
        if folder is not None:
            options |= {"dir": str(folder), "name": options["name"] or Path(folder).name}
        if self._id is not None:
            options |= {"id": self._id, "resume": "allow"}
        name = str(folder)
        run = _attempt(name, lambda: wandb.init(config=to_plain(learner.run.cfg), **options))
        if run is not None:
            self._id = str(run.id)
            learner.logger.listeners.append(_Listener(run, name))

    def state_dict(self) -> dict[str, Any]:
        """The id of the run at W&B."""
        return {"id": self._id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._id = state["id"]


class _Listener:
    """Passes on what a `Logger` logs."""

    def __init__(self, run: Any, name: str) -> None:
        self._run, self._name = run, name
        self._step = 0

    def __call__(self, values: Mapping[str, Any], envstep: int, train_iter: int, section: str) -> None:
        row = {f"{section}/{key}": value for key, value in values.items()}
        row |= {"envstep": envstep, "train_iter": train_iter}
        self._step = max(self._step, envstep)  # W&B drops earlier steps; evaluations by another process come late
        _attempt(self._name, lambda: self._run.log(row, step=self._step))

    def close(self) -> None:
        """Send the rest."""
        _attempt(self._name, self._run.finish)


def _attempt(name: str, call: Callable[[], Any]) -> Any:
    """Call W&B. Its failures are of many kinds (network, account, its own process), and none may end a run."""
    try:
        return call()
    except Exception as error:
        warn_once(f"wandb {name}", f"hook 'wandb': {type(error).__name__}: {error}; the run goes on without it")
        return None
