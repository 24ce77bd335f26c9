"""The maths of reinforcement learning: pure functions of arrays."""

import sys
from types import ModuleType
from typing import Any

from ding_like.utils.lazy import lazy_names

_NAMES = {
    "a2c": "a2c_data a2c_error a2c_error_continuous a2c_loss",
    "adder": "get_gae get_gae_with_default_last_value get_nstep_return_data get_train_sample make_masks",
    "distribution": "Categorical Gaussian MultiCategorical make_distribution mask_logit",
    "exploration": "get_epsilon_greedy_fn",
    "gae": "gae gae_advantage gae_data",
    "policy_gradient": "clipped_surrogate policy_gradient_loss value_loss",
    "ppo": "ppo_data ppo_data_continuous ppo_error ppo_error_continuous ppo_info ppo_loss ppo_policy_data "
    "ppo_policy_data_continuous ppo_policy_error ppo_policy_error_continuous ppo_policy_loss ppo_value_data "
    "ppo_value_error",
    "returns": "lambda_return nstep_return",
    "td": "q_1step_td_data q_1step_td_error q_nstep_td_data q_nstep_td_error",
    "value_rescale": "value_inv_transform value_transform",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)


class _Package(ModuleType):
    """`rl_utils.gae` is the function, also after the import of the module of that name has set the attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.gae if name == "gae" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
