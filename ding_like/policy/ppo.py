"""Proximal policy optimisation."""

from __future__ import annotations

from typing import Any

import torch

from ding_like.config.checks import above_one, optional, positive
from ding_like.data import ArrayDict, Block, torchify, tree_map
from ding_like.policy.actor_critic import ActorCriticPolicy
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.policy_gradient import clipped_surrogate
from ding_like.utils import POLICY_REGISTRY


def with_log_prob(items: Block, kind: str) -> Block:
    """Rows `[T, B]` with `log_prob`, of each action under the policy that took it, in the place of `logit`."""
    logit = tree_map(torchify, items.pop("logit"))
    with torch.inference_mode():
        items["log_prob"] = make_distribution(logit, kind).log_prob(torchify(items["action"])).numpy()  # [T, B]
    return items


def clipped_step(
    policy: ActorCriticPolicy,
    data: ArrayDict,
    clip: float,
    dual_clip: float | None = None,
    value_clip: float | None = None,
) -> dict[str, Any]:
    """One gradient step of a policy on a minibatch `[N]`: obs, action, log_prob, adv, return_, value, optional weight.

    Of a recurrent network: on segments `[U, N]`. The limits are those of `clipped_surrogate` and `value_loss`. Returns
    what to log.
    """
    output, data = policy._evaluated(data)
    distribution = make_distribution(output["logit"], policy._kind)
    log_prob = distribution.log_prob(data["action"])  # [N]
    surrogate, ratio = clipped_surrogate(log_prob, data["log_prob"], policy._advantage(data), clip, dual_clip)
    info = policy._optimise_losses(data, output, distribution, surrogate, value_clip)
    with torch.no_grad():
        info["approx_kl"] = (ratio - 1 - (log_prob - data["log_prob"])).mean()
        info["clip_fraction"] = ((ratio - 1).abs() > clip).float().mean()
    return info


@POLICY_REGISTRY.register("ppo")
class PPOPolicy(ActorCriticPolicy):
    """Clipped surrogate objective over epochs of minibatches. Schulman 2017; dual clip: Ye 2020."""

    config = dict(
        learn=dict(
            epoch_per_collect=10,  # passes over each rollout
            batch_size=64,  # most samples (of a recurrent network: segments) of a minibatch; all are about as large
            learning_rate=3e-4,  # step size
            clip_ratio=0.2,  # the ratio of new to old probability is clipped to 1 - clip_ratio and 1 + clip_ratio
            dual_clip=None,  # lower bound factor (above 1) of the objective where the advantage is negative
            value_clip=None,  # how far the value may move from the old one; None does not clip
            target_kl=None,  # a step whose approximate KL exceeds 1.5 times this is the rollout's last
        ),
        collect=dict(
            n_sample=1024,  # train samples (of a recurrent network: segments) of one rollout; whole rows of all columns
        ),
    )
    config_checks = {
        "learn.clip_ratio": positive,
        "learn.dual_clip": optional(above_one),
        "learn.value_clip": optional(positive),
        "learn.target_kl": optional(positive),
    }

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._clip, self._dual_clip, self._value_clip = learn.clip_ratio, learn.dual_clip, learn.value_clip
        self._target_kl = learn.target_kl

    def _train_fields(self, data: Block) -> Block:
        return with_log_prob(super()._train_fields(data), self._kind)

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        info = clipped_step(self, data, self._clip, self._dual_clip, self._value_clip)
        if self._target_kl is not None:
            info["stop_updates"] = float(info["approx_kl"]) > 1.5 * self._target_kl
        return info
