"""Recurrent replay distributed DQN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.config.checks import not_negative, one_of, optional, positive_fraction
from ding_like.data import ArrayDict, leading_shape
from ding_like.policy.dqn import DQNPolicy, td_loss_of
from ding_like.policy.q_learning import QLearningPolicy
from ding_like.rl_utils.exploration import epsilon_ladder
from ding_like.rl_utils.td import LOSSES
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("r2d2")
class R2D2Policy(QLearningPolicy):
    """Deep Q-learning of a recurrent network on prioritised windows. Kapturowski 2019.

    All it does DQN does with any recurrent network; the numbers are the paper's, or DI-engine's.
    """

    config = dict(
        priority=True,  # prioritised replay: windows by 0.9 max + 0.1 mean of |td| over their steps
        discount_factor=0.997,  # gamma
        nstep=5,  # rewards summed before the bootstrap
        burnin_step=20,  # steps in front of those that train, to bring the state up to date
        learn_unroll_len=80,  # steps of a train sample after those; the last nstep do not train
        learn=dict(
            loss="mse",  # huber (linear beyond |td| = 1) or mse
            value_rescale=True,  # values are learned through h(x), which makes large ones smaller
            learning_rate=1e-4,  # step size
            target_update_freq=2500,  # gradient steps between copies to the target network; unused with target_theta
        ),
        collect=dict(
            n_sample=32,  # windows of one collect
        ),
        other=dict(
            eps=dict(
                end=0.05,  # epsilon in the end
            ),
            eps_ladder=dict(
                base=None,  # env column i has the epsilon base ** (1 + alpha i / (columns - 1)) for good; paper: 0.4
                alpha=7.0,  # see base; with base None all columns follow other.eps
            ),
        ),
    )
    config_checks = {
        "learn.loss": one_of(*LOSSES),
        "other.eps_ladder.base": optional(positive_fraction),
        "other.eps_ladder.alpha": not_negative,
    }

    _errors = DQNPolicy._errors

    def _init_learn(self) -> None:
        super()._init_learn()
        self._td_loss = td_loss_of(self)

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        ladder = self._cfg.other.eps_ladder
        if ladder.base is not None and "eps" not in setting:  # random collecting sets it to 1
            total = self._shapes.get("env_num", leading_shape(obs)[0])
            mine = np.asarray(self._shapes.get("columns", np.arange(total)))
            steps = epsilon_ladder(float(ladder.base), float(ladder.alpha), total)
            setting["eps"] = steps[mine if data_id is None else mine[data_id]]
        return super()._forward_collect(obs, data_id, **setting)

    def _get_setting_collect(self, envstep: int) -> dict[str, Any]:
        setting = super()._get_setting_collect(envstep)
        if self._cfg.other.eps_ladder.base is not None:
            setting.pop("eps", None)
        return setting

    def default_model(self) -> tuple[str, list[str]]:
        return "drqn", ["ding_like.model.template.q_learning"]
