"""Cutting trajectories into windows of equal length, for recurrent policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ding_like.data import ArrayDict, Block, tree_index, tree_write
from ding_like.utils.default_helper import lists_to_dicts

LAST_FN_TYPES = ("last", "null_padding", "drop")
FLAGS = ("done", "terminated", "truncated")


def get_train_sample(
    data: Any,
    unroll_len: int,
    last_fn_type: str = "last",
    null_transition: dict | None = None,
    *,
    burnin: int = 0,
    stride: int | None = None,
    tail: int = 0,
) -> Any:
    """Windows of a trajectory, none of which crosses an episode's end.

    With the defaults, 6 steps give `[1,2,3] [4,5,6]` for ``unroll_len=3``, `[1,2,3,4] [3,4,5,6]` for 4 and
    `[1,2,3,4,5,6,null]` for 7. ``unroll_len=1`` returns the steps in the data's own form, with `null` and `mask`.

    A null step copies the nearest real step with ``reward=0`` and ``done=terminated=True``, and after the
    last step carries the final observation as `obs` where `next_obs` is known. `null` (bool) and `mask`
    (float32, 0 on null steps) are always there; `prev_state` keeps the first slot only.

    Args:
        data: an ArrayDict `[L]` or `[T, B]` with ends inside, a `Block` (of both, rows with ``mask=0`` belong to no
            window), or a list of transition dictionaries, which is one trajectory.
        last_fn_type: for a remainder: `last`, the last window ends with the trajectory and overlaps the one
            before (a trajectory shorter than a window is padded); `null_padding`; `drop`.
        null_transition: fields of one step that replace those of a null step.
        burnin: slots in front of the `unroll_len` ones, so that a window has ``burnin + unroll_len``.
        stride: steps from window to window; None means ``unroll_len - tail``.
        tail: last slots, only bootstrapped from: the steps a window trains are the ``unroll_len - tail``
            before.

    Returns:
        An ArrayDict `[N, U]`, or, for a list, a list of dictionaries whose fields are lists of length U.

    Raises TypeError, ValueError or KeyError naming an argument that does not fit, a field that is missing, or the step
    of a list that ends an episode before the last.
    """
    plan = plan_windows(unroll_len, last_fn_type, burnin, stride, tail)
    if isinstance(data, dict):
        return _steps_as_they_are(data) if plan.width == 1 else _window_arrays(data, plan, null_transition)
    if isinstance(data, Sequence) or hasattr(data, "popleft"):
        steps = _dictionaries(data)
        if plan.width == 1:
            return [{**step, "null": False, "mask": 1.0} for step in steps]
        _check_one_episode(steps)
        return _window_list(steps, plan, null_transition)
    raise TypeError(f"windows of a {type(data).__name__}; wanted an ArrayDict, a Block or a list of dictionaries")


class WindowPlan:
    """Where windows lie in a trajectory."""

    def __init__(self, span: int, stride: int, width: int, burnin: int, last_fn_type: str) -> None:
        self.span, self.stride, self.width, self.burnin = span, stride, width, burnin
        self.last_fn_type = last_fn_type

    def firsts(self, length: int) -> list[int]:
        """The first trained step of each window over `length` steps."""
        firsts = list(range(0, length - self.span + 1, self.stride))
        covered = firsts[-1] + self.span if firsts else 0
        if covered < length and self.last_fn_type != "drop":
            whole = self.last_fn_type == "last" and length >= self.span
            firsts.append(length - self.span if whole else len(firsts) * self.stride)
        return firsts

    def slots(self, firsts: Any) -> np.ndarray:
        """Step numbers `[N, U]` of the windows, out of range where a slot is null."""
        return np.asarray(firsts, np.int64).reshape(-1, 1) - self.burnin + np.arange(self.width)


def plan_windows(unroll_len: int, last_fn_type: str, burnin: int, stride: int | None, tail: int) -> WindowPlan:
    """The plan of `get_train_sample`'s arguments. Raises ValueError or TypeError naming one that does not fit."""
    for name, value in {"unroll_len": unroll_len, "burnin": burnin, "stride": stride, "tail": tail}.items():
        if not (hasattr(value, "__index__") and type(value) is not bool) and (name, value) != ("stride", None):
            raise TypeError(f"{name} is {value!r}; wanted a whole number of steps")
    if last_fn_type not in LAST_FN_TYPES:
        raise ValueError(f"last_fn_type is {last_fn_type!r}; choose one of {', '.join(LAST_FN_TYPES)}")
    if unroll_len < 1 or burnin < 0 or tail < 0:
        raise ValueError(f"unroll_len is {unroll_len}, burnin {burnin}, tail {tail}; wanted at least 1, 0 and 0")
    if unroll_len <= tail:
        raise ValueError(f"unroll_len is {unroll_len} and tail {tail}: no step would train; make unroll_len larger")
    span = unroll_len - tail
    step = span if stride is None else stride
    if not 1 <= step <= span:
        raise ValueError(f"stride is {step}; wanted 1 to unroll_len - tail = {span}, or steps would never train")
    return WindowPlan(span, step, burnin + unroll_len, burnin, last_fn_type)


def episode_ends(data: Any) -> Any:
    """Whether an episode ended at each row, as booleans: `done`, else `terminated | truncated`.

    Raises KeyError when there is no flag at all.
    """
    if "done" in data:
        done = data["done"]
    elif "terminated" in data:
        done = data["terminated"] | data["truncated"] if "truncated" in data else data["terminated"]
    else:
        raise KeyError(f"neither 'done' nor 'terminated' among {list(data.keys())}: one says where episodes end")
    return done if done.dtype in (np.bool_, torch.bool) else done != 0


def as_numpy(value: Any) -> np.ndarray:
    """An array or tensor of any device as a numpy array."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def row_ends(data: Any) -> np.ndarray:
    """Ends of episodes, also in n-step output, whose `done` means something else."""
    if isinstance(data, Block) and data.link is not None and data.link.hop is not None:
        return data.link.hop == 1  # or the last row, where every stretch ends anyway
    if "cut" in data:
        return as_numpy(data["cut"]) == 0
    both = {k: data[k] for k in ("terminated", "truncated") if k in data}
    return as_numpy(episode_ends(both if len(both) == 2 else data))


def _stretches(ends: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column, first and last row of every run of real rows inside one episode; both inputs `[T, B]`."""
    real, edge = mask != 0, np.ones((1, ends.shape[1]), bool)
    opens = real & np.concatenate([edge, (ends | ~real)[:-1]])
    closes = real & (ends | np.concatenate([~real[1:], edge]))
    column, first = np.nonzero(opens.T)
    return column, first, np.nonzero(closes.T)[1]


def _window_arrays(data: Any, plan: WindowPlan, null_transition: dict | None) -> ArrayDict:
    data, ends, final = _rows(data)
    mask = as_numpy(data["mask"]) if "mask" in data else np.ones(ends.shape, bool)
    flat = ends.ndim == 1
    if flat:
        ends, mask = ends[:, None], mask[:, None]
    column, first, last = _stretches(ends, mask)
    firsts = [plan.firsts(int(n)) for n in last - first + 1]
    owner = np.repeat(np.arange(len(first)), [len(f) for f in firsts])
    start, stop, column = first[owner, None], last[owner, None], column[owner, None]  # [N, 1]
    slots = start + plan.slots([f for group in firsts for f in group])  # [N, U]
    before, after = slots < start, slots > stop
    rows = np.clip(slots, start, stop)

    def pick(field: Any, t: np.ndarray) -> Any:
        return tree_index(field, t if flat else (t, column))

    out = ArrayDict()
    for name, field in dict.items(data):
        out[name] = pick(field, rows[:, :1] if name == "prev_state" else rows)
    if final is not None and after.any():
        window, slot = np.nonzero(after)
        tree_write(out["obs"], (window, slot), tree_index(pick(final, stop), (window, 0)))
    return mark_null(out, before | after, null_transition)


def _rows(data: Any) -> tuple[Any, np.ndarray, Any]:
    """The rows to cut, where their episodes end, and the observation after each (None if it is not known)."""
    ends = row_ends(data)
    if isinstance(data, Block):
        rows, ends = data[: data.starts], ends[: data.starts]
        if data.link is not None and "next_obs" not in dict.keys(data):
            return rows, ends, data.link.with_hop(None).materialise(data.starts)
        data = rows
    return data, ends, data["next_obs"] if "next_obs" in data and "obs" in data else None


def _steps_as_they_are(data: Any) -> Any:
    """The rows with `null` and `mask`: null are those that are no transition."""
    ends = episode_ends(data)
    null = as_numpy(data["mask"]) == 0 if "mask" in data else np.zeros(ends.shape, bool)
    return _with_null(data.copy(), null, ends)


def mark_null(out: ArrayDict, null: np.ndarray, null_transition: dict | None) -> ArrayDict:
    """Write what null slots `null [N, U]` hold into windows, and the fields `null` and `mask`.

    Raises KeyError for windows without a reward.
    """
    if "reward" not in out:
        raise KeyError(f"the data has no field 'reward', only {list(out.keys())}; wanted one, which is 0 at null steps")
    for name, value in (("reward", 0), ("cut", 0), ("done", True), ("terminated", True)):
        if name in out:
            out[name][null] = value
    for name, value in (null_transition or {}).items():
        tree_write(out[name], null, value)
    return _with_null(out, null, out["reward"])


def _with_null(out: Any, null: np.ndarray, like: Any) -> Any:
    for name, array in (("null", null), ("mask", (~null).astype(np.float32))):
        out[name] = torch.from_numpy(array).to(like.device) if isinstance(like, torch.Tensor) else array
    return out


def _dictionaries(data: Any) -> list[Mapping]:
    """The steps of a trajectory. Raises TypeError for one that is no dictionary."""
    for t, step in enumerate(data):
        if not isinstance(step, Mapping):
            raise TypeError(
                f"step {t} of the trajectory is a {type(step).__name__}; wanted a dictionary of its fields: a list is "
                "one trajectory, several of them want a call each"
            )
    return list(data)


def _check_one_episode(steps: list) -> None:
    """Raises ValueError where a step follows an end."""
    summed = "value_gamma" in steps[0] if steps else False  # n-step data show an end in the steps that reach it too
    for name in FLAGS:
        for t, (step, after) in enumerate(pairwise(steps)):
            reaches_an_end = (summed or name == "done") and _is_set(after, name)
            if _is_set(step, name) and not reaches_an_end:
                raise ValueError(
                    f"step {t} of {len(steps)} has {name}=True; wanted the steps of one episode, which ends with the "
                    "last: cut the list after each end, or give arrays with ends inside"
                )


def _is_set(step: Any, flag: str) -> bool:
    return bool(np.any(as_numpy(step[flag]))) if flag in step else False


def _window_list(steps: list, plan: WindowPlan, null_transition: dict | None) -> list[dict[str, Any]]:
    samples = []
    for slots in plan.slots(plan.firsts(len(steps))):
        window = []
        for slot in slots:
            real = bool(0 <= slot < len(steps))
            step = steps[slot] if real else _null_step(steps[0 if slot < 0 else -1], slot > 0, null_transition)
            window.append({**step, "null": not real, "mask": float(real)})
        sample = lists_to_dicts(window, keep=("prev_state",))
        if "prev_state" in sample:
            sample["prev_state"] = sample["prev_state"][:1]
        samples.append(sample)
    return samples


def _null_step(step: dict, after: bool, null_transition: dict | None) -> dict[str, Any]:
    if "reward" not in step:
        raise KeyError(f"the data has no field 'reward', only {list(step)}; wanted one, which is 0 at null steps")
    null = dict(step, reward=_filled(step["reward"], 0), done=_filled(step.get("done", True), 1))
    if "terminated" in step:
        null["terminated"] = _filled(step["terminated"], 1)
    if after and "obs" in step and "next_obs" in step:
        null["obs"] = step["next_obs"]
    return {**null, **(null_transition or {})}


def _filled(like: Any, number: int) -> Any:
    """`number` as the kind and shape of `like`."""
    if isinstance(like, torch.Tensor):
        return torch.full_like(like, number)
    return np.full_like(like, number) if isinstance(like, np.ndarray) else type(like)(number)
