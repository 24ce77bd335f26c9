"""From rows of experience to train samples: masks, n-step returns, windows (these in `windows.py`).

Gamma and `done` are read here and nowhere else.
`done` of the input says that an episode ended at that row; `done` of an n-step output says *do not
bootstrap*: terminated at the last step the return sums. Data without `terminated` is taken literally: `done`
is terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ding_like.data import ArrayDict, Block, tree_index
from ding_like.rl_utils.gae import gae, gae_data
from ding_like.rl_utils.windows import FLAGS, as_numpy, episode_ends, get_train_sample

__all__ = ["get_gae", "get_gae_with_default_last_value", "get_nstep_return_data", "get_train_sample", "make_masks"]


def make_masks(data: Any, gamma: float) -> tuple[Any, Any]:
    """`discount = gamma * (1 - terminated)` and `cut = 1 - done`, in the shape of the flags.

    Args:
        data: tree with `done` and/or `terminated`; without `terminated`, `done` is taken for it.

    Returns:
        Two arrays of the flags' kind (numpy or torch), in the reward's dtype if that is floating, else
        float32.
    """
    done = episode_ends(data)
    terminated = data.get("terminated", done)
    reward = data.get("reward")
    if isinstance(terminated, torch.Tensor):
        kind = reward.dtype if reward is not None and reward.is_floating_point() else torch.float32
        return gamma * (1 - terminated.to(kind)), 1 - done.to(kind)
    dtype = _float_dtype(reward)
    return gamma * (1 - np.asarray(terminated).astype(dtype)), 1 - np.asarray(done).astype(dtype)


def get_gae(
    data: Sequence[dict], last_value: torch.Tensor, gamma: float, gae_lambda: float, cuda: bool
) -> list[dict[str, Any]]:
    """The steps of one trajectory as new dictionaries with their advantage `adv`, the shape of their `value`.

    Args:
        data: steps in order with tensors `value` and `reward`; only the last may end an episode, and nothing
            is bootstrapped where it is terminated.
        last_value: the value of the observation after the last step, the shape of a step's `value`.
        cuda: taken for DI-engine's sake; the scan is quicker on the CPU.
    """
    if not data:
        return []
    if any(step.get("done", False) for step in list(data)[:-1]):
        raise ValueError("a step before the last has done=True; wanted the steps of one trajectory")
    value = torch.stack([step["value"] for step in data])  # [L, ...]
    reward = torch.stack([step["reward"] for step in data]).reshape(len(data), *[1] * (value.dim() - 1))
    next_value = torch.cat([value[1:], last_value.reshape(value[:1].shape)])
    done = torch.zeros_like(value)
    done[-1] = float(_terminal(data[-1]))
    adv = gae(gae_data(value, next_value, reward.expand_as(value), done, None), gamma, gae_lambda)
    return [dict(step, adv=a) for step, a in zip(data, adv)]


def get_gae_with_default_last_value(
    data: Sequence[dict], done: bool, gamma: float, gae_lambda: float, cuda: bool
) -> list[dict[str, Any]]:
    """`get_gae` where nobody knows the value after the last step.

    If the trajectory is `done` that value is 0; else, and where its end was a truncation, the last step gives
    its own value for it and is left out of the answer. A deque is accepted, and left as it is.
    """
    steps = list(data)
    if steps and done and _terminal(dict(steps[-1], done=True)):
        return get_gae(steps, torch.zeros_like(steps[-1]["value"]), gamma, gae_lambda, cuda)
    return get_gae(steps[:-1], steps[-1]["value"], gamma, gae_lambda, cuda) if steps else []


def _terminal(step: dict) -> bool:
    """Whether a transition has no future: terminated, or done where the data cannot tell a truncation."""
    if "terminated" in step:
        return bool(step["terminated"])
    return bool(step.get("done", False)) and not bool(step.get("truncated", False))


def get_nstep_return_data(
    data: Any, nstep: int, cum_reward: bool = False, correct_terminate_gamma: bool = True, gamma: float = 0.99
) -> Any:
    """Each step with the rewards of `nstep` steps; a return stops at an episode's end and at the data's edge.

    Fields of the output: `reward` `[..., nstep]`, zero beyond the true distance k (``cum_reward``: the
    discounted sum `[...]`; ``nstep=1``: as it was); `value_gamma` = gamma^k; `done` = do not bootstrap;
    `terminated`, `truncated` (where present) and `next_obs` of the last step summed; everything else of the
    first. A `next_obs` that is not in the data is not made.

    Args:
        data: an ArrayDict `[L]` or `[T, B]` (episode ends inside allowed), a collector's `Block`, or a list
            of transition dictionaries.
        correct_terminate_gamma: False gives gamma^nstep everywhere, whatever the distance.

    Returns:
        The same kind, the input left as it is: an ArrayDict, with `cut` (0 where an episode ended) for
        ``nstep > 1``; a Block of `starts` rows whose link holds k as `hop`; or a list of new dictionaries.
        Arrays that did not change are shared with the input.
    """
    if nstep < 1:
        raise ValueError(f"nstep is {nstep}; wanted at least 1")
    value_gamma = None if correct_terminate_gamma else gamma**nstep
    if isinstance(data, dict):
        arrays = _nstep_block if isinstance(data, Block) else _nstep_arrays
        return arrays(data, nstep, cum_reward, gamma, value_gamma)
    if isinstance(data, Sequence) or hasattr(data, "popleft"):
        return _nstep_list(list(data), nstep, cum_reward, gamma, value_gamma)
    raise TypeError(f"n-step data is a {type(data).__name__}; wanted an ArrayDict, a Block or a list of dictionaries")


def _nstep_block(block: Any, nstep: int, cum_reward: bool, gamma: float, value_gamma: float | None) -> Block:
    """`next_obs` by reference stays one: only the distance is written down."""
    starts, fields = block.starts, dict(dict.items(block))
    link = None if "next_obs" in fields else block.link
    if len(fields["reward"]) != starts:
        first = slice(starts)
        fields = {k: tree_index(v, first) for k, v in fields.items()}
    made, hop = _nstep_fields(block, starts, nstep, cum_reward, gamma, value_gamma)
    fields.update(made)
    if link is None and hop is not None:
        fields["cut"] = _cut(block, made["value_gamma"])[:starts]
        if "next_obs" in fields:
            fields["next_obs"] = _last_obs(block["next_obs"], hop)
    return Block(fields, starts, link if link is None else link.with_hop(hop))


def _nstep_arrays(data: Any, nstep: int, cum_reward: bool, gamma: float, value_gamma: float | None) -> ArrayDict:
    reward = data["reward"]
    made, hop = _nstep_fields(data, len(reward), nstep, cum_reward, gamma, value_gamma)
    if hop is not None:
        made["cut"] = _cut(data, made["value_gamma"])
    out = ArrayDict(dict.items(data))
    for name, value in made.items():
        out[name] = _owned(value, data[name] if name in FLAGS and name in data else None, reward)
    if hop is not None and "next_obs" in data:
        out["next_obs"] = _last_obs(data["next_obs"], hop)
    return out


def _cut(data: Any, like: np.ndarray) -> np.ndarray:
    return (~episode_ends(_flags(data))).astype(like.dtype)


def _last_obs(next_obs: Any, hop: np.ndarray) -> Any:
    """`next_obs` of the last step each return sums."""
    last = np.arange(len(hop)).reshape((-1,) + (1,) * (hop.ndim - 1)) + hop - 1
    return tree_index(next_obs, last if hop.ndim == 1 else (last, np.arange(hop.shape[1])))


def _nstep_fields(
    data: Any, starts: int, nstep: int, cum_reward: bool, gamma: float, value_gamma: float | None
) -> tuple[dict[str, Any], np.ndarray | None]:
    """The fields an n-step return changes, for the first `starts` rows, and the distances k (None: all 1)."""
    if nstep == 1:
        done = data["terminated" if "terminated" in data else "done"][:starts]
        if isinstance(done, np.ndarray) and done.dtype != np.bool_ and isinstance(data, Block):
            done = done != 0
        return {
            "done": done,
            "value_gamma": _constants(done.shape, 1, gamma, _float_dtype(data["reward"]))[1],
        }, None
    flags, reward = _flags(data), as_numpy(data["reward"])
    dtype = _float_dtype(reward)
    if reward.dtype != dtype:
        reward = reward.astype(dtype)
    out, hop, last = _accumulate(reward, flags, starts, nstep, cum_reward, gamma)
    if hop is None:
        hop, discount = _constants(last["done"].shape, nstep, gamma, dtype)
    else:
        discount = (gamma ** np.arange(nstep + 1, dtype=np.float64)).astype(dtype)[hop]
    if value_gamma is not None:
        discount = np.full(hop.shape, value_gamma, dtype)
    return {**last, "reward": out, "value_gamma": discount}, hop


def _accumulate(
    reward: np.ndarray, flags: dict[str, np.ndarray], starts: int, nstep: int, cum_reward: bool, gamma: float
) -> tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray]]:
    """Summed (or stacked) rewards, distances (None: all `nstep`), flags at the last step of each return."""
    ends = episode_ends(flags)
    terminal = flags.get("terminated", ends)
    length = len(reward)
    last = {k: v[:starts] for k, v in flags.items()}
    last["done"] = terminal[:starts]
    whole = length >= starts + nstep - 1 and not ends.any()
    if not whole:
        alive, hop = ~ends[:starts], np.ones((starts, *ends.shape[1:]), np.int64)
        last = {k: v.copy() for k, v in last.items()}
    if cum_reward:
        out = reward[:starts].copy()
    else:
        out = np.zeros((starts, *reward.shape[1:], nstep), reward.dtype)
        out[..., 0] = reward[:starts]
    for i in range(1, nstep):
        n = min(starts, length - i)  # starts whose i-th next row exists
        if n <= 0:
            break
        ahead = reward[i : i + n]
        if not whole:
            on = alive[:n]
            ahead = np.where(on.reshape(on.shape + (1,) * (ahead.ndim - on.ndim)), ahead, 0)
            hop[:n] += on
            for name, flag in last.items():
                flag[:n] |= on & (terminal if name == "done" else flags[name])[i : i + n]
            on &= ~ends[i : i + n]
        if cum_reward:
            out[:n] += gamma**i * ahead
        else:
            out[:n, ..., i] = ahead
    return out, None if whole else hop, last


@lru_cache(maxsize=64)
def _constants(shape: tuple[int, ...], nstep: int, gamma: float, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distance and discount of returns that nothing cuts short; shared between calls, hence read-only."""
    hop, discount = np.full(shape, nstep, np.int64), np.full(shape, gamma**nstep, dtype)
    hop.flags.writeable = discount.flags.writeable = False
    return hop, discount


def _nstep_list(
    steps: list, nstep: int, cum_reward: bool, gamma: float, value_gamma: float | None
) -> list[dict[str, Any]]:
    """DI-engine's form: one dictionary a step, with scalar, `[1]` or `[A]` rewards, numpy or torch."""
    if not steps:
        return []
    reward = np.stack([_number(s["reward"]) for s in steps])
    single = reward.shape[1:] == (1,)
    data = ArrayDict(reward=reward[:, 0] if single else reward)
    for name in FLAGS:
        if name in steps[0]:
            data[name] = np.stack([as_numpy(s[name]) for s in steps]).reshape(len(steps)) != 0
    made, hop = _nstep_fields(data, len(steps), nstep, cum_reward, gamma, value_gamma)
    out = []
    for t, old in enumerate(steps):
        new = dict(old, value_gamma=float(made["value_gamma"][t]))
        for name in FLAGS:
            if name in made:
                new[name] = _flag_like(made[name][t], old.get(name, False))
        if hop is not None:
            summed = made["reward"][t]
            new["reward"] = _like(summed[None] if single and cum_reward else summed, old["reward"])
            if "next_obs" in old:
                new["next_obs"] = steps[t + int(hop[t]) - 1]["next_obs"]
        out.append(new)
    return out


def _flags(data: Any) -> dict[str, np.ndarray]:
    """The end flags there are, as boolean numpy arrays."""
    found = {k: as_numpy(data[k]) for k in FLAGS if k in data}
    return {k: v if v.dtype == np.bool_ else v != 0 for k, v in found.items()}


def _float_dtype(reward: Any) -> np.dtype:
    """The dtype returns are computed in: the reward's own if floating, else float32."""
    if isinstance(reward, torch.Tensor):
        reward = np.empty(0, str(reward.dtype).removeprefix("torch."))
    floating = isinstance(reward, np.ndarray) and reward.dtype.kind == "f"
    return reward.dtype if floating else np.dtype(np.float32)


def _number(value: Any) -> np.ndarray:
    """A reward as an array; plain Python numbers become float32, the dtype they are trained in."""
    return np.asarray(value, np.float32) if type(value) in (int, float, bool) else as_numpy(value)


def _like(value: Any, example: Any) -> Any:
    """A return as the kind of `example`: a tensor, an array or, for a scalar, a Python number."""
    if isinstance(example, torch.Tensor):
        kind = example.dtype if example.dtype.is_floating_point else torch.float32
        return torch.tensor(value, dtype=kind, device=example.device)
    return np.asarray(value) if isinstance(example, np.ndarray) or np.ndim(value) else value.item()


def _flag_like(value: Any, example: Any) -> Any:
    """A flag as the kind, dtype and shape of `example`."""
    if isinstance(example, torch.Tensor):
        return torch.full_like(example, bool(value))
    return np.full_like(example, value) if isinstance(example, np.ndarray) else type(example)(value)


def _owned(value: Any, flag: Any, reward: Any) -> Any:
    """A copy of its own, a tensor where the data are tensors, in the dtype of the input's `flag` if given."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(reward, torch.Tensor):
        return torch.tensor(value, dtype=None if flag is None else flag.dtype, device=reward.device)
    return np.array(value, dtype=None if flag is None else flag.dtype)
