"""Envs as bytes, with all that decides how they go on, and back."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle

from ding_like.envs.adapter import EnvAdapter


class NoSnapshot(Exception):
    """An env whose state cannot be written down; the text says why."""


def snapshot(envs: Sequence[Any], bare: bool = True) -> bytes:
    """The state of envs (wrapped, batched, of any kind) as bytes; they go on unchanged.

    A bare env that offers `get_state()` and `set_state(state)` is written by these, an Atari env by its emulator's own,
    every other by pickling. What envs share with each other is written once. With `bare=False` only the wrappers
    around the bare envs are written.

    Raises NoSnapshot where that loses the state: the object cannot be pickled, or pickling makes it anew (Gymnasium's
    `EzPickle`: Box2D, MuJoCo).
    """
    file = io.BytesIO()
    try:
        _Writer(file, [_bare(env) for env in envs], bare).dump(list(envs))
    except NoSnapshot:
        raise
    except Exception as err:  # whatever a user's env or a library raises: its state cannot be had
        raise NoSnapshot(f"pickling it raises {type(err).__name__}: {err}") from err
    return file.getvalue()


def restore(envs: Sequence[Any], data: bytes) -> list[Any]:
    """Envs in the state of `snapshot`. `envs` are new ones, made alike: those written by their own means are set.

    Raises NoSnapshot where that fails.
    """
    try:
        return _Reader(io.BytesIO(data), [_bare(env) for env in envs]).load()
    except Exception as err:
        raise NoSnapshot(f"restoring it raises {type(err).__name__}: {err}") from err


def taken(envs: Sequence[Any]) -> dict[str, Any]:
    """What a manager keeps of its envs.

    `envs`: their snapshot; where there is none, that of the wrappers around the bare envs, which may hold statistics;
    or None. `not_exact`: why the bare envs are not in it, or None.
    """
    try:
        return {"envs": snapshot(envs), "not_exact": None}
    except NoSnapshot as reason:
        try:
            return {"envs": snapshot(envs, bare=False), "not_exact": str(reason)}
        except NoSnapshot:
            return {"envs": None, "not_exact": str(reason)}


class _Writer(cloudpickle.Pickler):
    """A pickler that asks an env for its own state, and does not take an object that pickling would make anew."""

    def __init__(self, file: Any, envs: list[Any], bare: bool) -> None:
        super().__init__(file)
        self._place = {id(env): i for i, env in enumerate(envs)}
        self._with_bare = bare

    def persistent_id(self, obj: Any) -> Any:
        place = self._place.get(id(obj))
        if place is not None and not self._with_bare:
            return place, None, None, None
        if place is not None:
            kind = _kind(obj)
            if kind is not None:
                return place, kind, _OWN[kind][0](obj), getattr(obj, "_np_random", None)
        if not isinstance(obj, type) and any(cls.__name__ == "EzPickle" for cls in type(obj).__mro__):
            raise NoSnapshot(f"a {type(obj).__name__} cannot be pickled with its state (it is made anew: EzPickle)")
        return None


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, bare: list[Any]) -> None:
        super().__init__(file)
        self._bare = bare

    def persistent_load(self, pid: Any) -> Any:
        place, kind, state, rng = pid
        env = self._bare[place]
        if kind is not None:
            _OWN[kind][1](env, state)
        if rng is not None:
            env._np_random = rng
        return env


def _bare(env: Any) -> Any:
    inner = getattr(env, "unwrapped", env)
    return getattr(inner.env, "unwrapped", inner.env) if isinstance(inner, EnvAdapter) else inner


def _kind(env: Any) -> str | None:
    if callable(getattr(env, "get_state", None)) and callable(getattr(env, "set_state", None)):
        return "own"
    if hasattr(env, "ale") and callable(getattr(env, "clone_state", None)):
        return "ale"
    return None


_OWN: dict[str, tuple[Any, Any]] = {
    "own": (lambda env: env.get_state(), lambda env, state: env.set_state(state)),
    "ale": (lambda env: env.clone_state(include_rng=True), lambda env, state: env.restore_state(state)),
}
