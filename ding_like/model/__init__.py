"""Networks and the wrappers around them."""

from ding_like.model.normalizer import NormalizedModel
from ding_like.model.wrapper.model_wrappers import ModelWrapper, model_wrap, register_wrapper
from ding_like.utils.lazy import lazy_names

__all__ = ["DQN", "DRQN", "QAC", "VAC", "ModelWrapper", "NormalizedModel", "model_wrap", "register_wrapper"]
__getattr__ = lazy_names(
    __name__,
    {
        "DQN": "ding_like.model.template.q_learning",
        "DRQN": "ding_like.model.template.drqn",
        "QAC": "ding_like.model.template.qac",
        "VAC": "ding_like.model.template.vac",
    },
)
