"""Objects for another process: what it cannot import there goes by value."""

from __future__ import annotations

import importlib.machinery
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from ding_like.utils.registry import REGISTRIES


def pickled(value: Any, kinds: Sequence[str] | None = None, functions: Iterable[Any] = ()) -> bytes:
    """`value`, and what others registered in this process; `unpickled` gives the one there and registers the other.

    Args:
        kinds: of the registries whose entries go along; None: all.
        functions: functions and classes in `value` whose modules, like those of the entries, may not be importable
            there: they go by value, as those of the running script do.
    """
    found = [
        (kind, name, entry)
        for kind in (REGISTRIES if kinds is None else kinds)
        for name, entry in REGISTRIES[kind].registered()
        if not entry.__module__.startswith("ding_like.")
    ]
    names = {getattr(obj, "__module__", None) for obj in [*(entry for *_, entry in found), *functions]}
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    with _by_value([module for module in modules if not importable(module)]):
        file = io.BytesIO()
        _Pickler(file).dump((found, value))
        return file.getvalue()


def packed_for(
    name: str,
    what: str,
    remedy: str,
    value: Any,
    kinds: Sequence[str] | None = None,
    functions: Iterable[Any] = (),
) -> bytes:
    """`pickled`, whose mistakes are told.

    Args:
        name: of the process that it is for.
        what: cannot be sent, where it cannot.
        remedy: what to do then.

    Raises TypeError with these, for whatever an object in `value` raises.
    """
    try:
        return pickled(value, kinds, functions)
    except Exception as err:  # of any class
        told = f"{name}: {what} cannot be sent to another process ({type(err).__name__}: {err}); {remedy}"
        raise TypeError(told) from err


class _Pickler(cloudpickle.Pickler):
    """Tensors go as those of the CPU: another process may have no GPU, or no memory on it to spare."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and obj.device.type != "cpu":  # also of a Parameter
            there = obj.detach().cpu().requires_grad_(obj.requires_grad)
            return there.__reduce_ex__(2)
        return super().reducer_override(obj)


def unpickled(data: bytes) -> Any:
    """The value of `pickled`. What is registered here under the same name already stays."""
    found, value = cloudpickle.loads(data)
    for kind, name, entry in found:
        if name not in dict(REGISTRIES[kind].registered()):
            REGISTRIES[kind].register(name, entry)
    return value


def importable(module: ModuleType) -> bool:
    """Whether another process that imports the module's name gets it."""
    name, spec = module.__name__, module.__spec__
    if name == "__main__" or spec is None:
        return False
    if "." in name:
        return True
    found = importlib.machinery.PathFinder.find_spec(name)
    built_in = name in sys.builtin_module_names
    return built_in or (found is not None and found.origin == spec.origin)


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the running script from multiprocessing, which would run it again in every child: it goes by value."""
    main = sys.modules["__main__"]
    hidden: dict[str, Any] = {name: vars(main).pop(name) for name in ("__file__", "__spec__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)
