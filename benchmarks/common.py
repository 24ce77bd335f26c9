"""What the benchmark scripts share: one torch thread, interleaved rounds, a table and one JSON line."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import gymnasium
import numpy
import torch

torch.set_num_threads(1)


def parser(doc: str, rounds: int = 7) -> argparse.ArgumentParser:
    """An argument parser with `--rounds`, described by the script's docstring."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds (default {rounds})")
    return out


def interleave(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run every variant once a round (A B C A B C ...), after one round that is thrown away.

    A variant returns its own figure (a rate or a time), so that it can leave its set-up out.
    """
    results: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(rounds + 1):
        for name, run in variants.items():
            value = run()
            if round_:
                results[name].append(value)
    return results


def seconds(call: Callable[[], object], repeat: int) -> float:
    """Seconds of one call, the mean over `repeat` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def ratio(results: Mapping[str, Sequence[float]], over: str, under: str) -> float:
    """The median of the per-round ratios `over / under`: a slow round slows both of its sides."""
    return statistics.median(a / b for a, b in zip(results[over], results[under]))


def median(results: Mapping[str, Sequence[float]], name: str) -> float:
    return statistics.median(results[name])


@dataclass(frozen=True)
class Check:
    """A figure that a target bounds from below (`at_least`) or from above."""

    name: str
    value: float
    target: float
    at_least: bool

    @property
    def holds(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


def report(
    measure: str, unit: str, results: Mapping[str, Sequence[float]], checks: Sequence[Check], **facts: object
) -> None:
    """Print the table of `results` (median, min, max a row), the checks, and one JSON line with both."""
    print(f"\n{measure} ({unit})\n\n| | median | min | max | n |\n|---|---|---|---|---|")
    for name, values in results.items():
        cells = (_number(statistics.median(values)), _number(min(values)), _number(max(values)), len(values))
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    print("\n| target | measured | wanted | holds |\n|---|---|---|---|")
    for check in checks:
        bound = (">= " if check.at_least else "<= ") + _number(check.target)
        print(f"| {check.name} | {_number(check.value)} | {bound} | {'yes' if check.holds else 'NO'} |")
    line = {
        "measure": measure,
        "unit": unit,
        "median": {name: statistics.median(values) for name, values in results.items()},
        "values": {name: list(values) for name, values in results.items()},
        "checks": {c.name: {"value": c.value, "target": c.target, "holds": c.holds} for c in checks},
        "load": os.getloadavg()[0],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "gymnasium": gymnasium.__version__,
        },
        **facts,
    }
    print("\n" + json.dumps(line))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
