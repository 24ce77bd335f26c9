"""What V-trace is worth: four corrections x {no replay, 50 % replay} x two tasks x seeds at one fixed policy lag.

Runs go through `serial_pipeline`. For every gradient step 8 trajectories of 20 steps are collected, and the store keeps
back those that were collected last: a fresh trajectory is trained on `--lag` gradient steps after the parameters that
collected it were in use, as the lag that the runs log confirms. With replay a batch holds 8 more, drawn from the last
1000 that were trained on. All runs share their settings. Espeholt 2018, section 5.2.2.

    python benchmarks/impala_corrections.py [--seeds 3] [--lag 20] [--tasks CartPole-v1 LunarLander-v3] [--env-step N]

A run that is in `--folder` already is not made again: two processes may take a task each, and a third call prints the
table of both. Printed: the mean of the training return over env steps (the area under its
curve), and its last value, the mean of 100 episodes.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.entry import serial_pipeline
from ding_like.entry.curves import Run, align, curve, read_run
from ding_like.rl_utils import CORRECTIONS
from ding_like.utils import BUFFER_REGISTRY

UNROLL, FRESH = 20, 8  # FRESH columns complete as many trajectories at once
NETWORK = dict(
    encoder_hidden_size_list=[64, 64],
    share_encoder=False,
    actor_head_layer_num=0,
    critic_head_layer_num=0,
    activation="tanh",
)
REPLAY = {"no replay": 0.0, "50 % replay": 0.5}
COLOURS = dict(zip(CORRECTIONS, ("#0072B2", "#D55E00", "#009E73", "#CC79A7")))
DASHES = dict(zip(CORRECTIONS, ("-", "-", "-", "--")))  # `epsilon` and `none` may coincide
STEPS = {"CartPole-v1": 100_000, "LunarLander-v3": 200_000}  # env steps of a run
Queue = BUFFER_REGISTRY.get("queue")


@BUFFER_REGISTRY.register("late_queue")
class LateQueue(Queue):
    """A queue that keeps back the newest trajectories: its learner is a fixed number of them behind."""

    config = {**Queue.config, "kept_back": 0}  # trajectories between the newest that was pushed and what is trained on

    def __init__(self, cfg: Any, seed: int = 0) -> None:
        super().__init__(cfg, seed)
        self._kept_back = int(cfg.kept_back)

    @property
    def count(self) -> int:
        """Items that may be trained on."""
        return max(0, super().count - self._kept_back)


def config(task: str, correction: str, share: float, args: argparse.Namespace) -> dict:
    """One run as one dictionary; evaluated at its start and its end alone."""
    return dict(
        env=dict(type=task, collector_env_num=FRESH, evaluator_env_num=1, n_evaluator_episode=1),
        replay_buffer=dict(type="late_queue"),
        resume=dict(enabled=False),
        policy=dict(
            type="impala",
            learn_unroll_len=UNROLL,
            model=NETWORK,
            learn=dict(
                correction=correction,
                batch_size=round(FRESH / (1 - share)),
                optimizer="adam",
                learning_rate=1e-3,
                learner=dict(hook=dict(log_show_after_iter=args.log_every)),
            ),
            collect=dict(n_sample=FRESH),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            other=dict(replay_buffer=dict(replay_share=share, replay_buffer_size=1000, kept_back=args.lag * FRESH)),
        ),
    )


def run_folder(task: str, replay: str, correction: str, seed: int, args: argparse.Namespace) -> Path:
    """The folder of one run, which is made unless it is there. Raises RunFolderError for one that did not end."""
    steps = args.env_step or STEPS[task]
    setting = f"lag_{args.lag}_replay_{REPLAY[replay]:g}_{steps}_steps"
    path = Path(args.folder) / task / setting / correction / f"seed_{seed}"
    result = path / "result.json"
    if not result.is_file() or json.loads(result.read_text())["env_step"] < steps:
        cfg = config(task, correction, REPLAY[replay], args)
        start = time.perf_counter()
        serial_pipeline(cfg, seed=seed, max_env_step=steps, exp_name=str(path), on_exists="error")
        print(f"{task}, {replay}, {correction}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    return path


def returns(path: Path) -> Run:
    """The training return of a run, the mean of the last 100 episodes, over env steps."""
    return read_run(path, "return", "collect")


def table(runs: dict[tuple[str, str, str], list[Path]], args: argparse.Namespace) -> list[dict]:
    """Print a row for every correction; returns them. Half of what trains is fresh, or all: so is the median lag."""
    head = "| task | replay | correction | area | by seed | last return | by seed | logged lag |"
    print(f"\nlag {args.lag} gradient steps\n\n{head}\n|" + "---|" * head.count(" |"))
    rows = []
    for (task, replay, correction), paths in runs.items():
        grid, values = align([returns(path) for path in paths])
        areas = (np.trapezoid(values, grid, axis=1) / (grid[-1] - grid[0])).tolist()
        lags = [lag for path in paths for lag in read_run(path, "lag_p50", "data").y.tolist()]
        row = dict(task=task, replay=replay, correction=correction, area=areas, last=values[:, -1].tolist())
        rows.append(row | dict(lag=float(np.median(lags))))
        cells = (f"{np.mean(row[key]):.1f} | {listed(row[key])}" for key in ("area", "last"))
        print(f"| {task} | {replay} | {correction} | " + " | ".join(cells) + f" | {rows[-1]['lag']:.1f} |")
    return rows


def listed(values: Iterable[float]) -> str:
    return " ".join(f"{value:.0f}" for value in values)


def picture(runs: dict[tuple[str, str, str], list[Path]], out: str) -> None:
    """A panel for every task and replay, a line for every correction: the mean over seeds and its 95 % interval."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tasks, replays = (list(dict.fromkeys(key[i] for key in runs)) for i in (0, 1))
    figure = Figure(figsize=(4.2 * len(replays), 3.0 * len(tasks)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(tasks), len(replays), sharex="row", sharey="row", squeeze=False)
    for (task, replay, correction), paths in runs.items():
        panel, line = panels[tasks.index(task)][replays.index(replay)], curve([returns(path) for path in paths])
        panel.plot(line.x, line.y, color=COLOURS[correction], linestyle=DASHES[correction], label=correction)
        if line.low is not None:
            panel.fill_between(line.x, line.low, line.high, color=COLOURS[correction], alpha=0.18, linewidth=0)
        panel.set(title=f"{task}, {replay}", xlabel="environment steps", ylabel="training return")
        panel.label_outer()
    panels[0][0].legend(frameon=False)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)


def main() -> None:
    args_of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args_of.add_argument("--env-step", type=int, help=f"env steps of a run (default: {STEPS})")
    args_of.add_argument("--seeds", type=int, default=3)
    args_of.add_argument("--lag", type=int, default=20, help="gradient steps (default 20)")
    args_of.add_argument("--tasks", nargs="+", choices=STEPS, default=list(STEPS))
    args_of.add_argument("--corrections", nargs="+", choices=CORRECTIONS, default=CORRECTIONS)
    args_of.add_argument("--log-every", type=int, default=5, help="gradient steps from point to point of a curve")
    args_of.add_argument("--folder", default="impala_corrections", help="of the runs")
    args_of.add_argument("--picture", default="docs/images/impala_corrections.png")
    args = args_of.parse_args()
    runs: dict[tuple[str, str, str], list[Path]] = {}
    for seed in range(args.seeds):
        for task in args.tasks:
            for replay in REPLAY:
                for correction in args.corrections:
                    path = run_folder(task, replay, correction, seed, args)
                    runs.setdefault((task, replay, correction), []).append(path)
    rows = table(runs, args)
    picture(runs, args.picture)
    print("\n" + json.dumps({"measure": "IMPALA corrections", "settings": vars(args), "rows": rows}))


if __name__ == "__main__":
    main()
