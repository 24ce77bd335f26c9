"""Registries, seeds, logging."""

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
    "import_modules",
    "suggest",
]
