"""A learning-rate schedule as a hook."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ding_like.config.checks import at_least, not_negative, one_of, positive_fraction
from ding_like.config.paths import ConfigError
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker.learner.hooks import LearnerHook, argument, text

# The learning rate at time t >= 0 (the warm-up is over): base, end, decay, factor.
KINDS: dict[str, Callable[[float, float, float, float, float], float]] = {
    "linear": lambda t, base, end, decay, _: end + (base - end) * max(1 - t / decay, 0.0),
    "cosine": lambda t, base, end, decay, _: end + (base - end) * (1 + math.cos(math.pi * min(t / decay, 1.0))) / 2,
    "exp": lambda t, base, end, decay, _: end + (base - end) * math.exp(-t / decay),
    "step": lambda t, base, end, decay, factor: max(base * factor ** (t // decay), end),
}


@HOOK_REGISTRY.register("lr_schedule")
class LRScheduleHook(LearnerHook):
    """Set the learning rate before each gradient step, from the one the optimiser starts with to `end`.

    cosine: Loshchilov 2017, eq. 5, without restarts.

    Args:
        kind: 'linear', 'cosine', 'exp' or 'step'.
        decay: the length of linear and cosine, the time constant of exp, the steps between two drops of step.
        end: the rate in the end; step never falls below it.
        factor: what step multiplies the rate by at each drop.
        warmup: steps in which the rate first rises linearly; the schedule begins after them.
        unit: what decay and warmup count: 'env_step' or 'train_iter' (gradient steps).
        optimizer: the policy's optimiser, as `policy.get_attribute` names it.
    """

    position = "before_iter"

    def __init__(
        self,
        kind: str,
        decay: int,
        end: float = 0.0,
        factor: float = 0.5,
        warmup: int = 0,
        unit: str = "env_step",
        optimizer: str = "optimizer",
    ) -> None:
        hook = "lr_schedule"
        self._rate = KINDS[argument(hook, "kind", kind, one_of(*KINDS))]
        self._decay = float(argument(hook, "decay", decay, at_least(1)))
        self._end = float(argument(hook, "end", end, not_negative))
        self._factor = float(argument(hook, "factor", factor, positive_fraction))
        self._warmup = int(argument(hook, "warmup", warmup, at_least(0)))
        self._unit = argument(hook, "unit", unit, one_of("env_step", "train_iter"))
        self._optimizer: str = argument(hook, "optimizer", optimizer, text)
        self._bases: list[float] | None = None  # the rate each parameter group starts with

    def attach(self, learner: Any) -> None:
        policy = learner.policy
        optimizer = _attribute(policy, self._optimizer)
        if getattr(optimizer, "param_groups", None) is None:
            raise ConfigError(
                f"hook 'lr_schedule': the policy has no optimiser called {self._optimizer!r}; give the name that "
                "policy.get_attribute knows it by, as optimizer='name'"
            )
        others = (hook for hook in learner.hooks if isinstance(hook, LRScheduleHook))
        if any(_attribute(policy, other._optimizer) is optimizer for other in others):
            raise ConfigError(
                f"hook 'lr_schedule' is listed twice for {self._optimizer!r}; each would scale what the other set: "
                "leave one of them out"
            )
        if _attribute(policy, "lr_fn") is not None:
            raise ConfigError(
                "hook 'lr_schedule': policy.learn.lr_schedule.type sets a learning rate too; leave one of them out"
            )

    def __call__(self, learner: Any) -> None:
        groups = learner.policy.get_attribute(self._optimizer).param_groups
        if self._bases is None:
            self._bases = [float(group["lr"]) for group in groups]
        step = learner.envstep if self._unit == "env_step" else learner.train_iter
        for group, base in zip(groups, self._bases, strict=True):
            group["lr"] = self.rate(step, base)

    def rate(self, step: int, base: float) -> float:
        """The learning rate at a step, where the optimiser started with `base`."""
        if step < self._warmup:
            return base * (step + 1) / self._warmup
        return self._rate(step - self._warmup, base, self._end, self._decay, self._factor)

    def state_dict(self) -> dict[str, Any]:
        """The rates it started with; all else follows from the counters."""
        return {"bases": self._bases}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._bases = None if state["bases"] is None else [float(base) for base in state["bases"]]


def _attribute(policy: Any, name: str) -> Any:
    try:
        return policy.get_attribute(name)
    except AttributeError:
        return None
