"""Behavioural cloning."""

from __future__ import annotations

from typing import Any

import torch

from ding_like.config.checks import at_least, one_of
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict
from ding_like.policy.actor_parts import action_kind, learning_model, sampling_model
from ding_like.policy.base_policy import Policy
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.segments import unroll
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.imitation import LOSSES, cloning_loss
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("il")
@POLICY_REGISTRY.register("bc")
class BehaviouralCloningPolicy(Policy):
    """The actions of a dataset, learned as labels; no env step is taken but in evaluation. Pomerleau 1991.

    A recurrent network learns from windows of episodes, each from the initial state on.
    """

    config = dict(
        burnin_step=0,  # of a recurrent network: steps in front of those that train, to bring its state up to date
        learn_unroll_len=32,  # of a recurrent network: steps of a train sample after those
        learn=dict(
            loss=None,  # nll (log-likelihood) or mse (of continuous actions); None: mse where actions are continuous
            update_per_collect=20,  # gradient steps of a round: between looks at evaluation, limits and resume points
        ),
    )
    config_checks = {
        "burnin_step": at_least(0),
        "learn_unroll_len": at_least(2),
        "nstep": one_of(1),
        "random_collect_size": one_of(0),
        "learn.loss": one_of(None, *LOSSES),
        "learn.lr_schedule.type": one_of(None),  # it counts env steps, of which there are none
    }
    stores = ("dataset",)

    def default_model(self) -> tuple[str, list[str]]:
        return "vac", ["ding_like.model.template.vac"]

    _kind = property(action_kind)

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._loss = learn.loss or ("mse" if self._kind == "continuous" else "nll")
        if self._loss == "mse" and self._kind != "continuous":
            raise ConfigError(f"policy.learn.loss is 'mse' and the actions are {self._kind}; wanted 'nll', or None")
        self._optimizer = FlatOptimizer(
            self._model.parameters(), learn.optimizer, learn.learning_rate, learn.grad_clip_norm
        )
        self._learn_model = learning_model(self._model)

    def _init_collect(self) -> None:
        self._collect_model = sampling_model(self._model, self._kind, self._shapes.get("action_shape", 1))

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "deterministic_sample")

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        return self._act("eval", self._eval_model, obs, data_id, {"mode": "compute_actor"})

    def _get_time_major(self) -> bool:
        return is_recurrent(self._model)

    def _get_sample_len(self) -> int:
        return int(self._cfg.learn_unroll_len) if is_recurrent(self._model) else 1

    def _get_burnin(self) -> int:
        return int(self._cfg.burnin_step)

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on `obs` and `action` `[N]`; of a recurrent network on windows `[U, N]` with `mask` and
        `cut`, see `segments.unroll`.
        """
        if is_recurrent(self._model):
            output, data = unroll(self._learn_model, data, "compute_actor")
        else:
            output = self._learn_model.forward(data["obs"], mode="compute_actor")
        distribution = make_distribution(output["logit"], self._kind)
        loss = cloning_loss(distribution, data["action"], self._loss).mean()
        info = {"total_loss": loss.detach(), "grad_norm": self._optimise(self._optimizer, loss)}
        if self._kind != "continuous":
            same = distribution.mode() == data["action"]
            info["accuracy"] = (same if same.dim() == 1 else same.all(-1)).to(torch.float32).mean()
        return {**info, "cur_lr": self._optimizer.param_groups[0]["lr"]}
