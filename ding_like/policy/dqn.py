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
from ding_like.model.wrapper.base_wrapper import innermost
from ding_like.policy.base_policy import Policy
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.sequences import SequenceErrors, SequenceQ, window_mistakes, window_priority
from ding_like.rl_utils.adder import get_nstep_return_data
from ding_like.rl_utils.loss import huber, masked_mean
from ding_like.rl_utils.td import q_learning_pair
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(Policy):
    """Q-learning with replay and a target network. Mnih 2015; double: van Hasselt 2016; dueling: Wang 2016 (model)."""

    config = dict(
        priority=False,  # prioritised replay: what the network is most wrong about (|td|) is drawn more often
        priority_IS_weight=None,  # weigh the loss against that bias; None does where priority is True
        burnin_step=0,  # of a recurrent network: steps in front of those that train, to bring its state up to date
        learn_unroll_len=20,  # of a recurrent network: steps of a train sample after those; the last nstep do not train
        double=True,  # the online network chooses the bootstrap action, the target network values it
        learn=dict(
            value_rescale=False,  # of a recurrent network: learn values through h(x), which makes large ones smaller
            stored_state=True,  # of a recurrent network: begin at the state that collecting had there, not at zero
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
        "burnin_step": at_least(0),
        "learn_unroll_len": at_least(2),
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
        self._loss = huber if learn.loss == "huber" else torch.square  # of td errors, any shape
        self._mean_loss = F.huber_loss if learn.loss == "huber" else F.mse_loss
        self._optimizer = FlatOptimizer(
            self._model.parameters(), learn.optimizer, learn.learning_rate, learn.grad_clip_norm
        )
        self._learn_model = model_wrap(self._model, wrapper_name="base")
        kind: dict[str, Any] = (
            dict(update_type="assign", update_kwargs={"freq": learn.target_update_freq})
            if learn.target_theta is None
            else dict(update_type="momentum", update_kwargs={"theta": learn.target_theta})
        )
        self._target_model = model_wrap(deepcopy(self._model), wrapper_name="target", **kind)
        recurrent, network = is_recurrent(self._model), innermost(self._model)
        told = self.network_mistakes(self._cfg, recurrent, type(network))
        if told:
            raise ConfigError("\n".join(told))
        self._sequences: SequenceQ | None = self._make_sequences() if recurrent else None

    @classmethod
    def network_mistakes(cls, cfg: Any, recurrent: bool, network: type) -> list[str]:
        """A line for every setting that does not fit a network of this class, recurrent or not."""
        return window_mistakes(cfg, recurrent, network)

    def _make_sequences(self) -> SequenceQ:
        cfg = self._cfg
        return SequenceQ(
            self._learn_model,
            self._target_model,
            burnin=int(cfg.burnin_step),
            unroll_len=int(cfg.learn_unroll_len),
            nstep=self._nstep,
            gamma=self._gamma,
            double=self._double,
            rescale=bool(cfg.learn.value_rescale),
            stored_state=bool(cfg.learn.stored_state),
        )

    def _get_windows(self) -> dict[str, Any] | None:
        if not is_recurrent(self._model):
            return None
        cfg = self._cfg
        return {"unroll_len": int(cfg.learn_unroll_len), "burnin": int(cfg.burnin_step), "tail": self._nstep}

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on n-step transitions `[N]`: obs, action, reward, discount, next_obs, optional weight.

        Of a recurrent network: on windows `[U, N]`, see `SequenceQ`. With `priority` on the result holds
        `priority [N]`, the absolute TD errors.
        """
        if self._sequences is not None:
            return self._learn_windows(self._sequences.errors(data), data.get("weight"))
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
        )  # [N, 1], [N, 1]
        weight = data.get("weight")
        if weight is None:  # the mean loss as one operation: half the graph
            loss = self._mean_loss(taken, wanted)
        else:
            loss = masked_mean(self._loss((wanted - taken).squeeze(-1)), weight=weight)
        grad_norm = self._optimise(self._optimizer, loss)
        self._target_model.update(self._model)
        taken = taken.detach().squeeze(-1)  # [N]
        td = wanted.squeeze(-1) - taken
        priority = {"priority": td.abs()} if self._priority else {}  # [N], what the store is told
        return {
            **priority,
            "total_loss": loss.detach(),
            "q_value": taken,
            "td_error": td,
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }

    def _learn_windows(self, errors: SequenceErrors, weight: torch.Tensor | None) -> dict[str, Any]:
        """One gradient step on the mean loss over all real steps; `weight [N]` is that of a window."""
        loss = masked_mean(self._loss(errors.wanted - errors.taken), errors.mask, weight)
        grad_norm = self._optimise(self._optimizer, loss)
        self._target_model.update(self._model)
        td = (errors.wanted - errors.taken).detach()  # [S, N]
        priority = {"priority": window_priority(td, errors.mask)} if self._priority else {}
        return {
            **priority,
            "total_loss": loss.detach(),
            "q_value": masked_mean(errors.taken.detach(), errors.mask),
            "td_error": masked_mean(td, errors.mask),
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }

    def _init_collect(self) -> None:
        self._collect_model = acting_model(self._model, "eps_greedy_sample", save_prev_state=True)

    def _forward_random(self, obs: Any) -> ArrayDict:
        if is_recurrent(self._model):  # what is stored has the network's state
            return self._forward_collect(obs, eps=1.0)
        return super()._forward_random(obs)

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        state = {"prev_state": model_output["prev_state"]} if "prev_state" in model_output else {}
        return {
            **state,
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
        self._eval_model = acting_model(self._model, "argmax_sample")


def _check_bootstrap(action_mask: torch.Tensor, discount: torch.Tensor) -> None:
    """Raises ValueError where a value is wanted of an observation that allows no action."""
    if bool(((action_mask != 0).any(-1).logical_not() & (discount > 0)).any()):
        raise ValueError(
            "obs['action_mask'] allows no action in an observation whose value is needed (the episode goes on "
            "after it, or was truncated there); only the last observation of a terminated episode may forbid all"
        )
