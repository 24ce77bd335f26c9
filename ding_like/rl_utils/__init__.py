"""The maths of reinforcement learning: pure functions of arrays."""

import sys
from types import ModuleType
from typing import Any

from ding_like.utils.lazy import lazy_names

_NAMES = {
    "a2c": "a2c_data a2c_error a2c_error_continuous a2c_loss",
    "adder": "get_gae get_gae_with_default_last_value get_nstep_return_data get_train_sample make_masks",
    "distribution": "Categorical Gaussian MultiCategorical SquashedGaussian make_distribution mask_logit",
    "distributional": "c51_loss dist_1step_td_data dist_1step_td_error dist_nstep_td_data dist_nstep_td_error "
    "project_distribution",
    "dpg": "critic_loss deterministic_policy_loss smoothed_action v_1step_td_data v_1step_td_error v_nstep_td_data "
    "v_nstep_td_error",
    "exploration": "get_epsilon_greedy_fn",
    "gae": "gae gae_advantage gae_data",
    "imitation": "cloning_loss",
    "policy_gradient": "clipped_surrogate policy_gradient_loss value_loss",
    "ppo": "ppo_data ppo_data_continuous ppo_error ppo_error_continuous ppo_info ppo_loss ppo_policy_data "
    "ppo_policy_data_continuous ppo_policy_error ppo_policy_error_continuous ppo_policy_loss ppo_value_data "
    "ppo_value_error",
    "quantile": "evaluate_quantile_at_action iqn_nstep_td_data iqn_nstep_td_error qrdqn_nstep_td_data "
    "qrdqn_nstep_td_error quantile_huber_loss quantile_td_loss",
    "returns": "lambda_return nstep_return",
    "sac": "default_target_entropy expected_soft_state_value soft_state_value temperature_loss",
    "soft": "soft_entropy soft_q_loss soft_value",
    "td": "q_1step_td_data q_1step_td_error q_nstep_td_data q_nstep_td_error",
    "value_rescale": "value_inv_transform value_transform",
    "vtrace": "CORRECTIONS VtraceReturns corrected_returns epsilon_log_prob retrace vtrace",
    "vtrace_error": "compute_importance_weights vtrace_advantage vtrace_data vtrace_error_continuous_action "
    "vtrace_error_discrete_action vtrace_loss vtrace_nstep_return",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)


class _Package(ModuleType):
    """`gae` and `vtrace` are the functions, also after the import of a module of that name has set the attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        hidden = name in ("gae", "vtrace") and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if hidden else value)


sys.modules[__name__].__class__ = _Package
