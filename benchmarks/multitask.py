"""Three MiniGrid levels in one network, against a network for each level at equal env steps a level.

The mixed run is `minigrid3_impala_config`; each single run is the same with one task and a third of its columns,
trajectories and batch, so that both take as many gradient steps. A score is the mean training return of a level in the
last quarter of a run, that of the policy as it acts in training. Evaluations stand beside it: they take the likeliest
action, which can go round in circles where the policy remembers nothing. Wanted: the mixed run has at least 0.8 of
every single score.

    python benchmarks/multitask.py [--seeds 1] [--steps 200000] [--mode serial]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from common import Check, report

from ding_like.config import deep_merge_defaults
from ding_like.entry import serial_pipeline
from dizoo_configs.multitask.minigrid3.config.minigrid3_impala_config import create_config, main_config

TASKS = main_config["env"]["tasks"]
WANTED = 0.8


def single(task: dict) -> dict:
    """The recipe with one task, and a third of everything that is collected for it."""
    env, policy, n = main_config["env"], main_config["policy"], len(TASKS)
    part = dict(
        env=dict(
            tasks=[task],
            collector_env_num=env["collector_env_num"] // n,
            evaluator_env_num=env["evaluator_env_num"] // n,
        ),
        policy=dict(
            learn=dict(batch_size=policy["learn"]["batch_size"] // n),
            collect=dict(n_sample=policy["collect"]["n_sample"] // n),
        ),
    )
    return deep_merge_defaults(main_config, part)


def scores(config: dict, steps: int, seed: int, mode: str) -> dict[str, float]:
    """Means over the last quarter of a run: of each task the training return, `<task>, evaluated` its evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        name, sets = os.path.join(folder, "run"), ("env.stop_value=None",)
        serial_pipeline((config, create_config), seed, max_env_step=steps, sets=sets, exp_name=name, mode=mode)
        lines = [json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
    found = {}
    for task in config["env"]["tasks"]:
        for key, label in ((f"return/{task['name']}", ""), (f"eval_value/{task['name']}", ", evaluated")):
            values = [line[key] for line in lines if key in line and line["envstep"] >= 0.75 * steps]
            found[task["name"] + label] = statistics.mean(values)
    return found


def main() -> None:
    args_of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args_of.add_argument("--seeds", type=int, default=1)
    args_of.add_argument("--steps", type=int, default=200_000, help="env steps of a level (default 200,000)")
    args_of.add_argument("--mode", default="serial", choices=("serial", "parallel", "async"))
    args = args_of.parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for seed in range(args.seeds):
        for label, config, steps in (
            ("mixed", main_config, args.steps * len(TASKS)),
            *(("single", single(task), args.steps) for task in TASKS),
        ):
            start = time.perf_counter()
            for task, value in scores(config, steps, seed, args.mode).items():
                results.setdefault(f"{task}, {label}", []).append(value)
            seconds[label] = seconds.get(label, 0.0) + time.perf_counter() - start
    checks = []
    for name in (task["name"] for task in TASKS):
        one, alone = (statistics.mean(results[f"{name}, {label}"]) for label in ("mixed", "single"))
        checks.append(Check(f"{name}: mixed / single", one / alone, WANTED, at_least=True))
    report("three levels in one network", "mean return", results, checks, settings=vars(args), seconds=seconds)


if __name__ == "__main__":
    main()
