"""Evaluating a trained policy."""

from __future__ import annotations

from typing import Any

from torch import nn

from ding_like.config import ConfigError
from ding_like.entry.build import build_evaluator, build_policy, choose_seed, eval_manager, full_config
from ding_like.torch_utils.checkpoint import load_checkpoint, load_model_state
from ding_like.torch_utils.mode import torch_threads
from ding_like.utils.seed import set_global_seed


def eval(
    input_cfg: Any,
    seed: int | None = 0,
    env_setting: Any = None,
    model: nn.Module | None = None,
    load_path: str | None = None,
    *,
    sets: tuple[str, ...] | list[str] = (),
    n_episode: int | None = None,
) -> dict[str, Any]:
    """Run whole episodes with a checkpoint's policy, deterministically.

    Args:
        load_path: the checkpoint; may be None only where `model` brings the weights.
        n_episode: in place of the config's number.

    Returns:
        `eval_value`, `eval_value_raw`, `eval_value_std`, `n_episode` and the list `returns`.

    Raises CheckpointError naming what does not fit.
    """
    cfg = full_config(input_cfg, sets, own_model=model is not None)
    if load_path is None and model is None:
        raise ConfigError(f"eval needs a checkpoint: give --load-path {cfg.exp_name}/ckpt/ckpt_best.pth.tar")
    if n_episode is not None:
        cfg.policy.eval.evaluator.n_episode = n_episode
    seed = choose_seed(cfg, seed)
    set_global_seed(seed)
    with torch_threads(int(cfg.torch_threads)):
        manager = eval_manager(cfg, env_setting)
        try:
            policy = build_policy(cfg, manager, seed, model, ["eval"])
            if load_path is not None:
                content = load_checkpoint(load_path, cfg.policy.type)
                load_model_state(policy.get_model(), content["state"]["model"], load_path)
            return build_evaluator(cfg, manager, policy, seed).evaluate()
        finally:
            manager.close()
