"""Implicit quantile networks."""

from __future__ import annotations

from ding_like.config.checks import not_negative, one_of
from ding_like.policy.q_learning import QLearningPolicy
from ding_like.policy.qrdqn import QRDQNPolicy
from ding_like.utils import POLICY_REGISTRY


@POLICY_REGISTRY.register("iqn")
class IQNPolicy(QLearningPolicy):
    """Q-learning of quantiles at probabilities that are drawn for every update. Dabney 2018b."""

    config = dict(
        learn=dict(
            kappa=1.0,  # where the Huber loss of an error turns linear; 0 is plain quantile regression
        ),
        model=dict(
            head_type="implicit",  # a function from probabilities to quantiles, for each action
            num_quantiles=32,  # drawn for each side of an update, and averaged in acting
            quantile_embedding_size=64,  # cosines that describe a probability
        ),
    )
    config_checks = {"model.head_type": one_of("implicit"), "learn.kappa": not_negative}
    outputs = QRDQNPolicy.outputs
    _errors = QRDQNPolicy._errors
