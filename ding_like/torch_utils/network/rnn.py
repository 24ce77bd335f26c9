"""Recurrent networks by name, and masks of sequences.

All of them are `Recurrent`: `initial_state`, `step` for acting, `unroll` and `trace` over `[T, B]` with exact resets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ding_like.torch_utils.network.fused_rnn import FusedRNN
from ding_like.torch_utils.network.norm_lstm import NormLSTM, ScanLSTM
from ding_like.torch_utils.network.recurrent import Recurrent

LSTM_TYPES: dict[str, Callable[..., Recurrent]] = {
    "normal": NormLSTM,
    "hpc": ScanLSTM,
    "pytorch": lambda *sizes, norm_type: FusedRNN("lstm", *sizes),
    "gru": lambda *sizes, norm_type: FusedRNN("gru", *sizes),
}


def get_lstm(
    lstm_type: str,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    norm_type: str | None = "LN",
    dropout: float = 0.0,
    seq_len: int | None = None,
    batch_size: int | None = None,
) -> Recurrent:
    """A recurrent network.

    Args:
        lstm_type: 'normal', a LayerNorm LSTM in a loop over time; 'hpc', its numbers in less time; 'pytorch' and
            'gru', torch's fused kernels.
        norm_type: 'LN' or None, of 'normal' and 'hpc'; the other two have no normalisation.
        dropout: between layers, while training.
        seq_len, batch_size: not needed: any length and any number of columns, different at each call, will do.

    Raises:
        ValueError: for an unknown type, a size below 1 or a dropout outside of [0, 1).
        TypeError: for a size that is no whole number.
    """
    if lstm_type not in LSTM_TYPES:
        raise ValueError(f"lstm_type is {lstm_type!r}; wanted one of {sorted(LSTM_TYPES)}")
    if norm_type not in (None, "LN"):
        raise ValueError(f"norm_type is {norm_type!r}; wanted None or 'LN'")
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
    for name, size in sizes.items():
        if not hasattr(size, "__index__") or type(size) is bool:
            raise TypeError(f"{name} is {size!r}; wanted a whole number of at least 1")
    return LSTM_TYPES[lstm_type](*map(operator.index, sizes.values()), dropout, norm_type=norm_type)


def sequence_mask(lengths: Any, max_len: int | None = None) -> torch.Tensor:
    """Bool `[B, T]`, True in the first `lengths[b]` places of row b; T is `max_len`, or the longest length.

    Raises ValueError where `lengths` is not a vector.
    """
    lengths = torch.as_tensor(lengths)
    if lengths.ndim != 1:
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}; wanted a vector [B]")
    if max_len is None:
        max_len = int(lengths.max()) if len(lengths) else 0
    return torch.arange(max_len, device=lengths.device) < lengths.unsqueeze(1)
