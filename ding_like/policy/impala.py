"""Importance weighted actor-learner architecture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ding_like.config.checks import Check, fraction, number, one_of, optional, positive
from ding_like.data import ArrayDict, tree_map
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
from ding_like.policy.segments import blank, evaluate
from ding_like.rl_utils.adder import make_masks
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.loss import masked_mean
from ding_like.rl_utils.policy_gradient import policy_gradient_loss, value_loss
from ding_like.rl_utils.vtrace import CORRECTIONS, VtraceReturns, corrected_returns, epsilon_log_prob
from ding_like.torch_utils import FlatOptimizer
from ding_like.utils import POLICY_REGISTRY

REWARD_CLIPS = {
    "none": lambda reward: reward,
    "abs_one": lambda reward: reward.clamp(-1, 1),
    "soft_asymmetric": lambda reward: torch.where(reward < 0, 0.3, 5.0) * reward.tanh(),  # Espeholt 2018, figure D.1
}
ratio = Check(lambda value: number.fine(value) and value >= 0, "a number of at least 0 (inf clips nothing)")


@POLICY_REGISTRY.register("impala")
class IMPALAPolicy(Policy):
    """Actors send trajectories, a learner corrects for how far behind their policy is. Espeholt 2018.

    Losses are means over the real steps of a batch, where the paper sums: its RMSProp epsilon of 0.1 (under the root,
    on sums over 32 trajectories of 20 steps) is 5e-4 here, its gradient norm of 40 is 0.0625.
    """

    config = dict(
        learn_unroll_len=20,  # steps of a trajectory
        action_space=None,  # discrete, multi_discrete or continuous; None: the env's, which it must agree with
        learn=dict(
            batch_size=32,  # trajectories of a gradient step
            learning_rate=6e-4,  # step size
            optimizer="rmsprop",  # adam, adamw, rmsprop or sgd
            rmsprop=dict(
                alpha=0.99,  # decay of the mean square of gradients
                eps=5e-4,  # added to its root
                momentum=0.0,  # of the steps
            ),
            grad_clip_norm=0.5,  # largest total gradient norm
            correction="vtrace",  # for the lag of the actors: vtrace, one_step, epsilon or none
            rho_bar=1.0,  # largest probability ratio in the value's target
            c_bar=1.0,  # largest ratio by which later steps count in it
            pg_rho_bar=None,  # largest ratio in the policy gradient; None: rho_bar
            lambda_=1.0,  # of the value's target: 0 is one-step, 1 looks ahead to the end of the trajectory
            reward_clip="none",  # none, abs_one (to [-1, 1]) or soft_asymmetric (to [-0.3, 5], by a tanh)
            value_weight=0.5,  # weight of the value loss
            entropy_weight=0.01,  # weight of the entropy bonus
        ),
        collect=dict(
            n_sample=32,  # trajectories of one collect
        ),
    )
    config_checks = {
        **ACTOR_CHECKS,
        "learn.rmsprop.alpha": fraction,
        "learn.rmsprop.eps": positive,
        "learn.rmsprop.momentum": fraction,
        "learn.correction": one_of(*CORRECTIONS),
        "learn.rho_bar": ratio,
        "learn.c_bar": ratio,
        "learn.pg_rho_bar": optional(ratio),
        "learn.lambda_": fraction,
        "learn.reward_clip": one_of(*REWARD_CLIPS),
    }
    stores = ("queue",)
    _kind = property(action_kind)
    _free_actors = True
    """With `-m async` its actors wait for nobody: how old their parameters are does not matter."""
    train_mode = False
    """Off: with dropout on, the ratio of probabilities would tell of more than the lag."""

    def default_model(self) -> tuple[str, list[str]]:
        return "vac", ["ding_like.model.template.vac"]

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        own = dict(learn.rmsprop) if learn.optimizer == "rmsprop" else {}
        self._optimizer = FlatOptimizer(
            self._model.parameters(), learn.optimizer, learn.learning_rate, learn.grad_clip_norm, **own
        )
        self._learn_model = learning_model(self._model)
        self._clip_reward = REWARD_CLIPS[learn.reward_clip]
        self._bars = {name: learn[name] for name in ("rho_bar", "c_bar", "pg_rho_bar", "lambda_")}

    def _init_collect(self) -> None:
        self._collect_model = sampling_model(self._model, self._kind, self._shapes.get("action_shape", 1))
        # The state of a critic's own memory moves only if it is asked.
        self._acting_mode = "compute_actor_critic" if is_recurrent(self._model) else "compute_actor"

    def _init_eval(self) -> None:
        self._eval_model = acting_model(self._model, "deterministic_sample")

    def _get_segments(self) -> dict[str, Any]:
        return {"unroll_len": int(self._cfg.learn_unroll_len)}

    def _get_time_major(self) -> bool:
        return True

    def _forward_collect(self, obs: Any, data_id: Any = None, **setting: Any) -> ArrayDict:
        return self._act("collect", self._collect_model, obs, data_id, {**setting, "mode": self._acting_mode})

    def _forward_eval(self, obs: Any, data_id: Any = None) -> ArrayDict:
        return self._act("eval", self._eval_model, obs, data_id, {"mode": "compute_actor"})

    def _process_transition(self, obs: Any, model_output: ArrayDict, timestep: Any) -> dict[str, Any]:
        return stored_step(obs, model_output, timestep)

    def _forward_learn(self, data: ArrayDict) -> dict[str, Any]:
        """One gradient step on segments `[U + 1, N]` as `SegmentStream` makes them; `logit` is that of the actor."""
        real = data["mask"] > 0
        output = self._evaluated(data, real)
        real, value = real[:-1], output["value"]
        fields = ("action", "logit", "reward", "terminated", "truncated")
        steps = ArrayDict({name: tree_map(lambda x: x[:-1], data[name]) for name in fields})
        action = blank(steps["action"], real)
        target = make_distribution(tree_map(lambda x: x[:-1], output["logit"]), self._kind)
        log_prob = target.log_prob(action)  # [U, N]
        log_rho = log_prob.detach() - make_distribution(steps["logit"], self._kind).log_prob(action)
        returns = self._returns(steps, log_rho, value.detach(), real)
        if self._cfg.learn.correction == "epsilon":
            log_prob = epsilon_log_prob(log_prob)
        info = learn_losses(
            self,
            masked_mean(policy_gradient_loss(log_prob, returns.pg_advantage), real),
            masked_mean(value_loss(value[:-1], returns.vs), real),
            masked_mean(target.entropy(), real),
        )
        beyond = log_rho.exp() > 1.001 * self._bars["rho_bar"]  # rounding is no lag
        info["rho_clipped"] = masked_mean(beyond.float(), real)
        return info

    def _returns(self, steps: ArrayDict, log_rho: Tensor, value: Tensor, real: Tensor) -> VtraceReturns:
        """Targets and advantages `[U, N]` by the values `[U + 1, N]`."""
        discount, cut = make_masks(steps, self._gamma)
        after = torch.where(discount > 0, value[1:], 0.0)
        block = self._clip_reward(steps["reward"]), discount, cut, value[:-1], after
        return corrected_returns(self._cfg.learn.correction, log_rho, *block, mask=real, **self._bars)

    def _evaluated(self, data: ArrayDict, real: Tensor) -> dict[str, Any]:
        """`logit` and `value` `[U + 1, N, ...]`; slots that no step trains on or bootstraps from are blank."""
        shown, goes_on = real.clone(), real & (data["terminated"] == 0)
        shown[1:] |= goes_on[:-1]
        inputs = ArrayDict(obs=blank(data["obs"], shown))
        if is_recurrent(self._model):
            inputs |= {"prev_state": data["prev_state"], "cut": goes_on.float()}
        output = evaluate(self._learn_model, inputs)
        check_value(output, tuple(real.shape), self._model)
        return output
