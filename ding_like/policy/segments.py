"""Rollouts of a recurrent actor-critic: cut into segments with stored states, and evaluated along time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block, leading_shape, torchify, tree_map
from ding_like.model.wrapper.base_wrapper import ModelWrapper


def cut_segments(fields: dict[str, Any], prev_state: Any, done: np.ndarray, length: int, columns: int) -> ArrayDict:
    """Rows `[T, B]` as segments `[N, length]` of one column each, N = T B / length.

    Args:
        fields: what to cut; `mask`, where there is one, stays a field: 0 at rows that are no transition.
        prev_state: the state before every row, leaves `[T, B, layers, H]`; a segment keeps its first, `[N, 1, ...]`.
        done: `[T, B]`; `cut` says after which steps of a segment the state begins anew.

    Raises ConfigError where segments do not fill the rows.
    """
    rows = len(done)
    if rows % length:
        raise ConfigError(
            f"a rollout has {rows} rows of all env columns and policy.learn_unroll_len is {length}; wanted whole "
            "segments: make policy.collect.n_sample (segments of all columns) a multiple of env.collector_env_num, "
            f"which is {columns}, or policy.collect.n_step one of {columns * length}"
        )

    def cut(a: np.ndarray) -> np.ndarray:
        parts = a.reshape(rows // length, length, *a.shape[1:]).swapaxes(1, 2)  # [T / U, B, U, ...]
        return np.ascontiguousarray(parts).reshape(-1, length, *a.shape[2:])

    out = ArrayDict({name: tree_map(lambda a: cut(np.asarray(a)), value) for name, value in fields.items()})
    begins = done if "mask" not in fields else done | (np.asarray(fields["mask"]) == 0)
    out["cut"] = cut(1 - begins.astype(np.float32))
    out["prev_state"] = tree_map(lambda a: cut(np.asarray(a))[:, :1], prev_state)
    return out


def values_ahead(model: ModelWrapper, data: Block, at: np.ndarray, next_obs: Any) -> np.ndarray:
    """The values of `next_obs [K, ...]`, which follow the rows `at [K]` (flat), in the states that these lead to."""

    def rows(field: Any) -> Any:
        return tree_map(lambda a: torchify(np.asarray(a).reshape(-1, *a.shape[2:])[at]), field)

    with torch.no_grad():
        setting = {"mode": "compute_critic", "inference": True}
        before = model.forward({"obs": rows(data["obs"]), "prev_state": rows(data["prev_state"])}, **setting)
        after = {"obs": tree_map(torchify, next_obs), "prev_state": before["next_state"]}
        return model.forward(after, **setting)["value"].cpu().numpy()


def unroll(
    model: ModelWrapper, data: ArrayDict, mode: str = "compute_actor_critic"
) -> tuple[dict[str, Any], ArrayDict]:
    """The output of a recurrent network along segments `[U, N]`, and their fields, both flat: `[M]` of real steps.

    Args:
        model: with `hidden_state`.
        data: fields `[U, N, ...]`, `cut [U, N]`, optional `prev_state [1, N, ...]` (else the initial one) and `mask`.
        mode: what a network whose forward takes it is asked for.
    """
    if "prev_state" in data:
        model.reset(state=tree_map(lambda x: x[0], data["prev_state"]))
    else:
        model.reset()
    inputs = {"obs": data["obs"], "cut": data["cut"]}
    output = model.forward(inputs, inference=False, mode=mode)
    real = torch.nonzero(data["mask"].flatten() > 0).squeeze(-1) if "mask" in data else None

    def flat(x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        return x if real is None else x[real]

    left = ("obs", "prev_state", "cut", "mask", "index")
    fields = ArrayDict({name: tree_map(flat, value) for name, value in data.items() if name not in left})
    kept = [name for name in ("logit", "value", "aux_value") if name in output]
    return {name: tree_map(flat, output[name]) for name in kept}, fields


def evaluate(model: ModelWrapper, data: ArrayDict) -> dict[str, Any]:
    """`logit` and `value` `[U, N, ...]` of a network along segments.

    Args:
        data: `obs [U, N, ...]` and, for a recurrent network, `prev_state [1, N, ...]` and `cut [U, N]`. Any other gets
            all steps as one batch, in the order of the memory that stores give, `[N, U]`.
    """
    if model.keeps_state:
        model.reset(state=tree_map(lambda x: x[0], data["prev_state"]))
        inputs = {"obs": data["obs"], "cut": data["cut"]}
        return model.forward(inputs, inference=False, mode="compute_actor_critic")
    lead = leading_shape(data["obs"], 2)[::-1]
    obs = tree_map(lambda x: x.transpose(0, 1).flatten(0, 1), data["obs"])
    output = model.forward(obs, mode="compute_actor_critic")
    kept = [name for name in ("logit", "value") if name in output]
    return {name: tree_map(lambda x: x.unflatten(0, lead).transpose(0, 1), output[name]) for name in kept}


def blank(tree: Any, keep: torch.Tensor) -> Any:
    """Zeros in place of what stands where `keep [U, N]` (bool) is False."""
    if bool(keep.all()):
        return tree

    def leaf(x: torch.Tensor) -> torch.Tensor:
        return torch.where(keep.reshape(*keep.shape, *[1] * (x.dim() - 2)), x, x.new_zeros(()))

    return tree_map(leaf, tree)
