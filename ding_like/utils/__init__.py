"""Registries, seeds, logging."""

from ding_like.utils.lazy import lazy_names
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
    "list_split",
    "suggest",
]

# What needs torch or NumPy loads on first use: the command line starts without.
__getattr__ = lazy_names(
    __name__, {"default_collate": "ding_like.utils.collate", "list_split": "ding_like.utils.default_helper"}
)
