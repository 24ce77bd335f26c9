"""What recurrent networks share: the inputs and outputs of a call, and the memory between encoder and head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.data import tree_map
from ding_like.torch_utils.network.mlp import numpy_ready
from ding_like.torch_utils.network.rnn import get_lstm

TIMESTEPS = "saved_hidden_state_timesteps"
SAVED = ("saved_hidden_state", "saved_state")


class Call:
    """One call of a recurrent network: its inputs, checked, and the form of its output.

    Args:
        inputs: `{'obs', 'prev_state'}`, where wanted with `cut [T, B]` (0: the state returns to the initial one after
            that step), `prev_action` and `prev_reward`. `prev_state` is a tree `[B, layers, H]`, a list of B such
            rows, or None or left out for the initial state.
        inference: one step `[B, ...]` instead of an unroll `[T, B, ...]`.
        timesteps: the numbers of steps after which the state is asked for; 0 is before the first.

    Raises TypeError for inputs of another kind, ValueError for what only an unroll takes given with one step.
    """

    def __init__(self, inputs: Any, inference: bool, timesteps: Sequence[int] | None = None) -> None:
        if not isinstance(inputs, dict) or "obs" not in inputs:
            got = f"a dictionary of {list(inputs)}" if isinstance(inputs, dict) else f"a {type(inputs).__name__}"
            raise TypeError(
                f"a recurrent network got {got}; wanted {{'obs': ..., 'prev_state': ...}}, as the 'hidden_state' "
                "wrapper gives it"
            )
        self.inputs, self.inference, self.timesteps = inputs, inference, timesteps
        self.obs, self.state, self.cut = inputs["obs"], inputs.get("prev_state"), inputs.get("cut")
        if inference and (timesteps is not None or self.cut is not None):
            name = "cut" if timesteps is None else TIMESTEPS
            raise ValueError(f"{name} is given for one step; wanted an unroll [T, B, ...], inference=False")

    def part(self, name: str, names: Sequence[str]) -> Any:
        """The state of one of the memories `names`. Raises ValueError where `prev_state` is not of these parts."""
        if isinstance(self.state, list):
            return [None if row is None else _part(row, name, names) for row in self.state]
        return None if self.state is None else _part(self.state, name, names)

    def output(self, output: dict[str, Any], state: Any, saved: list) -> dict[str, Any]:
        """`output` with `next_state` and, where asked for, the saved states under both names."""
        output["next_state"] = state
        if self.timesteps is not None:
            output.update(dict.fromkeys(SAVED, saved))
        return output


class Memory(nn.Module):
    """An RNN between an encoder and a head.

    Args:
        feature_size: of the encoder's output.
        hidden_size: of its own.
        lstm_type: see `get_lstm`.
        num_layers: of the RNN.
        previous: the last action and reward as further inputs; None: without.
    """

    def __init__(
        self, feature_size: int, hidden_size: int, lstm_type: str, num_layers: int, previous: PreviousStep | None
    ) -> None:
        super().__init__()
        self.previous = previous
        extra = 0 if previous is None else previous.output_size
        self.rnn: Any = get_lstm(lstm_type, feature_size + extra, hidden_size, num_layers)

    def forward(self, features: torch.Tensor, call: Call, state: Any) -> tuple[torch.Tensor, Any, list]:
        """Features `[B, F]` or `[T, B, F]` to `[B, H]` or `[T, B, H]`, the next state and the saved states.

        Raises ValueError for leading axes that are not those of the call, and as `Recurrent.trace`.
        """
        if features.ndim != (2 if call.inference else 3):
            wanted = "[B, ...] for one step" if call.inference else "[T, B, ...] for an unroll"
            raise ValueError(
                f"obs has the leading axes {list(features.shape[:-1])}; wanted {wanted}, inference={call.inference}"
            )
        if self.previous is not None:
            features = self.previous(features, call.inputs)
        if call.inference:
            return *self.rnn.step(features, state), []
        asked, steps = call.timesteps or (), len(features)
        if any(not 0 <= k <= steps for k in asked):
            raise ValueError(f"{TIMESTEPS} is {list(asked)}; wanted numbers of steps from 0 to {steps}, those of obs")
        trace = self.rnn.trace(features, state, call.cut, asked)
        return trace.output, trace.state, trace.saved

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` may be used: the RNN has one, and the last action and reward are no inputs."""
        return self.previous is None and numpy_ready(self.rnn)

    def numpy_forward(self, features: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """One step for acting, in arrays: features `[B, F]` to `[B, H]` and the next state."""
        if self.previous is not None:
            raise AttributeError("numpy_forward")  # as where a part has none
        rnn: Any = self._modules["rnn"]  # nn.Module's own look-up is slow
        return rnn.numpy_step(features, state)

    def idle(self, call: Call, state: Any, columns: int) -> tuple[Any, list]:
        """The next and the saved states of a memory that the call does not ask: as it was, reset where it is cut."""
        first = self.rnn.adopt(state, columns)

        def after(steps: int | None) -> Any:
            if call.cut is None:
                return first
            goes_on = (
                torch.as_tensor(call.cut, device=first["h"].device)[:steps].ne(0).all(0)[:, None, None]
            )  # [B, 1, 1]
            return tree_map(lambda leaf: leaf.where(goes_on, 0.0), first)

        return after(None), [after(k) for k in call.timesteps or ()]


class PreviousStep(nn.Module):
    """The last action (one-hot where discrete) and the last reward beside the features.

    `prev_action` is int64 `[...]`, `[..., k]` for 'multi_discrete', -1 for none (all zeros); `[..., d]` for
    'continuous', zeros for none. `prev_reward` is `[...]`.

    Args:
        action_shape: number of actions A, list of such numbers, or number of dimensions d.
        action_space: 'discrete', 'multi_discrete' or 'continuous'.
        use_action, use_reward: which of the two.
    """

    def __init__(self, action_shape: Any, action_space: str, use_action: bool, use_reward: bool) -> None:
        super().__init__()
        self.use_action, self.use_reward, self.continuous = use_action, use_reward, action_space == "continuous"
        self.choice: Any
        self.owner: Any
        sizes = action_shape if action_space == "multi_discrete" else [action_shape]
        self._axes = {"discrete": (), "multi_discrete": (len(sizes),), "continuous": (action_shape,)}[action_space]
        if use_action and not self.continuous:
            pairs = [(i, choice) for i, n in enumerate(sizes) for choice in range(n)]
            owner, choice = torch.as_tensor(pairs).unbind(1)
            self.register_buffer("owner", owner.contiguous(), persistent=False)
            self.register_buffer("choice", choice.contiguous(), persistent=False)
        self.output_size = use_action * sum(sizes) + use_reward

    def forward(self, features: torch.Tensor, inputs: dict) -> torch.Tensor:
        """Features `[..., F]` to `[..., F + output_size]`. Raises KeyError or ValueError for a missing or odd input."""
        lead, parts = tuple(features.shape[:-1]), [features]
        if self.use_action:
            action = _field(inputs, "prev_action", (*lead, *self._axes), features)
            if not self.continuous:
                each = action.index_select(-1, self.owner) if self._axes else action.unsqueeze(-1)
                action = torch.eq(each, self.choice)  # [..., sum of A]
            parts.append(action.to(features.dtype))
        if self.use_reward:
            parts.append(_field(inputs, "prev_reward", lead, features).to(features.dtype).unsqueeze(-1))
        return torch.cat(parts, -1)


def previous_step(
    action_shape: Any, action_space: str, use_prev_action: bool, use_prev_reward: bool
) -> PreviousStep | None:
    """The further inputs of a memory; None where neither is used."""
    wanted = use_prev_action or use_prev_reward
    return PreviousStep(action_shape, action_space, use_prev_action, use_prev_reward) if wanted else None


def refuse_state(inputs: Any, advice: str) -> None:
    """Raises ValueError where a feed-forward network gets the inputs of a recurrent one."""
    if isinstance(inputs, dict) and "prev_state" in inputs and "obs" in inputs:
        raise ValueError(
            "hidden_state: the network is feed-forward, it takes no prev_state and gives no next_state; "
            f"{advice}, or leave the 'hidden_state' wrapper out"
        )


def _part(state: Any, name: str, names: Sequence[str]) -> Any:
    if not isinstance(state, dict) or set(state) != set(names):
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"prev_state holds {got}; wanted a dictionary of {list(names)}, a state for each")
    return state[name]


def _field(inputs: dict, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    if name not in inputs:
        raise KeyError(
            f"the network's use_{name} is set and its inputs {list(inputs)} lack '{name}'; in a run the config's "
            f"policy.model.use_{name}=True makes the envs show it"
        )
    value = torch.as_tensor(inputs[name], device=like.device)
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} has shape {list(value.shape)}; wanted {list(shape)}")
    return value
