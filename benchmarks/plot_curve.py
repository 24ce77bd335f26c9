"""Learning curves of several runs as one picture: the evaluations in each folder's `metrics.jsonl`.

    python benchmarks/plot_curve.py runs/seed_* --out curve.png --target 475 --title CartPole-v1

Thin lines are runs, the thick one is their median; a run that has stopped counts with its last value.
"""

import argparse
import json
from pathlib import Path

import numpy as np


def evaluations(folder):
    """Env steps and mean returns of a run's evaluations, two arrays `[N]`."""
    lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["section"] == "eval"]
    if not rows:
        raise ValueError(f"{folder}: metrics.jsonl has no evaluation")
    return np.array([row["envstep"] for row in rows]), np.array([row["eval_value"] for row in rows])


def median_curve(curves):
    """The median over runs at every env step where any run was evaluated; runs keep their last value."""
    grid = np.unique(np.concatenate([steps for steps, _ in curves]))
    last = [values[np.searchsorted(steps, grid, side="right") - 1] for steps, values in curves]
    return grid, np.median(last, axis=0)


def draw(curves, out, title, target):
    """Write the picture to `out`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for steps, values in curves:
        axes.plot(steps, values, color="tab:blue", alpha=0.3, linewidth=1)
        axes.plot(steps[-1], values[-1], "o", color="tab:blue", alpha=0.6, markersize=3)
    axes.plot(*median_curve(curves), color="tab:blue", linewidth=2, label=f"median of {len(curves)} seeds")
    if target is not None:
        axes.axhline(target, color="gray", linestyle="--", linewidth=1, label=f"stop value {target:g}")
    axes.set(title=title, xlabel="env steps", ylabel="mean return of an evaluation")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", help="run folders, one a seed")
    parser.add_argument("--out", required=True, help="the picture, e.g. curve.png")
    parser.add_argument("--title", default="")
    parser.add_argument("--target", type=float, help="a dashed line at this return")
    args = parser.parse_args()
    draw([evaluations(folder) for folder in args.folders], args.out, args.title, args.target)
    print(args.out)


if __name__ == "__main__":
    main()
