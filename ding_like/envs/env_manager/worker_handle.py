"""A worker process as its env manager sees it."""

from __future__ import annotations

from typing import Any

from ding_like.envs.base_env import EnvError
from ding_like.envs.env_manager.env_worker import STEP
from ding_like.utils.child import ChildDied, ChildTimeout
from ding_like.utils.workers import Worker


class WorkerHandle(Worker):
    """The place of a worker whose columns are stepped by messages."""

    def step(self, columns: list[int] | None) -> None:
        """Ask it to step all its columns, or some, counted from its first. What fails shows in `answer`."""
        if columns is not None:
            self.ask("step", columns, in_step=True)
            return
        self.busy += 1
        self._allow(in_step=True)
        try:
            self.child.post(STEP)
        except Exception as err:
            self._failure = err

    def answer(self) -> tuple[Any, Any]:
        """See `Worker.answer`; of code that runs around the envs (their import, sys.exit in one) it raises EnvError."""
        try:
            return super().answer()
        except (ChildDied, ChildTimeout, EnvError):
            raise
        except Exception as err:
            raise EnvError(f"{self.child.name}: {type(err).__name__}: {err}") from err.__cause__
