"""The modes of a policy: what a learner, a collector and an evaluator may do with it, as bound methods by name."""

from collections import namedtuple

learn_function = namedtuple(
    "learn_function", ["forward", "reset", "get_attribute", "set_attribute", "state_dict", "load_state_dict"]
)
collect_function = namedtuple(
    "collect_function",
    [
        "forward",
        "forward_random",
        "process_transition",
        "get_train_sample",
        "reset",
        "get_setting",
        "observe",
        "get_attribute",
        "set_attribute",
        "state_dict",
        "load_state_dict",
    ],
)
eval_function = namedtuple("eval_function", ["forward", "reset", "get_attribute", "set_attribute"])
