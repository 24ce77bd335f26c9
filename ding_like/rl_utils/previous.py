"""The step before as part of an observation: its form, which envs, networks and deployment agree on.

`{'env_obs': the env's own observation, 'prev_action': ..., 'prev_reward': ...}`, one of the last two or both. The
action is told as networks know it: whole numbers from 0 (-1: none), or of a Box the units in which that is [-1, 1]
(0: none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding_like.rl_utils.action_scale import ActionScale

FIELDS = ("prev_action", "prev_reward")
OWN = "env_obs"


class PreviousStep:
    """What is told of the step before.

    Args:
        fields: some of `FIELDS`.
        action: the action space as `envs.spaces.describe_space` tells it, with bounds.
    """

    def __init__(self, fields: Sequence[str], action: Mapping[str, Any]) -> None:
        unknown = [name for name in fields if name not in FIELDS]
        if unknown or not fields:
            raise ValueError(f"of the step before {list(fields)} is asked for; wanted some of {list(FIELDS)}")
        self.fields = tuple(fields)
        box = action["kind"] == "Box"
        self._scale = ActionScale(action["low"], action["high"], action["dtype"]) if box else None
        self.sizes = np.broadcast_to(action.get("n", 2), action["shape"])
        """Of actions that are whole numbers: how many there are, `()` or `[k]`."""
        self.shape = self.sizes.shape if self._scale is None else self._scale.low.shape
        """Of one `prev_action`."""
        self.dtype = np.dtype(np.int64 if self._scale is None else np.float32)

    def none(self, obs: Any, lead: tuple[int, ...] = ()) -> dict[str, Any]:
        """Observations `[*lead, ...]` at the start of an episode."""
        action = np.full((*lead, *self.shape), 0 if self._scale else -1, self.dtype)
        return self._joined(obs, action, np.zeros(lead, np.float32))

    def after(self, obs: Any, action: Any, reward: Any) -> dict[str, Any]:
        """Observations `[*lead, ...]` after the env's actions `[*lead, ...]`, counted from 0, and their rewards."""
        action = np.asarray(action)
        shown = action.astype(np.int64) if self._scale is None else self._scale.from_env(action)
        return self._joined(obs, shown, np.asarray(reward, np.float32))

    def _joined(self, obs: Any, action: np.ndarray, reward: np.ndarray) -> dict[str, Any]:
        told = dict(zip(FIELDS, (action, reward)))
        return {OWN: obs, **{name: told[name] for name in self.fields}}


def shows_previous(obs: Any) -> bool:
    """Whether an observation, or a mapping of its parts' spaces or specs, has the form with the step before."""
    if not isinstance(obs, Mapping):
        return False
    keys = set(obs.keys())
    return OWN in keys and 2 <= len(keys) == len(keys & {OWN, *FIELDS})


def own_obs(obs: Any) -> Any:
    """The env's own observation in one that may show the step before."""
    return obs[OWN] if shows_previous(obs) else obs


def network_inputs(inputs: Any) -> Any:
    """A recurrent network's inputs `{'obs': ..., ...}` with what `obs` shows of the step before beside it.

    Raises ValueError where observations that show the step before come to a feed-forward network.
    """
    if not isinstance(inputs, dict):
        return inputs
    if shows_previous(inputs):
        names = [f"policy.model.use_{name}" for name in FIELDS if name in inputs]
        raise ValueError(
            f"{', '.join(names)}: got True, wanted False with this network, which is feed-forward; choose a recurrent "
            "one, such as policy.model.type='drqn'"
        )
    obs: Any = inputs.get("obs")
    if not shows_previous(obs):
        return inputs
    return {**inputs, **{name: obs[name] for name in FIELDS if name in obs}, "obs": obs[OWN]}
