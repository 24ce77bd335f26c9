"""The maths of reinforcement learning: pure functions of arrays."""

from ding_like.utils.lazy import lazy_names

_HOMES = {
    "get_epsilon_greedy_fn": "ding_like.rl_utils.exploration",
    "get_nstep_return_data": "ding_like.rl_utils.adder",
    "get_train_sample": "ding_like.rl_utils.adder",
    "q_1step_td_data": "ding_like.rl_utils.td",
    "q_1step_td_error": "ding_like.rl_utils.td",
    "q_nstep_td_data": "ding_like.rl_utils.td",
    "q_nstep_td_error": "ding_like.rl_utils.td",
    "value_inv_transform": "ding_like.rl_utils.value_rescale",
    "value_transform": "ding_like.rl_utils.value_rescale",
}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
