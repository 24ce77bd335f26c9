"""Twin delayed deep deterministic policy gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ding_like.config.checks import finite, not_negative
from ding_like.policy.q_value_gradient import QValueGradientPolicy
from ding_like.rl_utils.dpg import smoothed_action
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3")
class TD3Policy(QValueGradientPolicy):
    """DDPG with the smaller of two critics, a delayed actor and smoothed target actions. Fujimoto 2018."""

    config = dict(
        model=dict(
            actor_head_type="regression",  # the actor gives one action, no distribution
        ),
        learn=dict(
            actor_update_freq=2,  # gradient steps of the critics to one of the actor and of the target networks
            noise_sigma=0.2,  # deviation of the noise on target actions, where the box is [-1, 1]; 0 leaves it out
            noise_range=dict(
                min=-0.5,  # that noise is cut to [min, max]
                max=0.5,  # see min
            ),
        ),
        collect=dict(
            noise_sigma=0.1,  # deviation of the Gaussian noise on exploring actions, where the box is [-1, 1]
        ),
    )
    config_checks = {
        "learn.noise_sigma": not_negative,
        "learn.noise_range.min": finite,
        "learn.noise_range.max": finite,
        "collect.noise_sigma": not_negative,
    }

    @classmethod
    def network_mistakes(cls, cfg: Any, recurrent: bool, network: type[nn.Module]) -> list[str]:
        told, noise = super().network_mistakes(cfg, recurrent, network), cfg.learn.noise_range
        if noise.min > noise.max:
            told.append(
                f"policy.learn.noise_range: got min {noise.min} and max {noise.max}, wanted a max that is not below min"
            )
        return told

    def _target_action(self, action: Tensor) -> Tensor:
        learn = self._cfg.learn
        noise = torch.randn_like(action) * float(learn.noise_sigma)
        return smoothed_action(action, noise, float(learn.noise_range.min), float(learn.noise_range.max))
