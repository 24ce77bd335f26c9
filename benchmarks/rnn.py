"""Recurrent networks: what cuts inside an unroll cost, `hpc` against `normal`, and a single step for acting.

Milliseconds of one thread's own time (not the clock's: a busy machine would blur the ratios), forward and backward
unless said otherwise; hidden size 128. `--keep-memory` tells glibc to keep freed blocks. Without it an unroll of
[80, 64, 128] takes its memory from the system anew each time (page faults, about a fifth of it), and cuts look cheaper
than they are.

    python benchmarks/rnn.py [--rounds 15] [--keep-memory]
"""

import ctypes
import time
from collections.abc import Callable

import numpy as np
import torch
from common import Check, interleave, parser, ratio, report
from torch import nn

from ding_like.torch_utils import get_lstm

H, COLUMNS = 128, 16


def cuts(steps: int, batch: int, number: int, times: int, seed: int = 0) -> np.ndarray:
    """`cut [T, B]` with `number` zeros at `times` distinct times, the last step aside."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(steps - 1, times, replace=False)
    rows = np.concatenate([rows, rng.choice(rows, number - times)])
    cut = np.ones((steps, batch), np.float32)
    for t in rows:
        cut[t, rng.choice(np.flatnonzero(cut[t]))] = 0
    return cut


def training(network: nn.Module, x: torch.Tensor, **kwargs: object) -> Callable[[], float]:
    """Milliseconds of a forward and a backward."""
    x, repeat = x.clone().requires_grad_(), max(1, 1000 // (x.shape[0] * x.shape[1]))

    def run() -> float:
        start = time.thread_time()
        for _ in range(repeat):
            network.zero_grad()
            x.grad = None
            network(x, **kwargs)[0].sum().backward()
        return 1e3 * (time.thread_time() - start) / repeat

    return run


def repeated(call: Callable[[], object], repeat: int) -> Callable[[], float]:
    """Milliseconds of a call without gradients, the mean of several."""

    def run() -> float:
        with torch.no_grad():
            start = time.thread_time()
            for _ in range(repeat):
                call()
            return 1e3 * (time.thread_time() - start) / repeat

    return run


def unroll_with_cuts(rounds: int, kind: str) -> None:
    x, network = torch.randn(80, 64, H), get_lstm(kind, H, H)
    variants = {
        "torch's module, no cut": training(network.core, x),
        "no cut": training(network, x),
        "26 times, 32 cuts": training(network, x, cut=cuts(80, 64, 32, 26)),
        "62 times, 128 cuts": training(network, x, cut=cuts(80, 64, 128, 62)),
        "79 times, 512 cuts": training(network, x, cut=cuts(80, 64, 512, 79)),
    }
    results = interleave(variants, rounds)
    checks = [Check("26 times / no cut", ratio(results, "26 times, 32 cuts", "no cut"), 1.4, at_least=False)]
    for name in ("62 times, 128 cuts", "79 times, 512 cuts"):
        checks.append(Check(f"{name} / no cut", ratio(results, name, "no cut"), 2.0, at_least=False))
    bare = ratio(results, "no cut", "torch's module, no cut")
    checks.append(Check("no cut / torch's module", bare, 1.1, at_least=False))
    report(f"{kind}: unroll of [80, 64, {H}]", "ms", results, checks)


def hpc_against_normal(rounds: int, steps: int, batch: int, width: int) -> None:
    x, normal, hpc = torch.randn(steps, batch, width), get_lstm("normal", width, H), get_lstm("hpc", width, H)
    hpc.load_state_dict(normal.state_dict())
    variants = {
        "normal": training(normal, x),
        "hpc": training(hpc, x),
        "normal, forward only": repeated(lambda: normal(x), 5),
        "hpc, forward only": repeated(lambda: hpc(x), 5),
    }
    results = interleave(variants, rounds)
    checks = [
        Check("hpc / normal", ratio(results, "hpc", "normal"), 1.0, at_least=False),
        Check(
            "the same, forward only", ratio(results, "hpc, forward only", "normal, forward only"), 1.0, at_least=False
        ),
    ]
    report(f"hpc against normal: [{steps}, {batch}, {width}]", "ms", results, checks)


def single_step(rounds: int) -> None:
    x, cell = torch.randn(COLUMNS, H), nn.LSTMCell(H, H)
    hidden = torch.zeros(COLUMNS, H), torch.zeros(COLUMNS, H)
    variants = {"nn.LSTMCell": repeated(lambda: cell(x, hidden), 300)}
    for kind in ("pytorch", "gru", "normal", "hpc"):
        network = get_lstm(kind, H, H)
        state = network.initial_state(COLUMNS)
        variants[kind] = repeated(lambda n=network, s=state: n.step(x, s), 300)
    results = interleave(variants, rounds)
    checks = [Check("pytorch / nn.LSTMCell", ratio(results, "pytorch", "nn.LSTMCell"), 1.2, at_least=False)]
    report(f"a step of {COLUMNS} columns, {H} -> {H}", "ms", results, checks)


def main() -> None:
    arguments = parser(__doc__, rounds=15)
    arguments.add_argument("--keep-memory", action="store_true", help="raise glibc's mmap and trim thresholds")
    args = arguments.parse_args()
    if args.keep_memory:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
    torch.manual_seed(0)
    for kind in ("pytorch", "gru"):
        unroll_with_cuts(args.rounds, kind)
    for shape in ((80, 64, 128), (80, 64, 8), (128, 8, 64), (20, 2, 8), (12, 1, 8)):
        hpc_against_normal(args.rounds, *shape)
    single_step(args.rounds)


if __name__ == "__main__":
    main()
