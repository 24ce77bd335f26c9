"""What the stored state and the burn-in of R2D2 are worth: {stored, zero} x {burn-in 0, 8} on the recall corridor.

Every run is `corridor_r2d2_config` with the two keys changed, to a fixed number of gradient steps; the runs of a seed
come one after the other. Success is the mean return of an evaluation (1: the cue was named right). Kapturowski 2019, 3.

    python benchmarks/r2d2_ablation.py [--seeds 5] [--iterations 500] [--max-lead-in 32] [--delay 8]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from ding_like.entry import serial_pipeline
from dizoo_configs.memory.corridor.config.corridor_r2d2_config import create_config, main_config

VARIANTS = {
    "stored state, burn-in 8": (True, 8),
    "stored state, burn-in 0": (True, 0),
    "zero state, burn-in 8": (False, 8),
    "zero state, burn-in 0": (False, 0),
}
SOLVED = 0.95


def curve(stored: bool, burnin: int, seed: int, args) -> list[tuple[int, int, float]]:
    """The evaluations of one run: env steps, gradient steps, success."""
    sets = (
        f"policy.learn.stored_state={stored}",
        f"policy.burnin_step={burnin}",
        f"policy.eval.evaluator.eval_freq={args.eval_freq}",
        f"env.env_kwargs.max_lead_in={args.max_lead_in}",
        f"env.env_kwargs.delay={args.delay}",
        "env.stop_value=None",
    )
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "run")
        serial_pipeline(
            (main_config, create_config), seed=seed, max_train_iter=args.iterations, sets=sets, exp_name=name
        )
        lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    return [(x["envstep"], x["train_iter"], x["eval_value"]) for x in lines if x["section"] == "eval"]


def solved_at(points: list[tuple[int, int, float]]) -> int | None:
    """Env steps of the first evaluation from which on all are at `SOLVED` or above."""
    found = None
    for envstep, _, value in points:
        found = None if value < SOLVED else envstep if found is None else found
    return found


def table(curves: dict[str, list[list[tuple[int, int, float]]]]) -> None:
    """Print a row a variant."""
    print("\n| | solved | env steps until it stays solved, by seed | success at the end, by seed | mean over the run |")
    print("|---|---|---|---|---|")
    for name, runs in curves.items():
        steps = [solved_at(run) for run in runs]
        last = " ".join(f"{run[-1][2]:.2f}" for run in runs)
        mean = statistics.mean(value for run in runs for _, _, value in run)
        when = " ".join("-" if s is None else f"{s:,}" for s in steps)
        print(f"| {name} | {sum(s is not None for s in steps)} of {len(steps)} | {when} | {last} | {mean:.3f} |")


def main() -> None:
    args_of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args_of.add_argument("--seeds", type=int, default=5)
    args_of.add_argument("--iterations", type=int, default=500, help="gradient steps of a run (default 500)")
    args_of.add_argument("--eval-freq", type=int, default=50, help="gradient steps between evaluations (default 50)")
    args_of.add_argument("--max-lead-in", type=int, default=32)
    args_of.add_argument("--delay", type=int, default=8)
    args = args_of.parse_args()
    start, curves = time.perf_counter(), {name: [] for name in VARIANTS}
    for seed in range(args.seeds):
        for name, (stored, burnin) in VARIANTS.items():
            curves[name].append(curve(stored, burnin, seed, args))
    table(curves)
    print(json.dumps({"settings": vars(args), "seconds": time.perf_counter() - start, "curves": curves}))


if __name__ == "__main__":
    main()
