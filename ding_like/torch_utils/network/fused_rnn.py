"""torch's LSTM and GRU with exact resets: fused kernels over stretches that no cut interrupts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.torch_utils.network.numpy_cells import Step, Tables, gru_step, lstm_step
from ding_like.torch_utils.network.recurrent import Recurrent, State

Hidden = tuple[torch.Tensor, ...]  # leaves [layers, B, H], the kernel's order


class FusedRNN(Recurrent):
    """An `nn.LSTM` or `nn.GRU` (`core`) that may be cut anywhere; `kind` is 'lstm' or 'gru'.

    A window with cuts at few distinct times is split there for all columns. With many, its stretches (a column between
    two cuts) become rows of a larger batch and run in about log2 T calls, so that the cost hardly grows with the
    number of cuts.
    """

    def __init__(self, kind: str, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        between = dropout if num_layers > 1 else 0.0  # torch warns where no layer follows
        network = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.core: Any = network(input_size, hidden_size, num_layers=num_layers, dropout=between)
        self.state_names = ("h", "c") if kind == "lstm" else ("h",)

    def _cell(self, layer: int, x: torch.Tensor, hidden: Hidden) -> Hidden:
        weights = self.core.all_weights[layer]
        if len(hidden) == 2:
            return torch.lstm_cell(x, hidden, *weights)
        return (torch.gru_cell(x, *hidden, *weights),)

    def _numpy_parts(self) -> tuple[Sequence[nn.Module], Tables]:
        if type(self)._cell is not FusedRNN._cell or type(self.core) not in (nn.LSTM, nn.GRU):
            return [], []
        names = ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l")
        layers = range(self.num_layers)
        return [self], [(self.core._parameters, [f"{name}{layer}" for name in names]) for layer in layers]

    def _numpy_layer(self, arrays: list[np.ndarray]) -> tuple[Step, list]:
        step, gates = (lstm_step, 4) if len(self.state_names) == 2 else (gru_step, 3)
        return step, [array.reshape(gates, self.hidden_size, -1) for array in arrays]

    def _run(self, x: torch.Tensor, hidden: Hidden) -> tuple[torch.Tensor, Hidden]:
        if len(hidden) == 2:
            return self.core(x, hidden)
        output, last = self.core(x, *hidden)
        return output, (last,)

    def _window(self, x: torch.Tensor, state: State, stop: np.ndarray) -> tuple[torch.Tensor, State, State]:
        hidden = tuple(leaf.transpose(0, 1).contiguous() for leaf in state.values())
        times = np.flatnonzero(stop[:-1].any(1)) + 1
        plan = Stretches(stop) if len(times) > 2 else None
        if plan is None or len(times) <= len(plan.rounds):
            output, last, ends = self._split(x, hidden, stop, times)
        else:
            output, last, ends = self._rebatch(x, hidden, plan)
        return output, self._tree(last), self._tree(ends)

    def _tree(self, hidden: Hidden) -> State:
        return {name: leaf.transpose(0, 1) for name, leaf in zip(self.state_names, hidden)}

    def _split(
        self, x: torch.Tensor, hidden: Hidden, stop: np.ndarray, times: np.ndarray
    ) -> tuple[torch.Tensor, Hidden, Hidden]:
        """One call for each stretch of time between the distinct `times` of cuts."""
        outputs, ends = [], []
        bounds = [0, *times.tolist(), len(x)]
        for last, part in zip(bounds[1:], x.split(np.diff(bounds).tolist())):
            output, hidden = self._run(part, hidden)
            outputs.append(output)
            ended = torch.as_tensor(np.flatnonzero(stop[last - 1]), device=x.device)
            ends.append([leaf.index_select(1, ended) for leaf in hidden])
            if last < len(x):
                hidden = tuple(leaf.index_fill(1, ended, 0.0) for leaf in hidden)
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return joined, hidden, tuple(torch.cat(leaves, 1) for leaves in zip(*ends))

    def _rebatch(self, x: torch.Tensor, hidden: Hidden, plan: Stretches) -> tuple[torch.Tensor, Hidden, Hidden]:
        """Every stretch a row of its own; a round is one call."""
        steps, batch, _ = x.shape

        def index(array: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(array, device=x.device)

        order, place, first = index(plan.order), index(plan.place), index(plan.first)
        layers, size = self.num_layers, self.hidden_size
        hidden = tuple(h.new_zeros(layers, len(plan.lengths), size).index_copy(1, first, h) for h in hidden)
        outputs = []
        rows = _Take.apply(x.reshape(steps * batch, -1), order, place)
        parts = rows.split([length * len(members) for length, members in plan.rounds])
        for (length, members), part in zip(plan.rounds, parts):
            one = index(members)
            start = tuple(h.index_select(1, one) for h in hidden)
            output, after = self._run(part.view(length, len(members), -1), start)
            hidden = tuple(h.index_copy(1, one, new) for h, new in zip(hidden, after))
            outputs.append(output.reshape(-1, size))
        output = _Take.apply(torch.cat(outputs), place, order).view(steps, batch, size)
        last, ended = index(plan.last), index(plan.ended)
        return (
            output,
            tuple(h.index_select(1, last) for h in hidden),
            tuple(h.index_select(1, ended) for h in hidden),
        )


class Stretches:
    """The stretches of a window, column by column, and how to run them; from `stop [T, B]`.

    Fields: `lengths [S]`; `rounds`, pairs (steps, stretches that go on for so many); `order [T * B]`, the flat row
    `t * B + b` of each step as the rounds meet it, and `place`, its inverse; the stretches that are `first` and `last`
    of the columns; those `ended` by a cut, in the order of the cuts' rows.
    """

    def __init__(self, stop: np.ndarray) -> None:
        steps, batch = stop.shape
        ends_here = stop.T.copy()
        ends_here[:, -1] = True
        end = np.flatnonzero(ends_here)  # b * T + t
        start = np.concatenate([[0], end[:-1] + 1])
        self.lengths = end - start + 1
        self.first = np.flatnonzero(start % steps == 0)
        self.last = np.flatnonzero(end % steps == steps - 1)
        cut = np.flatnonzero(stop.T.ravel()[end])
        self.ended = cut[np.argsort(end[cut] % steps * batch + end[cut] // steps)]
        self.rounds = plan_rounds(self.lengths)
        parts = []
        for length, members in self.rounds:
            parts.append((np.arange(length)[:, None] + start[members]).ravel())
            start[members] += length
        met = np.concatenate(parts)
        self.order = met % steps * batch + met // steps
        self.place = np.empty_like(self.order)
        self.place[self.order] = np.arange(len(self.order))


def plan_rounds(lengths: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Rounds (steps, members) in which each row runs exactly its length.

    Who has as many steps left as a round is long takes part. Halving the longest rest needs about log2 of it rounds,
    which together are as long as the longest row; rests of few distinct lengths end sooner one after the other.
    """
    rest, rounds = np.array(lengths), []
    while rest.any():
        distinct = np.unique(rest[rest > 0])
        longest = int(distinct[-1])
        steps = int(distinct[0]) if len(distinct) <= longest.bit_length() else (longest + 1) // 2
        members = np.flatnonzero(rest >= steps)
        rest[members] -= steps
        rounds.append((steps, members))
    return rounds


class _Take(torch.autograd.Function):
    """Rows permuted by `order`; the gradient is gathered by the inverse, where autograd would add row by row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None
