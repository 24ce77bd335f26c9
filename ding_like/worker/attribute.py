"""Asking a policy what it may not know: code outside of policies asks for an attribute with a default."""

from __future__ import annotations

from typing import Any


def attribute_of(policy: Any, name: str, default: Any) -> Any:
    """`policy.get_attribute(name)`, or `default` where it has none of that name."""
    try:
        return policy.get_attribute(name)
    except AttributeError:
        return default
