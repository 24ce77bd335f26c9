"""Model wrappers by name."""

from ding_like.model.wrapper.model_wrappers import ModelWrapper, model_wrap, register_wrapper

__all__ = ["ModelWrapper", "model_wrap", "register_wrapper"]
