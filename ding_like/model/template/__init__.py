"""Networks by registry name."""

from ding_like.model.template.q_learning import DQN

__all__ = ["DQN"]
