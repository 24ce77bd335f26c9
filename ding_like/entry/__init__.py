"""Entry points."""

from typing import Any

__all__ = [
    *("async_pipeline", "collect_dataset", "eval", "parallel_pipeline"),
    *("serial_pipeline", "serial_pipeline_onpolicy"),
]


def __getattr__(name: str) -> Any:
    """Entries load on first use, so that the command line starts without torch."""
    if name in ("serial_pipeline", "serial_pipeline_onpolicy"):  # one loop serves both
        from ding_like.entry.serial_entry import serial_pipeline

        return serial_pipeline
    if name in ("parallel_pipeline", "async_pipeline"):
        from ding_like.entry import serial_entry

        return getattr(serial_entry, name)
    if name == "collect_dataset":
        from ding_like.entry.collect_entry import collect_dataset

        return collect_dataset
    if name == "eval":
        from ding_like.entry.eval_entry import eval as evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
