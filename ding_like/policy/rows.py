"""What a step stores, and the items that a replay keeps of rows."""

from __future__ import annotations

from typing import Any

from ding_like.data import ArrayDict, Block
from ding_like.rl_utils.adder import get_nstep_return_data


def acted_row(obs: Any, output: ArrayDict, timestep: Any) -> dict[str, Any]:
    """What a step stores in any case: fields `[B, ...]`; the action is the policy's own, not the env's."""
    raw = "raw_action" if "raw_action" in output else "action"
    state = {"prev_state": output["prev_state"]} if "prev_state" in output else {}
    return {
        **state,
        "obs": obs,
        "action": output[raw],
        "reward": timestep.reward,
        "next_obs": timestep.obs,
        "terminated": timestep.terminated,
    }


def replay_row(obs: Any, output: ArrayDict, timestep: Any) -> dict[str, Any]:
    """What a step stores for n-step learning from a replay."""
    return {**acted_row(obs, output, timestep), "done": timestep.done}


def replay_items(data: Block, nstep: int, gamma: float) -> Block:
    """n-step transitions; `discount` is gamma^k, 0 where the episode terminated, so no flag is stored."""
    data = get_nstep_return_data(data, nstep, cum_reward=True, gamma=gamma)
    data["discount"] = data["value_gamma"] * ~data["done"]  # [E, B]
    for name in ("value_gamma", "terminated", "truncated", "done"):
        data.pop(name, None)
    return data
