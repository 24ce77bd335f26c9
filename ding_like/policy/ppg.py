"""Phasic policy gradient."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from ding_like.config.checks import at_least, not_negative, one_of, optional, positive
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block
from ding_like.policy.actor_critic import ActorCriticPolicy
from ding_like.policy.actor_parts import learning_model
from ding_like.policy.ppo import clipped_step, with_log_prob
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.policy_gradient import value_loss
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("ppg")
class PPGPolicy(ActorCriticPolicy):
    """PPO with a policy and a value network apart; after some rollouts the policy's features learn the values of all of
    them, while what it does is held. Cobbe 2020.

    `policy.other.replay_buffer` says how many rollouts, and how often they are passed.
    """

    config = dict(
        model=dict(
            share_encoder=False,  # a network for the policy and one for the value
            aux_value_head=True,  # the policy's features give a value too, which the auxiliary phase trains
        ),
        learn=dict(
            epoch_per_collect=1,  # passes over each rollout of a policy phase
            batch_size=64,  # most samples (of a recurrent network: segments) of a minibatch of a policy phase
            learning_rate=5e-4,  # step size
            value_norm=True,  # values divided by the running size of the returns, so that beta_clone means the same
            clip_ratio=0.2,  # the ratio of new to old probability is clipped to 1 - clip_ratio and 1 + clip_ratio
            value_clip=None,  # how far the value may move from the old one; None does not clip
            beta_clone=1.0,  # weight of the divergence of the policy from what it was before the auxiliary phase
        ),
        collect=dict(
            n_sample=1024,  # train samples (of a recurrent network: segments) of one rollout; whole rows of all columns
        ),
    )
    config_checks = {
        "model.share_encoder": one_of(False),
        "model.aux_value_head": one_of(True),
        "learn.clip_ratio": positive,
        "learn.value_clip": optional(positive),
        "learn.beta_clone": not_negative,
        "other.replay_buffer.policy_phases": at_least(1),
        "other.replay_buffer.aux_epochs": at_least(1),
        "other.replay_buffer.aux_batch_size": at_least(1),
    }
    stores = ("phasic",)

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._clip, self._value_clip, self._beta = learn.clip_ratio, learn.value_clip, float(learn.beta_clone)
        self._old: Any = None  # the network as it was when the auxiliary phase began, while that lasts
        self._checked = False  # whether the network gives what the auxiliary phase wants

    def _train_fields(self, data: Block) -> Block:
        """As of PPO, and the `unit` of `return_`, which may be another one when the auxiliary phase comes."""
        items = with_log_prob(super()._train_fields(data), self._kind)
        items["unit"] = np.full_like(items["value"], self._value_scale())  # [T, B]
        return items

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on a minibatch of a rollout, as PPO's, or, with the field `auxiliary`, of the auxiliary
        phase, which wants obs, return_ and unit.
        """
        auxiliary = data.pop("auxiliary", None) is not None
        if not self._checked:  # at the first step, not after a phase of rollouts
            self._check(self._evaluated(data)[0])
        if auxiliary:
            return self._auxiliary_step(data)
        self._old = None
        return clipped_step(self, data, self._clip, value_clip=self._value_clip)

    def _check(self, output: Any) -> None:
        if "aux_value" not in output:
            raise ConfigError(
                f"policy.model: the network ({type(self._model).__name__}) gives {', '.join(output)}; phasic policy "
                "gradient wants `aux_value` too, one number an observation of the policy's own features"
            )
        self._checked = True

    def _auxiliary_step(self, data: ArrayDict) -> dict[str, Any]:
        """Both values towards the returns, the policy kept by KL(old || new). Cobbe 2020, L_joint and L_value."""
        if self._old is None:
            self._old = learning_model(deepcopy(self._model))
        with torch.no_grad():
            old: Any = make_distribution(self._evaluated(data, self._old)[0]["logit"], self._kind)
        output, data = self._evaluated(data)
        target = data["return_"] * data["unit"] / float(self._value_scale())  # [N], in the unit of today
        divergence = old.kl(make_distribution(output["logit"], self._kind)).mean()
        auxiliary, value = (value_loss(output[name], target).mean() for name in ("aux_value", "value"))
        loss = auxiliary + self._beta * divergence + value
        grad_norm = self._optimise(self._optimizer, loss)
        return {
            "total_loss": loss.detach(),
            "aux_value_loss": auxiliary.detach(),
            "aux_kl": divergence.detach(),
            "value_loss": value.detach(),
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }
