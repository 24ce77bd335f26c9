"""Deep Q-learning."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F

from ding_like.config.checks import at_least, fraction, one_of, optional, positive_fraction
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block
from ding_like.model import model_wrap
from ding_like.policy.base_policy import Policy
from ding_like.rl_utils.adder import get_nstep_return_data
from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.td import q_learning_pair
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(Policy):
    """Q-learning with replay and a target network. Mnih 2015; double: van Hasselt 2016; dueling: Wang 2016 (model)."""

    config = dict(
        priority=False,  # prioritised replay: what the network is most wrong about (|td|) is drawn more often
        priority_IS_weight=None,  # weigh the loss against that bias; None does where priority is True
        double=True,  # the online network chooses the bootstrap action, the target network values it
        learn=dict(
            loss="huber",  # huber (linear beyond |td| = 1) or mse
            target_update_freq=100,  # gradient steps between copies to the target network; unused with target_theta
            target_theta=None,  # soft target update p <- (1 - theta) p + theta q at every step; None copies
        ),
        other=dict(
            eps=dict(
                type="exp",  # exp or linear
                start=0.95,  # epsilon at env step 0
                end=0.1,  # epsilon in the end
                decay=10000,  # env steps: the time constant of exp, the length of linear
            ),
        ),
    )
    config_checks = {
        "priority_IS_weight": one_of(True, False, None),
        "learn.loss": one_of("huber", "mse"),
        "learn.target_update_freq": at_least(1),
        "learn.target_theta": optional(positive_fraction),
        "other.eps.type": one_of("exp", "linear"),
        "other.eps.start": fraction,
        "other.eps.end": fraction,
        "other.eps.decay": at_least(1),
    }
    action_spaces = ("Discrete",)

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", ["ding_like.model.template.q_learning"]

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        if learn.loss not in ("huber", "mse"):
            raise ConfigError(f"policy.learn.loss is {learn.loss!r}; wanted 'huber' or 'mse'")
        self._double = bool(self._cfg.double)
        self._priority = bool(self._cfg.priority)
        self._loss = F.huber_loss if learn.loss == "huber" else F.mse_loss
        self._optimizer = FlatOptimizer(
            self._model.parameters(), learn.optimizer, learn.learning_rate, learn.grad_clip_norm
        )
        self._learn_model = model_wrap(self._model, wrapper_name="base")
        kind = (
            dict(update_type="assign", update_kwargs={"freq": learn.target_update_freq})
            if learn.target_theta is None
            else dict(update_type="momentum", update_kwargs={"theta": learn.target_theta})
        )
        self._target_model = model_wrap(deepcopy(self._model), wrapper_name="target", **kind)

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on n-step transitions `[N]`: obs, action, reward, discount, next_obs, optional weight.

        With `priority` on the result holds `priority [N]`, the absolute TD errors.
        """
        q = self._learn_model.forward(data["obs"])["logit"]  # [N, A]
        with torch.no_grad():
            target_q = self._target_model.forward(data["next_obs"])["logit"]  # [N, A]
            next_action = None
            if isinstance(data["next_obs"], dict) and "action_mask" in data["next_obs"]:
                _check_bootstrap(data["next_obs"]["action_mask"], data["discount"])
            if self._double:
                next_action = self._learn_model.forward(data["next_obs"])["logit"].argmax(-1)  # [N]
        taken, wanted = q_learning_pair(
            q, data["action"], data["reward"], data["discount"], target_q, next_action
        )  # [N], [N]
        weight = data.get("weight")
        if weight is None:  # the mean loss as one operation: half the graph
            loss = self._loss(taken, wanted)
        else:
            loss = masked_mean(self._loss(taken, wanted, reduction="none"), weight=weight)
        grad_norm = self._optimise(self._optimizer, loss)
        self._target_model.update(self._model)
        taken = taken.detach()
        td = wanted - taken
        priority = {"priority": td.abs()} if self._priority else {}  # [N], what the store is told
        return {
            **priority,
            "total_loss": loss.detach(),
            "q_value": taken,
            "td_error": td,
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }

    def _init_collect(self) -> None:
        self._collect_model = model_wrap(self._model, wrapper_name="eps_greedy_sample")

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        return {
            "obs": obs,
            "action": model_output["action"],
            "reward": timestep.reward,
            "next_obs": timestep.obs,
            "terminated": timestep.terminated,
            "done": timestep.done,
        }

    def _get_train_sample(self, data: Block) -> Block:
        """n-step transitions; `discount` is gamma^k, 0 where the episode terminated, so no flag is stored."""
        data = get_nstep_return_data(data, self._nstep, cum_reward=True, gamma=self._gamma)
        data["discount"] = data["value_gamma"] * ~data["done"]  # [E, B]
        for name in ("value_gamma", "terminated", "truncated", "done"):
            data.pop(name, None)
        return data

    def _init_eval(self) -> None:
        self._eval_model = model_wrap(self._model, wrapper_name="argmax_sample")


def _check_bootstrap(action_mask: torch.Tensor, discount: torch.Tensor) -> None:
    """Raises ValueError where a value is wanted of an observation that allows no action."""
    if bool(((action_mask != 0).any(-1).logical_not() & (discount > 0)).any()):
        raise ValueError(
            "obs['action_mask'] allows no action in an observation whose value is needed (the episode goes on "
            "after it, or was truncated there); only the last observation of a terminated episode may forbid all"
        )
