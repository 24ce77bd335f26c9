"""Generalised advantages of 128 steps of 64 columns, float32, in microseconds per call.

A plain NumPy loop over time, ours in NumPy, ours with numba (where it is installed) and, with --peer-python,
the numba kernel of Tianshou, called in the interpreter of the environment that has it.

    python benchmarks/gae.py [--rounds 9] [--peer-python ENVIRONMENT/bin/python]
"""

import subprocess
from collections.abc import Callable

import numpy as np
from common import Check, interleave, median, parser, ratio, report, seconds

from ding_like.rl_utils import scan
from ding_like.rl_utils.gae import gae_advantage

T, B, GAMMA, LAMBDA = 128, 64, 0.99, 0.95
PEER = f"""
import sys, time
import numpy as np
from tianshou.algorithm.algorithm_base import _gae
rng = np.random.default_rng(0)
value, next_value, reward = rng.standard_normal(({T} * {B}, 3), dtype=np.float32).T.copy()
end = rng.random({T} * {B}) < 0.05
call = lambda: _gae(value, next_value, reward, end, {GAMMA}, {LAMBDA})
call()
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        call()
    print((time.perf_counter() - start) / int(line), flush=True)
"""


def block() -> tuple[np.ndarray, ...]:
    """reward, discount, cut, value, next_value `[T, B]`; one step in twenty ends an episode."""
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.standard_normal((3, T, B), dtype=np.float32)
    cut = (rng.random((T, B)) >= 0.05).astype(np.float32)
    return reward, np.float32(GAMMA) * cut, cut, value, next_value


def plain(
    reward: np.ndarray, discount: np.ndarray, cut: np.ndarray, value: np.ndarray, next_value: np.ndarray
) -> np.ndarray:
    """The definition, a row at a time."""
    out, ahead = np.zeros_like(reward), np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        delta = reward[t] + discount[t] * next_value[t] - value[t]
        out[t] = ahead = delta + discount[t] * cut[t] * LAMBDA * ahead
    return out


def ours(data: tuple[np.ndarray, ...], compiled: bool) -> Callable[[], float]:
    def run() -> float:
        scan._scan = scan.numpy_scan  # also undoes an earlier load_numba
        if compiled:
            scan.load_numba()
            gae_advantage(*data, LAMBDA)  # compiles
        return 1e6 * seconds(lambda: gae_advantage(*data, LAMBDA), 200)

    return run


def tianshou(python: str) -> Callable[[], float]:
    peer = subprocess.Popen([python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if peer.stdout.readline().strip() != "ready":
        raise SystemExit(f"{python} could not run Tianshou's GAE; see its error above")

    def run() -> float:
        print(200, file=peer.stdin, flush=True)
        return 1e6 * float(peer.stdout.readline())

    return run


def main() -> None:
    arguments = parser(__doc__, rounds=9)
    arguments.add_argument("--peer-python", help="interpreter of an environment that has Tianshou")
    args = arguments.parse_args()
    data = block()
    np.testing.assert_allclose(gae_advantage(*data, LAMBDA), plain(*data), atol=1e-5)
    compiled = scan.load_numba()
    variants = {
        "plain NumPy loop": lambda: 1e6 * seconds(lambda: plain(*data), 50),
        "ours, NumPy": ours(data, compiled=False),
    }
    if compiled:
        variants["ours, numba"] = ours(data, compiled=True)
    if args.peer_python:
        variants["Tianshou"] = tianshou(args.peer_python)
    results = interleave(variants, args.rounds)
    checks = [
        Check("ours, NumPy (us)", median(results, "ours, NumPy"), 526, at_least=False),
        Check("ours, NumPy / plain loop", ratio(results, "ours, NumPy", "plain NumPy loop"), 1, at_least=False),
    ]
    if compiled:
        checks.append(Check("ours, numba (us)", median(results, "ours, numba"), 33, at_least=False))
        if args.peer_python:
            checks.append(Check("ours, numba / Tianshou", ratio(results, "ours, numba", "Tianshou"), 1, at_least=False))
    report(f"GAE of [{T}, {B}]", "us", results, checks)


if __name__ == "__main__":
    main()
