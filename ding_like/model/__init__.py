"""Networks and the wrappers around them."""

from ding_like.model.normalizer import NormalizedModel
from ding_like.model.wrapper.model_wrappers import ModelWrapper, model_wrap, register_wrapper

__all__ = ["ModelWrapper", "NormalizedModel", "model_wrap", "register_wrapper"]
