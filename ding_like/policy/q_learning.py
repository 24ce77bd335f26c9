"""What value-based policies share: acting, n-step items, target network, double Q-learning, priorities, windows."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ding_like.config.checks import at_least, fraction, one_of, optional, positive_fraction
from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, Block, tree_map
from ding_like.model import model_wrap
from ding_like.model.wrapper.base_wrapper import innermost
from ding_like.policy.base_policy import Policy
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.rows import replay_items, replay_row
from ding_like.policy.sequences import SequenceQ, slots_of, window_mistakes, window_priority, window_setting
from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.td import LOSSES, ElementLoss, at_action
from ding_like.torch_utils import FlatOptimizer
from ding_like.torch_utils.network.noisy import NetworkNoise

Outputs = dict[str, Any]
Errors = tuple[Tensor, Tensor]


class QLearningPolicy(Policy):
    """Q-learning with replay and a target network. Not an algorithm: subclasses are, by `_errors`.

    The network gives `logit [..., A]`, the values that actions are chosen by, and what else its `_errors` needs. With
    noisy layers (`policy.model.noisy`) there is no epsilon: the noise of the weights explores. Fortunato 2018.
    """

    config = dict(
        priority=False,  # prioritised replay: what the network is most wrong about is drawn more often
        priority_IS_weight=None,  # weigh the loss against that bias; None does where priority is True
        burnin_step=0,  # of a recurrent network: steps in front of those that train, to bring its state up to date
        learn_unroll_len=20,  # of a recurrent network: steps of a train sample after those; the last nstep do not train
        double=True,  # the online network chooses the bootstrap action, the target network values it
        learn=dict(
            stored_state=True,  # of a recurrent network: begin at the state that collecting had there, not at zero
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
        "learn.target_update_freq": at_least(1),
        "learn.target_theta": optional(positive_fraction),
        "other.eps.type": one_of("exp", "linear"),
        "other.eps.start": fraction,
        "other.eps.end": fraction,
        "other.eps.decay": at_least(1),
    }
    action_spaces = ("Discrete",)
    sampler = "eps_greedy_sample"
    """The wrapper that chooses exploring actions."""
    uniform: dict[str, Any] = dict(eps=1.0)
    """The setting with which it chooses uniformly."""
    outputs: tuple[str, ...] = ()
    """What it wants of the network beside `logit`."""

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", ["ding_like.model.template.q_learning"]

    # ------------------------------------------------------------------ to be written by an algorithm
    def _errors(
        self, online: Outputs, target: Outputs, choice: Tensor | None, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Errors:
        """The loss and the error of M steps, `[M]` each: transitions, or the real steps of windows.

        Args:
            online: outputs `[M, ...]` of the network where it acted, with gradient.
            target: those of the target network at the bootstraps.
            choice: `[M]`, the bootstraps' actions; None: the target network's own best.
            action, reward, discount: `[M]`; the reward is summed, the discount gamma^k, 0 where the episode terminated.

        Returns:
            What is minimised, and what a priority is the size of (without gradient).
        """
        raise NotImplementedError(f"{type(self).__name__} has no _errors")

    # ------------------------------------------------------------------ learning
    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._double = bool(self._cfg.double)
        self._priority = bool(self._cfg.priority)
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
        networks = self._learn_model, self._target_model
        self._sequences = SequenceQ(*networks, slots_of(self._cfg), self._double) if recurrent else None

    @classmethod
    def network_mistakes(cls, cfg: Any, recurrent: bool, network: type) -> list[str]:
        """A line for every setting that does not fit a network of this class, recurrent or not."""
        return window_mistakes(cfg, recurrent, network)

    @cached_property
    def _noise(self) -> NetworkNoise:
        target = [innermost(self._target_model)] if hasattr(self, "_target_model") else []
        return NetworkNoise(self._seed, innermost(self._model), *target)

    def _get_windows(self) -> dict[str, Any] | None:
        return window_setting(self._cfg) if is_recurrent(self._model) else None

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on n-step transitions `[N]`: obs, action, reward, discount, next_obs, optional weight.

        Of a recurrent network: on windows `[U, N]`, see `SequenceQ`. With `priority` on the result holds
        `priority [N]`, the size of the errors.
        """
        self._noise.step()
        if self._sequences is not None:
            return self._learn_windows(self._sequences, data)
        online = self._learn_model.forward(data["obs"])
        with torch.no_grad():
            target = self._target_model.forward(data["next_obs"])
            if isinstance(data["next_obs"], dict) and "action_mask" in data["next_obs"]:
                _check_bootstrap(data["next_obs"]["action_mask"], data["discount"])
            choice = self._learn_model.forward(data["next_obs"])["logit"].argmax(-1) if self._double else None  # [N]
        steps = online, target, choice, data["action"], data["reward"], data["discount"]
        loss, error = self._mean_errors(data.get("weight"), *steps)
        info = self._step(loss, at_action(online["logit"].detach(), data["action"]), error)
        if self._priority:
            info["priority"] = error.abs()  # [N], what the store is told
        return info

    def _mean_errors(self, weight: Tensor | None, *steps: Any) -> Errors:
        """The mean loss, weighted by `weight [N]`, and the errors `[N]`."""
        missing = [name for name in self.outputs if name not in steps[0]]
        if missing:
            raise ConfigError(
                f"policy.model: the network ({type(innermost(self._model)).__name__}) gives {', '.join(steps[0])}; "
                f"{type(self).__name__} wants {' and '.join(missing)} too, see policy.model.type='dqn'"
            )
        loss, error = self._errors(*steps)
        return (loss.mean() if weight is None else masked_mean(loss, weight=weight)), error

    def _learn_windows(self, sequences: SequenceQ, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on the mean loss over all real steps; `weight [N]` is that of a window.

        Null steps are taken out here: an algorithm sees those alone that train.
        """
        seen = sequences.outputs(data)
        windows, mask = seen.windows, seen.windows.mask  # [S, N]
        action = windows.action[windows.start : windows.stop]
        weight = data["weight"].expand(mask.shape) if "weight" in data else None
        fields = weight, seen.online, seen.target, seen.choice, action, windows.reward, windows.discount
        whole = bool(mask.all())
        steps: Any = tree_map(lambda x: x.flatten(0, 1) if whole else x[mask], fields)  # [M, ...]
        loss, error = self._mean_errors(*steps)
        values = at_action(steps[1]["logit"].detach(), steps[4])
        info = self._step(loss, values.mean(), error.mean())
        if self._priority:
            errors = error.new_zeros(mask.shape)
            errors[mask] = error
            info["priority"] = window_priority(errors, mask)
        return info

    def _step(self, loss: Tensor, q_value: Tensor, error: Tensor) -> dict[str, Any]:
        grad_norm = self._optimise(self._optimizer, loss)
        self._target_model.update(self._model)
        return {
            "total_loss": loss.detach(),
            "q_value": q_value,
            "td_error": error,
            "grad_norm": grad_norm,
            "cur_lr": self._optimizer.param_groups[0]["lr"],
        }

    # ------------------------------------------------------------------ acting
    def _init_collect(self) -> None:
        self._collect_model = acting_model(self._model, self.sampler, save_prev_state=True)

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        """Exploring actions for observations `[B, ...]`; the setting `noise_key` names the noise of noisy layers."""
        self._noise.block(setting.pop("noise_key", 0))
        return super()._forward_collect(obs, data_id, **setting)

    def _get_setting_collect(self, envstep: int) -> dict[str, Any]:
        """Epsilon, or with noisy layers the key of their noise: one a block, the same in every worker."""
        return {"noise_key": envstep} if self._noise.noisy else super()._get_setting_collect(envstep)

    def _forward_random(self, obs: Any) -> ArrayDict:
        if is_recurrent(self._model):  # what is stored has the network's state
            return self._forward_collect(obs, **self.uniform)
        return super()._forward_random(obs)

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        return replay_row(obs, model_output, timestep)

    def _get_train_sample(self, data: Block) -> Block:
        return replay_items(data, self._nstep, self._gamma)

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "argmax_sample")

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        self._noise.off()
        return super()._forward_eval(obs, data_id)


def best_action(target: Outputs, choice: Tensor | None) -> Tensor:
    """The actions `[M]` that bootstraps take: those chosen for them, or the target network's own best."""
    return target["logit"].argmax(-1) if choice is None else choice


def loss_of(cfg: Any) -> ElementLoss:
    """The loss of (estimate, target) that `learn.loss` names. Raises ConfigError for an unknown name."""
    name = cfg.learn.loss
    if name not in LOSSES:
        raise ConfigError(f"policy.learn.loss is {name!r}; wanted {' or '.join(map(repr, LOSSES))}")
    return LOSSES[name]


def _check_bootstrap(action_mask: Tensor, discount: Tensor) -> None:
    """Raises ValueError where a value is wanted of an observation that allows no action."""
    if bool(((action_mask != 0).any(-1).logical_not() & (discount > 0)).any()):
        raise ValueError(
            "obs['action_mask'] allows no action in an observation whose value is needed (the episode goes on "
            "after it, or was truncated there); only the last observation of a terminated episode may forbid all"
        )
