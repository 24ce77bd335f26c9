"""What every recurrent network here offers: initial state, single step, unroll with exact resets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ding_like.data import tree_cat, tree_index, tree_map
from ding_like.torch_utils.network.numpy_cells import LARGEST, ParameterViews, Step, Tables, viewable

State = dict[str, torch.Tensor]


class Trace(NamedTuple):
    """What an unroll of `[T, B]` went through.

    Fields:
        output: `[T, B, H]`, the top layer's.
        state: after the last step, its cut applied: what step T would start from.
        saved: the states asked for, by position: after k steps, the cut of step k - 1 applied.
        ends: `[E, layers, H]` leaves, the state at the end of each stretch that a cut ended, before the reset.
        end_rows: int64 `[E]` ascending, the flat rows `t * B + b` of those cuts.
    """

    output: torch.Tensor
    state: State
    saved: list[State]
    ends: State
    end_rows: np.ndarray


class Recurrent(nn.Module):
    """Base of the recurrent networks.

    The state is a dictionary of leaves `[B, layers, H]`: `{'h', 'c'}` for an LSTM, `{'h'}` for a GRU. A list of B
    dictionaries (leaves `[layers, 1, H]` or `[layers, H]`; None is the initial state) is accepted in its place.
    `cut [T, B]` is 1 where an episode goes on and 0 where the state returns to the initial one after that step; no
    gradient flows across a cut.
    """

    state_names: tuple[str, ...] = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if value < 1:
                raise ValueError(f"{name} is {value!r}; wanted at least 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout!r}; wanted 0 <= dropout < 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.dropout = dropout
        self._views: ParameterViews | None = None
        self._steps: list[tuple[Step, list]] = []

    def initial_state(self, batch: int) -> State:
        """Zeros for `batch` columns, on the device and of the type of the parameters."""
        like = next(self.parameters())
        return {name: like.new_zeros(batch, self.num_layers, self.hidden_size) for name in self.state_names}

    def numpy_initial_state(self, batch: int) -> dict[str, np.ndarray]:
        """`initial_state` for `numpy_step`."""
        shape = batch, self.num_layers, self.hidden_size
        return {name: np.zeros(shape, np.float32) for name in self.state_names}

    def forward(
        self, x: torch.Tensor, prev_state: Any = None, cut: Any = None, list_next_state: bool = False
    ) -> tuple[torch.Tensor, Any]:
        """As `unroll`; with `list_next_state` the state comes as a list of B dictionaries, leaves `[layers, 1, H]`."""
        output, state = self.unroll(x, prev_state, cut)
        if not list_next_state:
            return output, state
        return output, [{k: leaf[b].unsqueeze(1) for k, leaf in state.items()} for b in range(x.shape[1])]

    def unroll(self, x: torch.Tensor, state: Any = None, cut: Any = None) -> tuple[torch.Tensor, State]:
        """`x [T, B, I]` to the outputs `[T, B, H]` and the state after the last step, its cut applied.

        Raises ValueError for a state, an input or a cut of another structure or shape.
        """
        return self.trace(x, state, cut)[:2]

    def trace(self, x: torch.Tensor, state: Any = None, cut: Any = None, saved: Sequence[int] = ()) -> Trace:
        """As `unroll`, with the states after the step counts `saved` (0 is the initial one) and at every cut."""
        self._check_input(x, "[T, B, I]")
        steps, batch = x.shape[:2]
        if steps == 0 or batch == 0:
            raise ValueError(f"x has shape {tuple(x.shape)}; wanted at least one step and one column")
        wrong = [k for k in saved if not 0 <= k <= steps]
        if wrong:
            raise ValueError(f"saved holds {wrong[0]!r}; wanted step counts from 0 to T = {steps}")
        state = self.adopt(state, batch)
        stop = _stops(cut, steps, batch)
        outputs, ends, after = [], [], {0: state}
        bounds = sorted({0, *saved, steps})
        parts = x.split([last - first for first, last in pairwise(bounds)])  # one backward, where slices have many
        for (first, last), part in zip(pairwise(bounds), parts):
            output, state, at_stops = self._window(part, state, stop[first:last])
            state = after[last] = reset(state, stop[last - 1])
            outputs.append(output)
            ends.append(at_stops)
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return Trace(joined, state, [after[k] for k in saved], tree_cat(ends), np.flatnonzero(stop))

    def step(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, State]:
        """One step for acting: `x [B, I]` to the output `[B, H]` and the next state. Errors as `unroll`."""
        self._check_input(x, "[B, I]")
        state = self.adopt(state, len(x))
        layers = []
        for layer in range(self.num_layers):
            x = self._between(layer, x)
            hidden = self._cell(layer, x, tuple(leaf.select(1, layer) for leaf in state.values()))
            layers.append(hidden)
            x = hidden[0]
        if len(layers) == 1:
            return x, {name: leaf.unsqueeze(1) for name, leaf in zip(self.state_names, layers[0])}
        return x, {name: torch.stack(leaves, 1) for name, leaves in zip(self.state_names, zip(*layers))}

    def numpy_ready(self) -> bool:
        """Whether `numpy_step` may be used: float32 on the CPU."""
        return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in self.parameters())

    def numpy_step(self, x: np.ndarray, state: Any = None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """`step` for arrays: `x [B, I]` and leaves `[B, layers, H]` in, `[B, H]` and such leaves out; no gradient.

        Small steps run in NumPy, on views that follow the parameters; equal to `step` to float32 rounding.
        """
        names, layers = self.state_names, []
        state = self.numpy_initial_state(len(x)) if state is None else state
        steps = self._numpy_steps(len(x))
        shape = len(x), self.num_layers, self.hidden_size
        if steps is None or [getattr(state.get(name), "shape", None) for name in names] != [shape] * len(names):
            return self._torch_step(x, state)
        for layer, (step, arrays) in enumerate(steps):
            hidden = step(x, *[state[name][:, layer].T for name in names], *arrays)  # [H, B] each
            layers.append(hidden)
            x = hidden[0].T  # [B, H]
        if len(layers) == 1:
            return x, {name: leaf.T[:, None] for name, leaf in zip(names, layers[0])}
        return x, {name: np.stack([leaf.T for leaf in leaves], 1) for name, leaves in zip(names, zip(*layers))}

    def _torch_step(self, x: np.ndarray, state: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        with torch.inference_mode():
            output, after = self.step(torch.as_tensor(x), tree_map(torch.as_tensor, state))
            return output.numpy(), {name: leaf.numpy() for name, leaf in after.items()}

    def _numpy_steps(self, columns: int) -> list[tuple[Step, list]] | None:
        """The step of each layer with its arrays; None where torch shall make it."""
        if columns * self.hidden_size * max(self.input_size, self.hidden_size) > LARGEST:
            return None
        if self.dropout and self.training:
            return None
        if self._views is None or self._views.moved():
            self._views, modules, tables = None, *self._numpy_parts()
            if not tables or not viewable(tables):
                return None
            self._views = ParameterViews(modules, tables)
            self._steps = [self._numpy_layer(arrays) for arrays in self._views.arrays]
        return self._steps

    def __getstate__(self) -> dict:
        # The views are of this object's memory; a copy makes its own.
        return {**self.__dict__, "_views": None, "_steps": []}

    def adopt(self, state: Any, batch: int) -> State:
        """A state as a tree of `[batch, layers, H]`: None becomes zeros, a list of dictionaries is stacked.

        Raises ValueError where structure or shape differ from that, TypeError for a leaf that is no tensor.
        """
        if state is None:
            return self.initial_state(batch)
        if isinstance(state, list):
            return self._stack(state, batch)
        wanted = (batch, self.num_layers, self.hidden_size)
        if not isinstance(state, dict) or set(state) != set(self.state_names):
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(
                f"the state of {type(self).__name__} is {got}; wanted a dictionary of {list(self.state_names)} "
                f"with leaves [B, layers, H] = {wanted}, a list of {batch} such rows, or None"
            )
        for name in self.state_names:
            leaf = state[name]
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(f"state['{name}'] is a {type(leaf).__name__}; wanted a torch tensor")
            if leaf.shape != wanted:
                raise ValueError(f"state['{name}'] has shape {tuple(leaf.shape)}; wanted [B, layers, H] = {wanted}")
        return {name: state[name] for name in self.state_names}

    def _stack(self, rows: list, batch: int) -> State:
        if len(rows) != batch:
            raise ValueError(f"the state is a list of {len(rows)}; wanted one entry for each of {batch} columns")
        zero = tree_index(self.initial_state(1), 0)
        rows = [zero if row is None else row for row in rows]
        for b, row in enumerate(rows):
            if not isinstance(row, dict) or set(row) != set(self.state_names):
                got = sorted(map(str, row)) if isinstance(row, dict) else type(row).__name__
                raise ValueError(f"entry {b} of the state is {got}; wanted a dictionary of {list(self.state_names)}")
            for name in self.state_names:
                if row[name].shape not in (zero[name].shape, zero[name].unsqueeze(1).shape):
                    raise ValueError(
                        f"entry {b} of the state has '{name}' of shape {tuple(row[name].shape)}; "
                        f"wanted [layers, 1, H] = {(self.num_layers, 1, self.hidden_size)}"
                    )
        return {n: torch.stack([row[n].reshape(zero[n].shape) for row in rows]) for n in self.state_names}

    def _check_input(self, x: torch.Tensor, axes: str) -> None:
        if x.ndim != axes.count(",") + 1 or x.shape[-1] != self.input_size:
            raise ValueError(f"x has shape {tuple(x.shape)}; wanted {axes} with I = input_size = {self.input_size}")

    def _between(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """The input of a layer: dropout stands between layers while training."""
        return nn.functional.dropout(x, self.dropout, self.training) if layer and self.dropout else x

    def _cell(self, layer: int, x: torch.Tensor, hidden: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """One step of one layer: `x [B, I]` and leaves `[B, H]` to the new leaves, the output first."""
        raise NotImplementedError

    def _numpy_parts(self) -> tuple[Sequence[nn.Module], Tables]:
        """What `ParameterViews` takes, a table for each layer; no tables where the cell has no NumPy form."""
        return [], []

    def _numpy_layer(self, arrays: list[np.ndarray]) -> tuple[Step, list]:
        """The step of a layer, and what it takes of the views of its parameters."""
        raise NotImplementedError

    def _window(self, x: torch.Tensor, state: State, stop: np.ndarray) -> tuple[torch.Tensor, State, State]:
        """Outputs `[T, B, H]`, the state after the last step before any reset, and the states `[E, ...]` at stops."""
        raise NotImplementedError


def _stops(cut: Any, steps: int, batch: int) -> np.ndarray:
    """Bool `[T, B]`: after which steps the state returns to the initial one. Errors as `Recurrent.unroll`."""
    if cut is None:
        return np.zeros((steps, batch), bool)
    array = cut.detach().cpu().numpy() if isinstance(cut, torch.Tensor) else np.asarray(cut)
    if array.shape != (steps, batch):
        raise ValueError(f"cut has shape {array.shape}; wanted [T, B] = {(steps, batch)}")
    stop = array == 0
    odd = ~(stop | (array == 1))
    if odd.any():
        raise ValueError(f"cut holds {array[odd][0]}; wanted 1 (goes on) or 0 (ends after that step)")
    return stop


def reset(state: State, stop: np.ndarray) -> State:
    """The initial state (zeros) in the columns of `stop [B]`, whatever stood there."""
    if not stop.any():
        return state
    rows = torch.as_tensor(np.flatnonzero(stop), device=state["h"].device)
    return tree_map(lambda leaf: leaf.index_fill(0, rows, 0.0), state)
