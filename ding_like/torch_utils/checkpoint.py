"""Checkpoints: plain types and tensors only, so that they load with `weights_only=True`."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ding_like.data import tree_leaves
from ding_like.utils.log import disk_remedy, get_logger

FORMAT = "ding_like checkpoint"
# What zipfile and torch raise at bytes of every kind.
_UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError),
    *(RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError),
)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


def save_checkpoint(
    path: str | os.PathLike,
    policy_type: str,
    state: dict,
    counters: dict[str, int],
    recipe: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint in one step (temp file and rename).

    Args:
        state: a policy's `state_dict` (tensors and plain types).
        counters: `train_iter` and `envstep`.
        recipe: a policy's `recipe()`, with which `load_policy` needs no config; plain types.

    Raises CheckpointError when a weight is not finite (nothing is written), or when the disk refuses.
    """
    for leaf in tree_leaves(state.get("model", {})):
        if torch.is_tensor(leaf) and leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise CheckpointError(f"{path} is not written: the model holds weights that are not finite")
    content = {"format": FORMAT, "policy": policy_type, "counters": dict(counters), "state": state}
    if recipe is not None:
        content["recipe"] = recipe
    write_file(path, content, "checkpoint")


def write_file(path: str | os.PathLike, content: dict[str, Any], what: str) -> None:
    """Write tensors and plain types in one step: beside `path`, to the disk, then renamed.

    Raises CheckpointError, calling the file a `what`, when the disk refuses; a file of before is then untouched.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        torch.save(content, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except (OSError, RuntimeError) as err:
        # torch's own writer tells a short write in words of its source code
        reason = str(err) if isinstance(err, OSError) else f"is the disk full? ({str(err).splitlines()[0]})"
        raise CheckpointError(
            f"{what} {path} cannot be written: {reason}; {what}s of before are untouched. {disk_remedy(err)}"
        ) from err
    finally:  # also where a second Ctrl-C ends the writing
        part.unlink(missing_ok=True)


def find_checkpoint(path: str | os.PathLike) -> Path:
    """The checkpoint that `path` stands for: itself, or the best one of a run's folder (an info line says which).

    Raises CheckpointError for a path where nothing is, and for a folder that holds none.
    """
    path = Path(path)
    if path.is_file():
        return path
    if not path.is_dir():
        raise CheckpointError(f"checkpoint {path} does not exist; checkpoints of a run lie in <exp_name>/ckpt/")
    for folder in (path / "ckpt", path):
        best = folder / "ckpt_best.pth.tar"
        if best.is_file():
            get_logger().info(f"{path} is a folder; the checkpoint taken is {best}")
            return best
    raise CheckpointError(
        f"{path} is a folder without ckpt/ckpt_best.pth.tar; give a checkpoint, a file of <exp_name>/ckpt/"
    )


def load_checkpoint(path: str | os.PathLike, policy_type: str | None = None) -> dict[str, Any]:
    """Read a checkpoint on the CPU: `policy`, `counters`, `state`, and where it holds one `recipe`.

    Args:
        path: as of `find_checkpoint`.

    Raises CheckpointError for a missing, damaged or foreign file, or one of another policy.
    """
    path = find_checkpoint(path)
    content = read_file(path, FORMAT, "checkpoint")
    _check_content(content, path)
    if policy_type is not None and content["policy"] != policy_type:
        raise CheckpointError(
            f"checkpoint {path} is of policy '{content['policy']}', the config's policy.type is '{policy_type}'"
        )
    return content


def read_file(path: str | os.PathLike, form: str, what: str) -> dict[str, Any]:
    """What `write_file` wrote, on the CPU.

    Raises CheckpointError, calling the file a `what`, where it is missing, damaged or not of the format `form`.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{what} {path} does not exist; {what}s of a run lie in <exp_name>/ckpt/")
    try:
        _check_parts(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as err:
        reason = str(err).splitlines()[0] if str(err) else type(err).__name__
        if isinstance(err, pickle.UnpicklingError):  # torch's words recommend a way that runs any code in the file
            reason = "it holds other objects than tensors and plain types, which are never loaded"
        raise CheckpointError(f"{what} {path} cannot be read, it is damaged or no {what} at all: {reason}") from err
    if not isinstance(content, dict) or content.get("format") != form:
        raise CheckpointError(
            f"{path} was not written by ding_like, or is no {what}; wanted a file of <exp_name>/ckpt/"
        )
    return content


def _check_parts(path: Path) -> None:
    """Raises BadZipFile for a damaged part: torch does not compare the checksums that it writes, and of a part that is
    said to be a folder it reads nothing, so that memory as it happened to be becomes weights.
    """
    with zipfile.ZipFile(path) as archive:
        odd = [i.filename for i in archive.infolist() if i.compress_type != zipfile.ZIP_STORED or i.external_attr]
        part = odd[0] if odd else archive.testzip()
    if part is not None:
        raise zipfile.BadZipFile(f"its part '{part}' is damaged")


def _check_content(content: dict, path: Path) -> None:
    """Raise CheckpointError naming the first part that is missing or of a wrong type."""
    counters, state = content.get("counters"), content.get("state")
    if not isinstance(content.get("policy"), str):
        wrong = f"its 'policy' is {content.get('policy')!r:.60}, wanted a policy's name"
    elif not isinstance(counters, dict) or not all(type(value) is int for value in counters.values()):
        wrong = f"its 'counters' is {counters!r:.60}, wanted whole numbers by name"
    elif not isinstance(state, dict):
        wrong = f"its 'state' is a {type(state).__name__}, wanted a dict"
    elif not isinstance(state.get("model"), dict) or not all(isinstance(name, str) for name in state["model"]):
        wrong = f"its state's 'model' is a {type(state.get('model')).__name__}, wanted tensors by name"
    elif not isinstance(content.get("recipe", {}), dict):
        wrong = f"its 'recipe' is {content['recipe']!r:.60}, wanted a dict"
    else:
        return
    raise CheckpointError(f"checkpoint {path} is not complete: {wrong}; take another file of <exp_name>/ckpt/")


def load_model_state(model: torch.nn.Module, state: dict, path: str | os.PathLike) -> None:
    """Load a network's state, all or nothing.

    Raises CheckpointError naming every tensor that is missing, left over, of another shape or kind, or not finite.
    """
    own = model.state_dict()
    faults = [f"{k} is missing" for k in own if k not in state]
    faults += [f"{k} is not in this model" for k in state if k not in own]
    faults += [f"{k} {fault}" for k in own if k in state for fault in _tensor_faults(state[k], own[k])]
    if faults:
        raise CheckpointError(
            f"checkpoint {path} is of another network: {'; '.join(faults[:6])}"
            f"{f'; and {len(faults) - 6} more' if len(faults) > 6 else ''}. Use the config it was trained with "
            "(total_config.yaml of its run)."
        )
    broken = [k for k in own if torch.is_tensor(own[k]) and not bool(torch.isfinite(state[k]).all())]
    if broken:
        raise CheckpointError(
            f"checkpoint {path} holds numbers that are not finite, in {', '.join(broken[:6])}; take one from before"
        )
    model.load_state_dict(state)


def _tensor_faults(value: Any, own: Any) -> Iterator[str]:
    """Why `value` cannot take the place of `own`; what is no tensor (a module's extra state) may be anything."""
    if not torch.is_tensor(own):
        return
    if not torch.is_tensor(value):
        yield f"is a {type(value).__name__}, wanted a tensor"
    elif value.shape != own.shape:
        yield f"has shape {list(value.shape)}, this model wants {list(own.shape)}"
    elif _kind(value) != _kind(own):
        yield f"is of {value.dtype}, {value.layout}; this model wants {own.dtype}, {own.layout}"


def _kind(tensor: torch.Tensor) -> tuple:
    return tensor.layout, tensor.dtype == torch.bool, tensor.is_floating_point(), tensor.is_complex()
