"""The collector of a run that trains on what others collected."""

from __future__ import annotations

from typing import Any

from ding_like.worker.collector.sample_collector import SampleCollector


class NoCollector(SampleCollector):
    """Takes no env step; its envs are asked for their spaces alone."""

    def start(self) -> None:
        return

    def begin(self) -> None:
        return

    def collect(self, *args: Any, **kwargs: Any) -> None:
        return

    def state_dict(self) -> dict:
        return {"not_exact": None}

    def load_state_dict(self, state: dict) -> None:
        return
