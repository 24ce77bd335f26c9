"""What on-policy actor-critic policies share: acting, what a step stores, advantages of a rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ding_like.config.checks import at_least, fraction
from ding_like.data import ArrayDict, Block, tree_cat, tree_index, tree_map
from ding_like.model import model_wrap
from ding_like.model.normalizer import RunningStatistics
from ding_like.policy.actor_parts import (
    ACTOR_CHECKS,
    action_kind,
    check_value,
    learn_losses,
    learning_model,
    sampling_model,
    stored_step,
)
from ding_like.policy.base_policy import Policy
from ding_like.policy.recurrence import acting_model, is_recurrent
from ding_like.policy.segments import cut_segments, unroll, values_ahead
from ding_like.rl_utils.adder import make_masks
from ding_like.rl_utils.gae import gae_advantage
from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.policy_gradient import value_loss
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils.log import warn_once


class ActorCriticPolicy(Policy):
    """A stochastic policy with a value function, trained on whole rollouts. Not an algorithm: subclasses are.

    The network gives `logit` and `value [B]`; where its forward takes `mode`, it is asked for what is needed alone.
    """

    config = dict(
        learn_unroll_len=32,  # of a recurrent network: steps of a train sample, a segment of one env column
        action_space=None,  # discrete, multi_discrete or continuous; None: the env's, which it must agree with
        learn=dict(
            epoch_per_collect=1,  # passes over each rollout
            value_weight=0.5,  # weight of the value loss
            entropy_weight=0.01,  # weight of the entropy bonus
            adv_norm=True,  # advantages of a minibatch to mean 0 and deviation 1
            value_norm=False,  # the network learns values divided by the running size (root mean square) of the returns
            grad_clip_norm=0.5,  # largest total gradient norm; None does not clip
        ),
        collect=dict(
            gae_lambda=0.95,  # lambda of the advantages: 0 is one-step, 1 sums all rewards. Schulman 2016
        ),
    )
    config_checks = {
        **ACTOR_CHECKS,
        "learn.epoch_per_collect": at_least(1),
        "collect.gae_lambda": fraction,
    }
    stores = ("rollout",)
    _unit = np.float32(1)  # of the network's values, since it was last trained
    _acted_unit: np.float32 | None = None  # of the values in a block that was begun; None: the present scale
    train_mode = False
    """Off: with dropout on, the probabilities of an update would not be those the actions were drawn with."""

    def default_model(self) -> tuple[str, list[str]]:
        return "vac", ["ding_like.model.template.vac"]

    _kind = property(action_kind)

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._optimizer = FlatOptimizer(
            self._model.parameters(), learn.optimizer, learn.learning_rate, learn.grad_clip_norm
        )
        self._learn_model = learning_model(self._model)
        self._init_value_norm()

    def _init_collect(self) -> None:
        self._collect_model = sampling_model(self._model, self._kind, self._shapes.get("action_shape", 1))
        self._value_model = model_wrap(self._model, wrapper_name="base")
        self._lambda = float(self._cfg.collect.gae_lambda)
        self._init_value_norm()
        if is_recurrent(self._model):
            self._tell_of_segments()

    def _tell_of_segments(self) -> None:
        """A rollout of the default size, which is meant for steps, is large where segments are counted."""
        collect, length, size = self._cfg.collect, self._get_sample_len(), int(self._cfg.learn.batch_size)
        n_sample = type(self).default_config().collect.n_sample
        if collect.n_sample == n_sample and collect.get("n_step") is None:
            warn_once(
                f"segments {type(self).__name__}",
                f"policy.collect.n_sample is {n_sample}, its default, which counts segments of policy.learn_unroll_len="
                f"{length} steps where the network is recurrent: a rollout is {n_sample * length} env steps, a "
                f"minibatch of policy.learn.batch_size={size} is {size * length}; set n_sample (or n_step) and "
                "batch_size",
            )

    def _init_value_norm(self) -> None:
        if self._cfg.learn.value_norm and not hasattr(self, "_value_norm"):
            self._value_norm = RunningStatistics((1,))

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "deterministic_sample")

    def _get_time_major(self) -> bool:
        return is_recurrent(self._model)

    def _get_sample_len(self) -> int:
        return int(self._cfg.learn_unroll_len) if is_recurrent(self._model) else 1

    def _get_updates(self) -> int:
        return int(self._cfg.learn.epoch_per_collect)

    def _get_setting_collect(self, envstep: int) -> dict[str, Any]:
        self._acted_unit = self._unit  # a block is begun
        return super()._get_setting_collect(envstep)

    def _train(self, data: Any) -> dict[str, Any]:
        self._unit = self._value_scale()  # what the targets of this rollout were divided by
        return super()._train(data)

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        setting["mode"] = "compute_actor_critic"
        output = self._act("collect", self._collect_model, obs, data_id, setting)
        check_value(output, output["action"].shape[:1], self._model)
        return output

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        return self._act("eval", self._eval_model, obs, data_id, {"mode": "compute_actor"})

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        step = stored_step(obs, model_output, timestep)
        return {**step, "value": model_output["value"], "done": timestep.done}

    def _get_train_sample(self, data: Block) -> Any:
        """The fields of `_train_fields`; of a recurrent network in segments `[N, U]` with their first state."""
        items = self._train_fields(data)
        if not is_recurrent(self._model):
            return items
        fields = {name: items[name] for name in dict.keys(items)}
        state, done = data["prev_state"], np.asarray(data["done"])
        return cut_segments(fields, state, done, self._get_sample_len(), done.shape[1])

    def _train_fields(self, data: Block) -> Block:
        """The rows `[T, B]` with `adv` and `return_` (advantage + value); values in the network's units.

        Schulman 2016, eq. 16; a truncated episode bootstraps from its final observation, a terminated one does not.
        """
        stored, scale = data["value"], self._value_scale()
        acted, self._acted_unit = self._acted_unit, None
        value = np.asarray(stored) * (scale if acted is None else acted)  # [T, B]
        if acted not in (None, scale):  # the block was begun before the network was trained in its present unit
            stored = value / scale
        discount, cut = make_masks(data, self._gamma)  # [T, B]
        next_value = self._next_value(data, value, discount, scale)  # [T, B]
        adv = gae_advantage(data["reward"], discount, cut, value, next_value, self._lambda, mask=data.get("mask"))
        target = adv + value
        if hasattr(self, "_value_norm"):
            real = target if "mask" not in data else target[data["mask"] > 0]
            self._value_norm.update(real.reshape(-1, 1))
        scale = self._value_scale()
        fields = {name: data[name] for name in ("obs", "action", "logit", "mask") if name in data}
        fields |= {"adv": adv, "return_": target / scale, "value": stored}
        return Block(fields, data.starts)

    def _value_scale(self) -> np.float32:
        """What the network's values are multiplied by: 1, or the root mean square of the returns so far."""
        if not hasattr(self, "_value_norm") or not float(self._value_norm.count):
            return np.float32(1)
        return np.float32(max(float(self._value_norm.var + self._value_norm.mean**2) ** 0.5, 1e-4))

    def _next_value(self, data: Block, value: np.ndarray, discount: np.ndarray, scale: np.float32) -> np.ndarray:
        """Values of the next observations `[T, B]`: the next row's, but where an episode was truncated."""
        link = data.link
        if link is None:  # the policy stored observations of its own making
            obs = data["next_obs"]
            flat = self._values(tree_map(lambda a: a.reshape(-1, *a.shape[2:]), obs))
            return flat.reshape(value.shape) * scale
        last = tree_index(link.rows, len(value))
        open_ends = np.flatnonzero(discount.reshape(-1)[link.ends] > 0)  # truncated, not terminated
        if len(open_ends):
            last = tree_cat([last, tree_index(link.finals, open_ends)])
        if is_recurrent(self._model):
            at = (len(value) - 1) * link.columns + np.arange(link.columns)
            at = np.concatenate([at, link.ends[open_ends]]) if len(open_ends) else at
            ahead = values_ahead(self._value_model, data, at, last) * scale  # [B + K]
        else:
            ahead = self._values(last) * scale  # [B + K]
        out = np.empty_like(value)
        out[:-1] = value[1:]
        out[-1] = ahead[: link.columns]
        if len(open_ends):
            out.reshape(-1)[link.ends[open_ends]] = ahead[link.columns :]
        return out

    def _values(self, obs: Any) -> np.ndarray:
        """The network's values `[N]` of observations `[N, ...]`."""
        return np.asarray(self._acting.call(self._value_model, obs, {"mode": "compute_critic"})["value"])

    def _evaluated(self, data: ArrayDict, model: Any = None) -> tuple[Any, ArrayDict]:
        """The output for a minibatch of the network (or of a `model` like it), and the minibatch, both `[N]`; segments
        `[U, N]` become their steps.
        """
        model = self._learn_model if model is None else model
        if is_recurrent(self._model):
            return unroll(model, data)
        return model.forward(data["obs"], mode="compute_actor_critic"), data

    def _advantage(self, data: ArrayDict) -> torch.Tensor:
        """Advantages of a minibatch `[N]`, normalised where the config says so (one alone stays as it is)."""
        adv = data["adv"]
        if not self._cfg.learn.adv_norm or len(adv) < 2:
            return adv
        std, mean = torch.std_mean(adv)
        return (adv - mean) / (std + 1e-8)

    def _optimise_losses(
        self,
        data: ArrayDict,
        output: Any,
        distribution: Any,
        policy_loss: torch.Tensor,
        value_clip: float | None = None,
    ) -> dict[str, Any]:
        """One step on the policy loss `[N]`, the value loss and the entropy bonus. Returns what to log."""
        weight = data.get("weight")
        actor_loss = masked_mean(policy_loss, weight=weight)
        error = value_loss(output["value"], data["return_"], data["value"], value_clip)
        critic_loss = masked_mean(error, weight=weight)
        entropy = masked_mean(distribution.entropy(), weight=weight)
        return learn_losses(self, actor_loss, critic_loss, entropy)

    def _state_dict_learn(self) -> dict[str, Any]:
        return self._with_value_norm(super()._state_dict_learn())

    def _load_state_dict_learn(self, state: dict[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        self._load_value_norm(state)

    def _state_dict_collect(self) -> dict[str, Any]:
        return self._with_value_norm(super()._state_dict_collect())

    def _load_state_dict_collect(self, state: dict[str, Any]) -> None:
        super()._load_state_dict_collect(state)
        self._load_value_norm(state)

    def _with_value_norm(self, state: dict[str, Any]) -> dict[str, Any]:
        if hasattr(self, "_value_norm"):
            state["value_norm"] = {k: v.clone() for k, v in self._value_norm.state_dict().items()}
        return state

    def _load_value_norm(self, state: dict[str, Any]) -> None:
        mine, saved = hasattr(self, "_value_norm"), "value_norm" in state
        if mine != saved:
            raise ValueError(
                f"it was written with learn.value_norm={saved} and this config has {mine}, so its values are in "
                f"another unit: set policy.learn.value_norm={saved}"
            )
        if mine:
            self._value_norm.load_state_dict(state["value_norm"])
            self._unit, self._acted_unit = self._value_scale(), None

    def run_state_dict(self) -> dict[str, Any]:
        """See `Policy.run_state_dict`; and the units of values, of the network and of a block that was begun."""
        return {**super().run_state_dict(), "units": (self._unit, self._acted_unit)}

    def load_run_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `run_state_dict`."""
        super().load_run_state_dict(state)
        self._unit, self._acted_unit = state["units"]
