"""Collecting a dataset with a trained policy."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import ding_like
from ding_like.config import CfgDict, ConfigError, to_plain
from ding_like.data import ArrayDict, tree_cat, tree_index
from ding_like.entry.build import build_policy
from ding_like.entry.eval_entry import trained
from ding_like.entry.sampling import choose_sampler, make_collect_envs
from ding_like.policy import Policy
from ding_like.torch_utils.checkpoint import load_model_state
from ding_like.torch_utils.mode import torch_threads
from ding_like.utils.log import get_logger
from ding_like.worker import SampleCollector
from ding_like.worker.collector.trajectory import ROWS
from ding_like.worker.replay_buffer.dataset import DatasetError, Episodes, save_dataset

DATASET_FILE = "dataset.npz"


def collect_dataset(
    input_cfg: Any = None,
    seed: int | None = 0,
    env_setting: Any = None,
    model: nn.Module | None = None,
    load_path: str | os.PathLike | None = None,
    *,
    env_step: int | None = None,
    episodes: int | None = None,
    out: str | os.PathLike | None = None,
    sample: bool = False,
    sets: tuple[str, ...] | list[str] = (),
) -> dict[str, Any]:
    """Write a dataset of whole episodes that a checkpoint's policy plays, in the envs that training collects from.

    How much each env column plays is fixed before the start, so short episodes are not over-represented: columns go on
    until each has its share of the steps or episodes. An episode of more than `policy.collect.max_traj_len` steps is
    cut there, as truncated.

    Args:
        input_cfg, load_path, model: as of `eval`.
        env_step: at least so many steps.
        episodes: so many episodes; exactly one of the two is given.
        out: the file; None: `dataset.npz` in the folder of the config's `exp_name`.
        sample: draw actions as in training (of epsilon-greedy policies at the epsilon of the checkpoint's env step);
            False: those of evaluation.

    Returns:
        `path`, `episodes`, `steps` and `mean_return`, through the wrappers of training.

    Raises ConfigError, CheckpointError, and DatasetError where the file exists or cannot be written.
    """
    asked = [number for number in (env_step, episodes) if number is not None]
    if len(asked) != 1 or asked[0] < 1:
        raise ConfigError(
            f"env_step is {env_step} and episodes {episodes}; wanted one of them (--env-step N or --episodes N), at "
            "least 1"
        )
    cfg, seed, load_path, content = trained("collect", input_cfg, seed, model, load_path, sets)
    path = Path(os.path.expanduser(out)) if out is not None else Path(cfg.exp_name) / DATASET_FILE
    if path.exists():
        raise DatasetError(f"{path} exists; choose another file (--out), or remove it")
    choose_sampler(cfg, "serial")
    with torch_threads(int(cfg.torch_threads)):
        manager = make_collect_envs(cfg, seed, env_setting)
        try:
            policy = build_policy(cfg, manager, seed, model, ["collect" if sample else "eval"])
            if load_path is not None:
                load_model_state(policy.get_model(), content["state"]["model"], load_path)
            if load_path is not None and sample:
                policy.collect_mode.load_state_dict(content["state"])
            reached = content["counters"]["envstep"] if content else 0
            recorder = _Recorder(policy, sample, reached, _shares(manager.env_num, asked[0]), episodes is None)
            _play(cfg, manager, recorder, seed)
            made = recorder.episodes(_header(cfg, manager, policy, seed, sample))
        finally:
            manager.close()
    save_dataset(path, made)
    return _told(path, made)


def _shares(columns: int, total: int) -> np.ndarray:
    """How many steps or episodes each env column plays, `[B]`; where they do not go round, the first ones more."""
    return total // columns + (np.arange(columns) < total % columns)


def _play(cfg: CfgDict, manager: Any, recorder: _Recorder, seed: int) -> None:
    collector = SampleCollector(cfg.policy.collect, manager, recorder.mode(int(cfg.policy.collect.max_traj_len)), seed)
    while not recorder.full:
        collector.collect(lambda items: 0, n_step=ROWS * manager.env_num)


class _Recorder:
    """Stands between a collector and a policy: acts as it does, and keeps the trajectories that are made.

    Args:
        sample: act as in training, at env step `trained`; else as in evaluation.
        shares: of each env column, `[B]`; of steps or, where not `of_steps`, of episodes.
    """

    def __init__(self, policy: Policy, sample: bool, trained: int, shares: np.ndarray, of_steps: bool) -> None:
        self._policy, self._sample, self._trained = policy, sample, trained
        self._left, self._of_steps = shares.copy(), of_steps
        self._columns = np.arange(len(shares))
        self._kept: list[ArrayDict] = []
        self._finals: list[Any] = []

    @property
    def full(self) -> bool:
        """Whether every column has played its share."""
        return not (self._left > 0).any()

    def mode(self, longest: int) -> Any:
        """A `collect_mode` that gives whole trajectories of single columns to this recorder."""
        collect = self._policy.collect_mode
        acting: Any = collect if self._sample else self._policy.eval_mode
        setting = collect.get_setting(self._trained) if self._sample else {}
        own = {
            "trajectories": {"longest": longest},
            "windows": None,
            "segments": None,
            "norm_obs": False,
            "sample_len": 1,
        }

        def attribute(name: str) -> Any:
            return own[name] if name in own else collect.get_attribute(name)

        return collect._replace(
            forward=acting.forward,
            reset=acting.reset,
            process_transition=self._row,
            get_train_sample=self._take,
            get_setting=lambda envstep: setting,
            get_attribute=attribute,
        )

    def _row(self, obs: Any, output: ArrayDict, timestep: Any) -> dict[str, Any]:
        row = {"obs": obs, "action": output["action"], "reward": timestep.reward, "next_obs": timestep.obs}
        if "raw_action" in output:
            row |= {"action": output["raw_action"], "env_action": output["action"]}
        return {**row, **{name: output[name] for name in ("logit", "log_prob") if name in output}, "of": self._columns}

    def _take(self, trajectory: ArrayDict) -> None:
        column = int(trajectory.pop("of")[0])
        final = tree_index(trajectory.pop("next_obs"), slice(-1, None))
        if self._left[column] <= 0:
            return
        trajectory["truncated"][-1] |= not trajectory["terminated"][-1]
        self._left[column] -= len(trajectory) if self._of_steps else 1
        self._kept.append(trajectory)
        self._finals.append(final)

    def episodes(self, header: dict[str, Any]) -> Episodes:
        """What was kept, in the order in which it ended."""
        lengths = [len(one) for one in self._kept]
        starts = np.cumsum([0, *lengths[:-1]])
        made = Episodes(tree_cat(self._kept), starts, tree_cat(self._finals), header)
        told = {"episodes": len(starts), "steps": sum(lengths), "mean_return": float(made.returns.mean())}
        made.header.update(told)
        return made


def _header(cfg: CfgDict, manager: Any, policy: Policy, seed: int, sample: bool) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(to_plain(cfg), sort_keys=True, default=str).encode())
    return {
        "version": ding_like.__version__,
        "policy": cfg.policy.type,
        "env": getattr(manager, "env_name", None) or cfg.env.type,
        "config": digest.hexdigest()[:16],
        "seed": seed,
        "sample": sample,
        "interface": None if policy.interface is None else policy.interface.plain,
    }


def _told(path: Path, made: Episodes) -> dict[str, Any]:
    told = {name: made.header[name] for name in ("episodes", "steps", "mean_return")}
    get_logger().info(
        f"{told['episodes']} episodes of {told['steps']:,} steps, mean return {told['mean_return']:.2f}: {path}"
    )
    return {"path": str(path), **told}
