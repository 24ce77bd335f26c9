"""Rainbow."""

from __future__ import annotations

from functools import cached_property

from ding_like.config.checks import one_of
from ding_like.policy.c51 import C51Policy, support_of
from ding_like.policy.q_learning import QLearningPolicy
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("rainbow")
class RainbowPolicy(QLearningPolicy):
    """C51 with double and dueling Q-learning, n-step returns, prioritised replay and noisy layers. Hessel 2018.

    Each has its switch: `model.noisy=False` is Rainbow without noisy layers, which explores by `other.eps`.
    """

    config = dict(
        priority=True,  # prioritised replay, by KL divergences
        nstep=3,  # rewards summed before the bootstrap
        model=dict(
            head_type="distribution",  # a distribution for each action
            n_atom=51,  # atoms of the distribution
            v_min=-10.0,  # the lowest of them: returns below count as this
            v_max=10.0,  # the highest: returns above count as this
            dueling=True,  # separate value and advantage streams
            noisy=True,  # noisy layers explore, and there is no epsilon
        ),
    )

    config_checks = {"model.head_type": one_of("distribution")}
    outputs = C51Policy.outputs
    _support = cached_property(support_of)
    _errors = C51Policy._errors
