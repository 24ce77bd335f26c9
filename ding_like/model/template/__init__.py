"""Networks by registry name."""

from ding_like.model.template.q_learning import DQN, DRQN
from ding_like.model.template.qac import QAC
from ding_like.model.template.vac import VAC

__all__ = ["DQN", "DRQN", "QAC", "VAC"]
