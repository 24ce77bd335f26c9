"""Evaluating a trained policy."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ding_like.config import CfgDict, ConfigError
from ding_like.entry.build import build_evaluator, build_policy, full_config
from ding_like.entry.env_managers import eval_manager
from ding_like.entry.run_folder import CONFIG_FILE
from ding_like.entry.video import Recorder, with_pictures
from ding_like.envs.tasks import each_task
from ding_like.torch_utils.checkpoint import find_checkpoint, load_checkpoint, load_model_state
from ding_like.torch_utils.mode import torch_threads
from ding_like.utils.seed import set_global_seed


def eval(
    input_cfg: Any = None,
    seed: int | None = 0,
    env_setting: Any = None,
    model: nn.Module | None = None,
    load_path: str | os.PathLike | None = None,
    *,
    sets: tuple[str, ...] | list[str] = (),
    n_episode: int | None = None,
    video: str | os.PathLike | None = None,
) -> dict[str, Any]:
    """Run whole episodes with a checkpoint's policy, deterministically.

    Args:
        input_cfg: anything `read_config` takes; None takes the config in the folder of the checkpoint's run.
        load_path: the checkpoint, or the folder of a run, of which the best one is taken; may be None only where
            `model` brings the weights.
        n_episode: in place of the config's number.
        video: records the first episode of env column 0 there, as .mp4 or .gif.

    Returns:
        what `Evaluator.evaluate` does: `eval_value`, `eval_value_raw`, `n_episode`, the list `returns`, ...

    Raises CheckpointError naming what does not fit, VideoError for an env that cannot be recorded.
    """
    cfg, seed, load_path, content = trained("eval", input_cfg, seed, model, load_path, sets)
    if n_episode is not None:
        cfg.policy.eval.evaluator.n_episode = n_episode
    recorder = None if video is None else Recorder(video)
    with torch_threads(int(cfg.torch_threads)), recorder or nullcontext():
        manager = _manager(cfg, seed, env_setting, recorder)
        try:
            policy = build_policy(cfg, manager, seed, model, ["eval"])
            if load_path is not None:
                load_model_state(policy.get_model(), content["state"]["model"], load_path)
            return build_evaluator(cfg, manager, policy, seed).evaluate()
        finally:
            manager.close()


def trained(
    what: str, input_cfg: Any, seed: int | None, model: Any, load_path: str | os.PathLike | None, sets: Any
) -> tuple[CfgDict, int, Path | None, dict[str, Any]]:
    """Config, seed, checkpoint and its content for `what` acts with a trained policy; sets the global seed.

    Args:
        input_cfg, seed, model, load_path, sets: see `eval`; `model` may bring the weights instead.

    Raises ConfigError, CheckpointError.
    """
    if input_cfg is None:
        input_cfg, load_path = _config_beside(load_path)
    cfg = full_config(input_cfg, sets, own_model=model is not None)
    if load_path is None and model is None:
        raise ConfigError(f"{what} needs a checkpoint: give --load-path {cfg.exp_name}/ckpt/ckpt_best.pth.tar")
    path = None if load_path is None else find_checkpoint(load_path)
    content = {} if path is None else load_checkpoint(path, cfg.policy.type)
    seed = int(cfg.seed or 0) if seed is None else seed
    set_global_seed(seed)
    return cfg, seed, path, content


def _config_beside(load_path: str | os.PathLike | None) -> tuple[Path, Path]:
    """The config of the run that a checkpoint lies in, and the checkpoint. Raises ConfigError where there is none."""
    checkpoint = None if load_path is None else find_checkpoint(load_path)
    if checkpoint is not None and (found := checkpoint.absolute().parents[1] / CONFIG_FILE).is_file():
        return found, checkpoint
    raise ConfigError(
        f"there is no config: give -c FILE, or with --load-path a checkpoint in the folder of its run, where "
        f"{CONFIG_FILE} lies"
    )


def _manager(cfg: CfgDict, seed: int, env_setting: Any, recorder: Recorder | None) -> Any:
    if recorder is None:
        return eval_manager(cfg, env_setting)

    def around(make: Callable[[], Any]) -> Callable[[], Any]:
        made = recorder.around(make)
        set_global_seed(seed)  # what the trial drew changes nothing
        return made

    drawing = CfgDict(cfg)
    drawing.env = each_task(cfg.env, partial(with_pictures, env_setting=env_setting))
    return eval_manager(drawing, env_setting, around=around)
