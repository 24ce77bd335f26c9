"""Registries, seeds, logging."""

from typing import Any

from ding_like.utils.registry import (
    BUFFER_REGISTRY,
    ENV_MANAGER_REGISTRY,
    ENV_REGISTRY,
    ENV_WRAPPER_REGISTRY,
    HOOK_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    REGISTRIES,
    WRAPPER_REGISTRY,
    Registry,
    UnknownNameError,
    import_modules,
    suggest,
)

__all__ = [
    "BUFFER_REGISTRY",
    "ENV_MANAGER_REGISTRY",
    "ENV_REGISTRY",
    "ENV_WRAPPER_REGISTRY",
    "HOOK_REGISTRY",
    "MODEL_REGISTRY",
    "POLICY_REGISTRY",
    "REGISTRIES",
    "WRAPPER_REGISTRY",
    "Registry",
    "UnknownNameError",
    "default_collate",
    "import_modules",
    "suggest",
]


def __getattr__(name: str) -> Any:
    """`default_collate` loads on first use: it needs torch, which the command line starts without."""
    if name == "default_collate":
        from ding_like.utils.collate import default_collate

        return default_collate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
