"""How torch runs: threads, and whether train and eval mode differ for a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

MODAL = (_NormBase, _DropoutNd, nn.RReLU, nn.MultiheadAttention, nn.TransformerEncoder)


def has_train_mode(model: nn.Module) -> bool:
    """True if `model.train()` may change what it computes.

    Known stateless modules say no, so that acting and learning in turn do not walk the module tree each time; a module
    from outside torch and this package counts as yes.
    """
    return any(
        isinstance(m, MODAL) or _drops_out(m) or type(m).__module__.split(".")[0] not in ("torch", "ding_like")
        for m in model.modules()
    )


def _drops_out(module: nn.Module) -> bool:
    """RNNs have their dropout as a number, 0 by default."""
    rate = getattr(module, "dropout", None)
    return isinstance(rate, (int, float)) and rate > 0


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """That many threads for torch's kernels inside the block; small networks are fastest with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
