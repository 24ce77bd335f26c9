"""State of any kind as tensors and plain types, which `torch.save` writes straight from memory, and back."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any

import cloudpickle
import numpy as np
import torch

PLAIN = (type(None), bool, int, float, str)
ARRAY, BYTES, OBJECT, TENSOR = "@array", "@bytes", "@object", "@tensor"
KINDS = "biufc"  # dtypes whose bytes are their value


def pack(state: Any, path: str = "state") -> Any:
    """`state` in dictionaries, lists, tuples, plain types and CPU tensors alone, so that it loads with `weights_only`.

    Arrays become tensors over the same memory: nothing is copied, so write before going on. An OrderedDict (a network's
    state) comes back as a dict. Other objects are pickled.

    Raises ValueError naming (from `path` on) an object that cannot be.
    """
    if type(state) in PLAIN or type(state) is torch.Size:
        return state
    if type(state) in (dict, OrderedDict) and not any(isinstance(key, str) and key.startswith("@") for key in state):
        if all(type(key) in PLAIN for key in state):
            return {key: pack(value, f"{path}.{key}") for key, value in state.items()}
    elif type(state) in (list, tuple):
        return type(state)(pack(value, f"{path}[{i}]") for i, value in enumerate(state))
    elif type(state) is np.ndarray and state.dtype.kind in KINDS:
        flat = np.ascontiguousarray(state).reshape(-1).view(np.uint8)
        return {ARRAY: _tensor(flat), "dtype": state.dtype.str, "shape": list(state.shape)}
    elif type(state) is bytes:
        return {BYTES: _tensor(np.frombuffer(state, np.uint8))}
    elif type(state) is torch.Tensor:
        return {TENSOR: state.detach().cpu()}
    try:
        pickled = cloudpickle.dumps(state)
    except Exception as err:  # whatever an object of the user's raises there
        raise ValueError(f"{path} is a {type(state).__name__}, which cannot be pickled: {err}") from err
    return {OBJECT: _tensor(np.frombuffer(pickled, np.uint8))}


def unpack(packed: Any) -> Any:
    """The inverse of `pack`. Runs what pickled objects bring along, so only for files that are trusted."""
    if isinstance(packed, dict):
        if ARRAY in packed:
            return packed[ARRAY].numpy().view(np.dtype(packed["dtype"])).reshape(packed["shape"])
        if BYTES in packed:
            return packed[BYTES].numpy().tobytes()
        if TENSOR in packed:
            return packed[TENSOR]
        if OBJECT in packed:
            return pickle.load(io.BytesIO(packed[OBJECT].numpy().tobytes()))
        return {key: unpack(value) for key, value in packed.items()}
    if isinstance(packed, (list, tuple)) and type(packed) is not torch.Size:
        return type(packed)(unpack(value) for value in packed)
    return packed


def _tensor(flat: np.ndarray) -> torch.Tensor:
    if not flat.flags.writeable:  # torch warns of such memory; nobody writes into this tensor
        flat = np.frombuffer(flat, np.uint8) if not flat.size else flat.copy()
    return torch.from_numpy(flat) if flat.size else torch.empty(0, dtype=torch.uint8)
