"""LSTM with layer-normalised gates: as a plain loop, and as one autograd function over the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ding_like.torch_utils.network.numpy_cells import Step, Tables, norm_lstm_step
from ding_like.torch_utils.network.recurrent import Recurrent, State

EPS = 1e-5
SPAN = 1 << 17  # numbers of a [steps, B, 4H] block of the input side: it should stay in the cache
FEW = 12  # steps below which the function costs more than it saves


class NormCell(nn.Module):
    """The parameters of one layer; columns of the gates in the order output, input, forget, candidate."""

    def __init__(self, input_size: int, hidden_size: int, norm: bool) -> None:
        super().__init__()
        wide, bound = 4 * hidden_size, hidden_size**-0.5
        self.weight_x = nn.Parameter(torch.empty(wide, input_size).uniform_(-bound, bound))
        self.weight_h = nn.Parameter(torch.empty(wide, hidden_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(wide).uniform_(-bound, bound))
        self.scale_x = nn.Parameter(torch.ones(wide)) if norm else None
        self.scale_h = nn.Parameter(torch.ones(wide)) if norm else None

    def from_input(self, x: torch.Tensor) -> torch.Tensor:
        """What the input `[..., I]` and the bias give to the gates `[..., 4H]`."""
        if self.scale_x is None:
            return nn.functional.linear(x, self.weight_x, self.bias)
        part = nn.functional.linear(x, self.weight_x)
        return nn.functional.layer_norm(part, part.shape[-1:], self.scale_x, self.bias, EPS)

    def from_hidden(self, h: torch.Tensor) -> torch.Tensor:
        """What the last output `[B, H]` gives to the gates `[B, 4H]`."""
        part = nn.functional.linear(h, self.weight_h)
        if self.scale_h is None:
            return part
        return nn.functional.layer_norm(part, part.shape[-1:], self.scale_h, None, EPS)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One step: `x [B, I]` and the state `[B, H]` to the next `h, c`."""
        gates = self.from_input(x) + self.from_hidden(h)
        size = h.shape[-1]
        o, i, f = torch.sigmoid(gates[:, : 3 * size]).chunk(3, 1)
        c = f * c + i * torch.tanh(gates[:, 3 * size :])
        return o * torch.tanh(c), c


class NormLSTM(Recurrent):
    """LayerNorm LSTM, one step after the other. Ba 2016, eq. 20-22, without the normalisation of the cell state.

    ```
    gates   = LN(W_x x_t) * scale_x + LN(W_h h_{t-1}) * scale_h + bias      LN over all 4H together, eps 1e-5
    c_t     = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(u)
    h_t     = sigmoid(o) * tanh(c_t)
    ```
    The shifts of both norms and the bias would be one sum; it is kept once. `norm_type` None leaves both norms out.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        norm_type: str | None = "LN",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, dropout)
        if norm_type not in (None, "LN"):
            raise ValueError(f"norm_type is {norm_type!r}; wanted None or 'LN'")
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.cells = nn.ModuleList(NormCell(size, hidden_size, norm_type == "LN") for size in sizes)

    def _cell(self, layer: int, x: torch.Tensor, hidden: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return self.cells[layer](x, *hidden)

    def _numpy_parts(self) -> tuple[Sequence[nn.Module], Tables]:
        if type(self)._cell is not NormLSTM._cell or any(type(cell) is not NormCell for cell in self.cells):
            return [], []
        names = ["weight_x", "weight_h", "bias"]
        scales = [] if self.cells[0].scale_x is None else ["scale_x", "scale_h"]
        return [self, self.cells], [(cell._parameters, names + scales) for cell in self.cells]

    def _numpy_layer(self, arrays: list[np.ndarray]) -> tuple[Step, list]:
        weight_x, weight_h, bias, *scales = [array.reshape(4, self.hidden_size, -1) for array in arrays]
        return norm_lstm_step, [weight_x, weight_h, bias, scales, EPS]

    def _window(self, x: torch.Tensor, state: State, stop: np.ndarray) -> tuple[torch.Tensor, State, State]:
        ended = torch.as_tensor(np.flatnonzero(stop), device=x.device)
        last: list[tuple] = []
        ends: list[tuple] = []
        for layer, cell in enumerate(self.cells):
            h, c = state["h"][:, layer], state["c"][:, layer]
            x, c, cut_c = self._layer(cell, self._between(layer, x), h, c, stop)
            last.append((x[-1], c))
            ends.append((x.flatten(0, 1).index_select(0, ended), cut_c))
        return x, self._tree(last), self._tree(ends)

    def _tree(self, layers: list[tuple]) -> State:
        return {name: torch.stack(leaves, 1) for name, leaves in zip(self.state_names, zip(*layers))}

    def _layer(
        self, cell: Any, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, stop: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One layer over `x [T, B, I]`: outputs `[T, B, H]`, c after the last step `[B, H]` and at stops `[E, H]`."""
        hs, at_stops = [], [c[:0]]
        last = c
        for x_t, ended in zip(x.unbind(), _rows(stop, x)):
            h, c = cell(x_t, h, c)
            hs.append(h)
            last = c
            if ended is not None:
                at_stops.append(c.index_select(0, ended))
                h, c = h.index_fill(0, ended, 0.0), c.index_fill(0, ended, 0.0)
        return torch.stack(hs), last, torch.cat(at_stops)


class ScanLSTM(NormLSTM):
    """The numbers of `NormLSTM` with less work: the input side of many steps at once, a hand-written backward."""

    def _layer(
        self, cell: Any, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, stop: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if len(x) < FEW:
            return super()._layer(cell, x, h, c, stop)
        inputs = (x, cell.weight_x, cell.scale_x, cell.bias, cell.weight_h, cell.scale_h, h, c)
        record = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
        hs, cs = _Scan.apply(*inputs, stop, record)
        ended = torch.as_tensor(np.flatnonzero(stop), device=x.device)
        return hs, cs[-1], cs.flatten(0, 1).index_select(0, ended)


def _rows(stop: np.ndarray, like: torch.Tensor) -> list[torch.Tensor | None]:
    """For each step the columns that end there, None where none does."""
    out: list[torch.Tensor | None] = [None] * len(stop)
    for t in np.flatnonzero(stop.any(1)).tolist():
        out[t] = torch.as_tensor(np.flatnonzero(stop[t]), device=like.device)
    return out


def _tanh_(x: torch.Tensor) -> torch.Tensor:
    """`tanh` in place. NumPy's is seven times as fast as torch's on a CPU."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return x.tanh_()
    array = x.numpy()
    np.tanh(array, out=array)
    return x


class _Scan(torch.autograd.Function):
    """One layer over a window, the formula of `NormLSTM`.

    From `x [T, B, I]`, the parameters of a `NormCell` (scales None without norms) and the first `h, c [B, H]` to every
    `h` and `c`, `[T, B, H]`; after `stop [T, B]` the state is zeros. Only with `record` can it go backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        weight_x: Any,
        scale_x: Any,
        bias: Any,
        weight_h: Any,
        scale_h: Any,
        h: Any,
        c: Any,
        *rest: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stop, record = rest
        (steps, batch, _), size, wide = x.shape, h.shape[1], len(bias)
        kept, span, ends = steps if record else 1, max(1, SPAN // (batch * wide)), _rows(stop, x)
        first, turned, raws, stats_of_x, stats_of_h = (h, c), weight_h.t(), [], [], []
        hs, cs = x.new_empty(steps, batch, size), x.new_empty(steps, batch, size)
        hidden, gates, tanh_c = (x.new_empty(kept, batch, width) for width in (wide, wide, size))
        places = zip(
            ends, *(steps // kept * part.unbind() for part in (hidden, gates, tanh_c)), hs.unbind(), cs.unbind()
        )
        for block in x.split(span):
            raw = torch.mm(block.flatten(0, 1), weight_x.t())
            from_x, stats_x = _norm(raw, scale_x, bias)
            if record:
                raws.append(raw)
                stats_of_x.append(stats_x)
            # `places` stands second: zip takes none from it at the end of a block
            for part, (ended, z, g, th, h_next, c_next) in zip(from_x.view(-1, batch, wide).unbind(), places):
                from_h, stats_h = _norm(torch.mm(h, turned, out=z), scale_h, None)
                if record:
                    stats_of_h.append(stats_h)
                torch.add(part, from_h, out=g)
                g[:, : 3 * size].sigmoid_()
                _tanh_(g[:, 3 * size :])
                o, i, f, u = g.chunk(4, 1)
                torch.mul(f, c, out=c_next).addcmul_(i, u)
                torch.mul(o, _tanh_(th.copy_(c_next)), out=h_next)
                h, c = h_next, c_next
                if ended is not None:
                    h, c = h.index_fill(0, ended, 0.0), c.index_fill(0, ended, 0.0)
        if record:
            parameters = (weight_x, scale_x, bias, weight_h, scale_h)
            ctx.save_for_backward(x, *parameters, *first, hs, cs, hidden, gates, tanh_c, *raws)
            ctx.kept = stats_of_x, stats_of_h, ends, stop, span
        ctx.set_materialize_grads(False)
        return hs, cs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Any, grad_c: Any) -> Any:
        x, *parameters, h, c, hs, cs, hidden, gates, tanh_c = ctx.saved_tensors[:13]
        raws = ctx.saved_tensors[13:]
        stats_of_x, stats_of_h, ends, stop, span = ctx.kept
        weight_x, scale_x, bias, weight_h, scale_h = parameters
        sums: list[Any] = [None if p is None else torch.zeros_like(p) for p in parameters]
        grad_x = x.new_empty(x.shape) if ctx.needs_input_grad[0] else None
        dh, dc = torch.zeros_like(h), torch.zeros_like(c)
        for first in reversed(range(0, len(x), span)):
            part = slice(first, min(first + span, len(x)))
            before_h, before_c = _before(h, hs, stop, part), _before(c, cs, stop, part)
            slope, through = _slopes(gates[part].unflatten(2, (4, -1)), before_c, tanh_c[part])
            grad_gates, grad_hidden = torch.empty_like(gates[part]), torch.empty_like(gates[part])
            for t in reversed(range(part.start, part.stop)):
                k = t - first
                if (ended := ends[t]) is not None:
                    dh.index_fill_(0, ended, 0.0)
                    dc.index_fill_(0, ended, 0.0)
                if grad_h is not None:
                    dh += grad_h[t]
                if grad_c is not None:
                    dc += grad_c[t]
                dc.addcmul_(dh, through[k])
                by_gate = grad_gates[k].unflatten(1, (4, -1))
                torch.mul(slope[k, :, 0], dh, out=by_gate[:, 0])
                torch.mul(slope[k, :, 1:], dc.unsqueeze(1), out=by_gate[:, 1:])
                dc *= gates[t].unflatten(1, (4, -1))[:, 2]
                grad, more, _ = _norm_back(grad_gates[k], hidden[t], stats_of_h[t], scale_h, None)
                grad_hidden[k] = grad
                if more is not None:
                    sums[4] += more
                torch.mm(grad, weight_h, out=dh)
            sums[3].addmm_(grad_hidden.flatten(0, 1).t(), before_h.flatten(0, 1))
            n = first // span
            grad, *of_norm = _norm_back(grad_gates.flatten(0, 1), raws[n], stats_of_x[n], scale_x, bias)
            sums[0].addmm_(grad.t(), x[part].flatten(0, 1))
            for total, some in zip(sums[1:3], of_norm):
                if some is not None:
                    total += some
            if grad_x is not None:
                torch.mm(grad, weight_x, out=grad_x[part].flatten(0, 1))
        return grad_x, *sums, dh, dc, None, None


def _norm(x: torch.Tensor, scale: torch.Tensor | None, shift: torch.Tensor | None) -> tuple[torch.Tensor, tuple]:
    """Rows of `x` normalised, scaled and shifted, with what `_norm_back` needs; only shifted where `scale` is None."""
    if scale is None:
        return x if shift is None else x + shift, ()
    out, mean, deviation = torch.native_layer_norm(x, [x.shape[1]], scale, shift, EPS)
    return out, (mean, deviation)


def _norm_back(
    grad: torch.Tensor, x: torch.Tensor, stats: tuple, scale: torch.Tensor | None, shift: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of `x`, `scale` and `shift`."""
    if scale is None:
        return grad, None, None if shift is None else grad.sum(0)
    wanted = [True, True, shift is not None]
    return torch.ops.aten.native_layer_norm_backward(grad, x, [x.shape[1]], *stats, scale, shift, wanted)


def _before(first: torch.Tensor, after: torch.Tensor, stop: np.ndarray, part: slice) -> torch.Tensor:
    """What each step of a part of the window started from, `[t, B, H]`."""
    if part.start == 0:
        out, ended = torch.cat([first.unsqueeze(0), after[: part.stop - 1]]), stop[: part.stop - 1]
        target = out[1:]
    else:
        out = target = after[part.start - 1 : part.stop - 1].clone()
        ended = stop[part.start - 1 : part.stop - 1]
    target.flatten(0, 1).index_fill_(0, torch.as_tensor(np.flatnonzero(ended), device=out.device), 0.0)
    return out


def _slopes(gates: torch.Tensor, before_c: torch.Tensor, tanh_c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of gates `[t, B, 4, H]` (o, i, f, u) before their activation: dh/do and dc/d(i, f, u); and dh/dc `[t, B, H]`."""
    o, i, f, u = gates.unbind(2)
    backward = torch.ops.aten
    slope = torch.empty_like(gates)
    backward.sigmoid_backward.grad_input(tanh_c, o, grad_input=slope[:, :, 0])
    backward.sigmoid_backward.grad_input(u, i, grad_input=slope[:, :, 1])
    backward.sigmoid_backward.grad_input(before_c, f, grad_input=slope[:, :, 2])
    backward.tanh_backward.grad_input(i, u, grad_input=slope[:, :, 3])
    return slope, backward.tanh_backward(o, tanh_c)
