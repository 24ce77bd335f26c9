"""What policies share that climb the gradient of a Q-value: acting, replay, critics, target networks, windows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ding_like.config.checks import at_least, one_of, optional, positive, positive_fraction
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block
from ding_like.model import model_wrap
from ding_like.model.wrapper.base_wrapper import innermost
from ding_like.policy.base_policy import Policy
from ding_like.policy.q_value_steps import Transitions, Unrolled
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.rows import replay_items, replay_row
from ding_like.policy.sequences import slots_of, width_mistakes, window_priority, window_setting
from ding_like.rl_utils.dpg import critic_loss, deterministic_policy_loss
from ding_like.rl_utils.loss import masked_mean
from ding_like.torch_utils import FlatOptimizer


class QValueGradientPolicy(Policy):
    """An actor trained through critics of state and action, with replay and target networks. Silver 2014.

    Not an algorithm: subclasses are. As it stands the actor is deterministic. The network takes `mode` ('compute_actor'
    gives `logit`, 'compute_critic' `q_value [K, ...]` of K critics) and has modules `actor` and `critic`, see `QAC`.
    Actions are in the policy's units, in which a Box is [-1, 1], everywhere but in the env.
    """

    config = dict(
        priority=False,  # prioritised replay: what the critics are most wrong about (mean |td|) is drawn more often
        priority_IS_weight=None,  # weigh the critics' loss against that bias; None does where priority is True
        burnin_step=0,  # of a recurrent network: steps in front of those that train, to bring its states up to date
        learn_unroll_len=20,  # of a recurrent network: steps of a train sample after those; the last nstep do not train
        random_collect_size=1000,  # env steps with uniformly random actions before the first update
        learn=dict(
            batch_size=256,  # samples of one gradient step
            learning_rate_actor=None,  # step size of the actor; None takes learning_rate, which is the critics'
            stored_state=True,  # of a recurrent network: begin at the states that collecting had there, not at zero
            target_theta=0.005,  # soft target update p <- (1 - theta) p + theta q
            actor_update_freq=1,  # gradient steps of the critics to one of the actor and of the target networks
        ),
        collect=dict(
            n_sample=1,  # train samples of one collect; whole rows of all env columns, extras count for the next
        ),
    )
    config_checks = {
        "priority_IS_weight": one_of(True, False, None),
        "burnin_step": at_least(0),
        "learn_unroll_len": at_least(2),
        "learn.learning_rate_actor": optional(positive),
        "learn.target_theta": positive_fraction,
        "learn.actor_update_freq": at_least(1),
    }
    action_spaces: tuple[str, ...] = ("Box",)
    learn_parts = {**Policy.learn_parts, "optimizer_actor": "_optimizer_actor"}

    def default_model(self) -> tuple[str, list[str]]:
        return "qac", ["ding_like.model.template.qac"]

    @classmethod
    def network_mistakes(cls, cfg: Any, recurrent: bool, network: type[nn.Module]) -> list[str]:
        """A line for every setting that does not fit a network of this class, recurrent or not."""
        told = list(width_mistakes(cfg)) if recurrent else []
        if cfg.burnin_step and not recurrent:
            told.append(
                f"policy.burnin_step is {cfg.burnin_step} and the network ({network.__name__}) is feed-forward; wanted "
                "burnin_step=0, or a recurrent network, such as 'qac' with policy.model.lstm_type"
            )
        takes_mode = "mode" in inspect.signature(network.forward).parameters
        if not takes_mode or not getattr(network, "values_actions", True):
            why = "its critic values states, no actions" if takes_mode else "its forward takes no 'mode'"
            told.append(
                f"policy.model: the network ({network.__name__}) is not one of actor and critics, as {why}; wanted one "
                "such as policy.model.type='qac'"
            )
        return told

    # ------------------------------------------------------------------ learning
    def _init_learn(self) -> None:
        learn, network = self._cfg.learn, innermost(self._model)
        self._recurrent = is_recurrent(self._model)
        told = self.network_mistakes(self._cfg, self._recurrent, type(network))
        missing = [part for part in ("actor", "critic") if not isinstance(getattr(network, part, None), nn.Module)]
        if missing and not told:
            told = [
                f"policy.model: the network ({type(network).__name__}) has no module `{'` and no `'.join(missing)}`, "
                "which tell the actor's parameters from the critics'; see QAC, policy.model.type='qac'"
            ]
        if told:
            raise ConfigError("\n".join(told))
        self._priority = bool(self._cfg.priority)
        self._critics = list(network.critic.parameters())
        rate = learn.learning_rate_actor or learn.learning_rate
        self._share = float(rate) / float(learn.learning_rate)  # of the critics' learning rate
        self._optimizer = FlatOptimizer(self._critics, learn.optimizer, learn.learning_rate, learn.grad_clip_norm)
        self._optimizer_actor = FlatOptimizer(network.actor.parameters(), learn.optimizer, rate, learn.grad_clip_norm)
        kind = dict(update_type="momentum", update_kwargs={"theta": learn.target_theta})
        self._learn_model = model_wrap(self._model, wrapper_name="base")
        self._target_model = model_wrap(deepcopy(self._model), wrapper_name="target", **kind)
        self._networks = self._learn_model, self._target_model
        if self._recurrent:
            self._networks = tuple(model_wrap(one, wrapper_name="hidden_state") for one in self._networks)
        self._updates = 0  # of the critics

    def _get_windows(self) -> dict[str, Any] | None:
        return window_setting(self._cfg) if is_recurrent(self._model) else None

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """A step of the critics, and after every `actor_update_freq` of them one of the actor and of the targets.

        Of n-step transitions `[N]`: obs, action, reward, discount, next_obs, optional weight; of a recurrent network
        windows `[U, N]`, see `open_windows`. With `priority` on the result holds `priority [N]`.
        """
        steps: Any = self._steps(data)
        with torch.no_grad():
            wanted = steps.reward + steps.discount * steps.bootstrap(self._next_value(steps))  # [...]
        q_value = steps.taken()  # [K, ...]
        loss = masked_mean(critic_loss(q_value, wanted), steps.mask, data.get("weight"))
        grad_norm = self._optimise(self._optimizer, loss)
        q_value = q_value.detach()
        q_mean = q_value.mean(0)  # [...]
        info = {
            "total_loss": loss.detach(),
            "q_value": masked_mean(q_mean, steps.mask),
            "td_error": masked_mean(wanted - q_mean, steps.mask),
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }
        if self._priority:
            size = (wanted - q_value).abs().mean(0)
            info["priority"] = size if steps.mask is None else window_priority(size, steps.mask)  # [N]
        self._updates += 1
        if self._updates % int(self._cfg.learn.actor_update_freq) == 0:
            info |= self._improve(steps)
            self._target_model.update(self._model)
        return info

    def _steps(self, data: ArrayDict) -> Transitions | Unrolled:
        if not self._recurrent:
            return Transitions(data, *self._networks)
        return Unrolled(data, *self._networks, slots_of(self._cfg))

    def _next_value(self, steps: Any) -> Tensor:
        """Values of the bootstraps by the target networks: of each transition, or of each slot of windows."""
        action = self._target_action(steps.next_logit(target=True)["mu"])
        return steps.next_q(action).amin(0)

    def _target_action(self, action: Tensor) -> Tensor:
        """The target network's actions as the target critics value them."""
        return action

    def _policy_loss(self, steps: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, one number a step, and what else is to be logged."""
        return deterministic_policy_loss(steps.q(steps.logit()["mu"], critic_num=1)), {}

    def _improve(self, steps: Any) -> dict[str, Tensor]:
        """One step of the actor; no gradient of the critics' weights is computed."""
        with _frozen(self._critics):
            each, told = self._policy_loss(steps)
            loss = masked_mean(each, steps.mask)
            grad_norm = self._optimise(self._optimizer_actor, loss, self._share)
        return {"policy_loss": loss.detach(), "grad_norm_actor": grad_norm, **told}

    def _state_dict_learn(self) -> dict[str, Any]:
        return {**super()._state_dict_learn(), "updates": getattr(self, "_updates", 0)}

    def _load_state_dict_learn(self, state: dict[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        self._updates = int(state["updates"])

    # ------------------------------------------------------------------ acting
    def _sampler(self) -> tuple[str, dict[str, Any]]:
        """The wrapper that chooses exploring actions, and its arguments."""
        return "action_noise", {"width": 2 * self._action_size, "noise_sigma": float(self._cfg.collect.noise_sigma)}

    @property
    def _action_size(self) -> int:
        return int(np.prod(self._shapes.get("action_shape", 1)))

    def _init_collect(self) -> None:
        name, kwargs = self._sampler()
        self._collect_model = acting_model(self._model, name, save_prev_state=True, **kwargs)
        if is_recurrent(self._model):
            self._collect_model = model_wrap(self._collect_model, wrapper_name="critic_memory")

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "deterministic_sample")

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        return super()._forward_collect(obs, data_id, mode="compute_actor", **setting)

    def _forward_random(self, obs: Any) -> ArrayDict:
        drawn = super()._forward_random(obs)
        if not is_recurrent(self._model):
            return drawn
        action = drawn["raw_action" if "raw_action" in drawn else "action"]  # what is stored has the network's states
        return self._forward_collect(obs, action=action)

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        return self._act("eval", self._eval_model, obs, data_id, {"mode": "compute_actor"})

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        return replay_row(obs, model_output, timestep)

    def _get_train_sample(self, data: Block) -> Block:
        return replay_items(data, self._nstep, self._gamma)


@contextmanager
def _frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
