"""Recurrent replay distributed DQN."""

from __future__ import annotations

from ding_like.policy.dqn import DQNPolicy
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("r2d2")
class R2D2Policy(DQNPolicy):
    """Deep Q-learning of a recurrent network on prioritised windows. Kapturowski 2019.

    All it does DQN does with any recurrent network; the numbers are the paper's, or DI-engine's.
    """

    config = dict(
        priority=True,  # prioritised replay: windows by 0.9 max + 0.1 mean of |td| over their steps
        discount_factor=0.997,  # gamma
        nstep=5,  # rewards summed before the bootstrap
        burnin_step=20,  # steps in front of those that train, to bring the state up to date
        learn_unroll_len=80,  # steps of a train sample after those; the last nstep do not train
        learn=dict(
            value_rescale=True,  # values are learned through h(x), which makes large ones smaller
            learning_rate=1e-4,  # step size
            target_theta=0.001,  # soft target update p <- (1 - theta) p + theta q at every step; None copies
        ),
        collect=dict(
            n_sample=32,  # windows of one collect
        ),
        other=dict(
            eps=dict(
                end=0.05,  # epsilon in the end
            ),
        ),
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "drqn", ["ding_like.model.template.q_learning"]
