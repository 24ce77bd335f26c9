"""Checkpoints: plain types and tensors only, so that they load with `weights_only=True`."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from ding_like.data import tree_leaves

FORMAT = "ding_like checkpoint"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


def save_checkpoint(path: str | os.PathLike, policy_type: str, state: dict, counters: dict[str, int]) -> None:
    """Write a checkpoint in one step (temp file and rename).

    Args:
        state: a policy's `state_dict` (tensors and plain types).
        counters: `train_iter` and `envstep`.

    Raises CheckpointError when a weight is not finite (nothing is written), or when the disk refuses.
    """
    for leaf in tree_leaves(state.get("model", {})):
        if torch.is_tensor(leaf) and leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise CheckpointError(f"{path} is not written: the model holds weights that are not finite")
    path = Path(path)
    part = path.with_name(path.name + ".part")
    content = {"format": FORMAT, "policy": policy_type, "counters": dict(counters), "state": state}
    try:
        torch.save(content, part)
        os.replace(part, path)
    except (OSError, RuntimeError) as err:
        part.unlink(missing_ok=True)
        raise CheckpointError(
            f"checkpoint {path} cannot be written: {err}; checkpoints of before are untouched"
        ) from err


def load_checkpoint(path: str | os.PathLike, policy_type: str | None = None) -> dict[str, Any]:
    """Read a checkpoint on the CPU: `policy`, `counters`, `state`.

    Raises CheckpointError for a missing, damaged or foreign file, or one of another policy.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist; checkpoints of a run lie in <exp_name>/ckpt/")
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not compare the checksums that it writes
            part = archive.testzip()
        if part is not None:
            raise zipfile.BadZipFile(f"the checksum of its part '{part}' is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, KeyError, OSError, zipfile.BadZipFile, pickle.UnpicklingError, ValueError) as err:
        reason = str(err).splitlines()[0] if str(err) else type(err).__name__
        raise CheckpointError(
            f"checkpoint {path} cannot be read, it is damaged or no checkpoint at all: {reason}"
        ) from err
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by ding_like; wanted a file of <exp_name>/ckpt/")
    if policy_type is not None and content["policy"] != policy_type:
        raise CheckpointError(
            f"checkpoint {path} is of policy '{content['policy']}', the config's policy.type is '{policy_type}'"
        )
    return content


def load_model_state(model: torch.nn.Module, state: dict, path: str | os.PathLike) -> None:
    """Load a network's state, all or nothing.

    Raises CheckpointError naming every tensor that is missing, left over or of another shape.
    """
    own = model.state_dict()
    faults = [f"{k} is missing" for k in own if k not in state]
    faults += [f"{k} is not in this model" for k in state if k not in own]
    faults += [
        f"{k} has shape {list(state[k].shape)}, this model wants {list(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape
    ]
    if faults:
        raise CheckpointError(
            f"checkpoint {path} is of another network: {'; '.join(faults[:6])}"
            f"{f'; and {len(faults) - 6} more' if len(faults) > 6 else ''}. Use the config it was trained with "
            "(total_config.yaml of its run)."
        )
    model.load_state_dict(state)
