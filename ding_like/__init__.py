"""Config-driven deep reinforcement learning on PyTorch."""

from typing import Any

__version__ = "0.1.0"
__all__ = [
    "POLICY_REGISTRY",
    "ArrayDict",
    "Policy",
    "async_pipeline",
    "export_onnx",
    "load_policy",
    "model_wrap",
    "parallel_pipeline",
    "serial_pipeline",
    "serial_pipeline_onpolicy",
]

_HOMES = {
    "ArrayDict": "ding_like.data",
    "POLICY_REGISTRY": "ding_like.utils",
    "Policy": "ding_like.policy",
    "async_pipeline": "ding_like.entry.serial_entry",
    "export_onnx": "ding_like.entry.export",
    "load_policy": "ding_like.policy",
    "model_wrap": "ding_like.model",
    "parallel_pipeline": "ding_like.entry.serial_entry",
    "serial_pipeline": "ding_like.entry.serial_entry",
    "serial_pipeline_onpolicy": "ding_like.entry",
}


def __getattr__(name: str) -> Any:
    """The public names load on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
