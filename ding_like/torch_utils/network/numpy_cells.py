"""One step of recurrent cells in NumPy, for acting.

States are `[H, B]` and gates `[gates, H, B]`: a gate is one piece of memory, and all of them one batched product. Each
product in it is small enough for one thread: BLAS would wake others for a larger one, and on cores that others use too
waiting for them took up to a thousand times as long as the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

LARGEST = 1 << 18  # multiplications of a product: OpenBLAS, which NumPy comes with, does so many in one thread
Step = Callable[..., tuple[np.ndarray, ...]]
Tables = Sequence[tuple[dict[str, Any], Sequence[str]]]


def lstm_step(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, b_x: np.ndarray, b_h: np.ndarray
) -> tuple[np.ndarray, ...]:
    """torch's LSTM: `x [B, I]`, `h, c [H, B]`, weights `[4, H, ...]` of the gates i, f, u, o; the next `h, c`."""
    gates = _affine(x, h, w_x, w_h, b_x + b_h)  # [4, H, B]
    gates *= _HALVES_LSTM
    np.tanh(gates, out=gates)
    i, f, u, o = gates
    return _lstm_state(i, f, u, o, c)


def gru_step(
    x: np.ndarray, h: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, b_x: np.ndarray, b_h: np.ndarray
) -> tuple[np.ndarray, ...]:
    """torch's GRU: `x [B, I]`, `h [H, B]`, weights `[3, H, ...]` of the gates r, z, n; the next `h`."""
    from_x, from_h = np.matmul(w_x, x.T), np.matmul(w_h, h)  # [3, H, B]
    from_x += b_x
    from_h += b_h
    gates = from_x[:2]
    gates += from_h[:2]
    gates *= 0.5
    np.tanh(gates, out=gates)
    gates += 1.0
    gates *= 0.5
    r, z, n = from_x[0], from_x[1], from_x[2]
    r *= from_h[2]
    n += r
    np.tanh(n, out=n)
    after = h - n
    after *= z
    after += n
    return (after,)


def norm_lstm_step(
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    w_x: np.ndarray,
    w_h: np.ndarray,
    bias: np.ndarray,
    scales: Sequence[np.ndarray],
    eps: float,
) -> tuple[np.ndarray, ...]:
    """`NormCell`: `x [B, I]`, `h, c [H, B]`, weights `[4, H, ...]` of the gates o, i, f, u; the next `h, c`.

    `scales` are those of the two norms, or none without them.
    """
    if scales:
        gates = _normed(np.matmul(w_x, x.T), scales[0], eps)
        gates += _normed(np.matmul(w_h, h), scales[1], eps)
        gates += bias
    else:
        gates = _affine(x, h, w_x, w_h, bias)  # [4, H, B]
    gates[:3] *= 0.5
    np.tanh(gates, out=gates)
    o, i, f, u = gates
    return _lstm_state(i, f, u, o, c)


_HALVES_LSTM = np.array([0.5, 0.5, 1.0, 0.5], np.float32)[:, None, None]


def _affine(x: np.ndarray, h: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, bias: np.ndarray) -> np.ndarray:
    gates = np.matmul(w_x, x.T)
    gates += np.matmul(w_h, h)
    gates += bias
    return gates


def _lstm_state(i: np.ndarray, f: np.ndarray, u: np.ndarray, o: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    """The next `h, c` from the gates: of i, f and o `tanh(z / 2)`, as sigmoid(z) = (1 + tanh(z / 2)) / 2."""
    f += 1.0
    c = f * c
    i += 1.0
    i *= u
    c += i
    c *= 0.5
    h = np.tanh(c)
    o += 1.0
    h *= o
    h *= 0.5
    return h, c


def _normed(z: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    """LayerNorm of `z [4, H, B]` over the first two axes, in place, without a shift."""
    flat = z.reshape(-1, z.shape[2])
    flat -= np.add.reduce(flat, 0) / len(flat)
    flat /= np.sqrt(np.einsum("ib,ib->b", flat, flat) / len(flat) + eps)
    z *= scale
    return z


class ParameterViews:
    """NumPy views of parameters. They follow in-place updates; `moved` tells where they no longer do.

    Args:
        modules: those whose children are looked at for replaced ones.
        tables: a module's table of parameters each, with the names of those wanted.

    Attributes:
        arrays: the views, a list for each table.
    """

    def __init__(self, modules: Sequence[nn.Module], tables: Tables) -> None:
        self._modules = [module._modules for module in modules]
        self._seen = [dict(table) for table in self._modules]
        self._places = [(table, name, table[name].data_ptr()) for table, names in tables for name in names]
        self.arrays = [[table[name].detach().numpy() for name in names] for table, names in tables]

    def moved(self) -> bool:
        """Whether a module or parameter was replaced or taken away, or a parameter's storage moved."""
        try:
            for table, name, at in self._places:
                if table[name].data_ptr() != at:
                    return True
        except (KeyError, AttributeError):  # a parametrization took the parameter away, or it was set to None
            return True
        return self._modules != self._seen  # modules compare by identity


def viewable(tables: Tables) -> bool:
    """Whether all those parameters are there, in float32 on the CPU."""
    found = [table.get(name) for table, names in tables for name in names]
    return all(p is not None and p.device.type == "cpu" and p.dtype == torch.float32 for p in found)
