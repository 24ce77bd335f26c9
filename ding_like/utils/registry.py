"""Registries: a name in a config becomes a class."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any


class UnknownNameError(KeyError):
    """A name that no registry entry has. The message names the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


def suggest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the nearest of `known`, or an empty string."""
    near = difflib.get_close_matches(str(name), [str(k) for k in known], n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def import_modules(names: Iterable[str]) -> None:
    """Import each dotted module for its registrations. Raises ImportError naming the entry that failed."""
    if isinstance(names, str):
        raise TypeError(f"import_names is the string {names!r}; wanted a list of module names, ['{names}']")
    modules = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in modules):
        raise TypeError(f"import_names: got {names!r}, wanted a list of module names, such as ['my_module']")
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as err:
            if err.name is not None and (name == err.name or name.startswith(err.name + ".")):
                raise ImportError(
                    f"import_names entry '{name}' is not a module: no '{err.name}' on the path. {_import_advice(name)}"
                ) from err
            raise


def _import_advice(name: str) -> str:
    root, _, rest = name.partition(".")
    if root == "dizoo":
        return "It is one of DI-engine's; Gymnasium's envs need no import here, so remove the entry."
    if root == "ding":
        like = f"ding_like.{rest}" if rest else "ding_like"
        return (
            f"It is one of DI-engine's; what is built in needs no import here, so remove the entry, or write '{like}'."
        )
    return "Put its folder beside the config file or install its package."


class Registry:
    """Names of one kind of thing.

    Args:
        kind: what the names stand for ('policy'); used in messages.
        builtin: name -> module of the project's own entries, imported on first use.
    """

    def __init__(self, kind: str, builtin: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._builtin = dict(builtin or {})
        self._entries: dict[str, Any] = {}

    def register(self, name: str | None = None, module: Any = None, force_overwrite: bool = False) -> Any:
        """Decorator (or call) that files a class or function under `name` (its own name by default).

        Raises ValueError when another object has the name already.
        """

        def add(obj: Any) -> Any:
            key = name or obj.__name__
            old = self._entries.get(key)
            same = old is not None and (old.__module__, old.__qualname__) == (obj.__module__, obj.__qualname__)
            if old is not None and not same and not force_overwrite:
                raise ValueError(
                    f"{self.kind} '{key}' is registered already, by {old.__module__}.{old.__qualname__}; choose "
                    "another name or pass force_overwrite=True"
                )
            self._entries[key] = obj
            return obj

        return add if module is None else add(module)

    def get(self, name: str, import_names: Iterable[str] = ()) -> Any:
        """The registered object; `import_names` are imported first. Raises UnknownNameError with suggestions."""
        import_modules(import_names)
        if name not in self._entries and name in self._builtin:
            importlib.import_module(self._builtin[name])
        if name not in self._entries:
            known = ", ".join(self.query()) or "none"
            raise UnknownNameError(
                f"no {self.kind} is called {name!r}.{suggest(name, self.query())} Known: {known}. "
                f"{'An' if self.kind[0] in 'aeiou' else 'A'} {self.kind} of your own needs its module in import_names."
            )
        return self._entries[name]

    def build(self, name: str, /, *args: Any, import_names: Iterable[str] = (), **kwargs: Any) -> Any:
        """`get(name)(*args, **kwargs)`; an error raised by the constructor passes through as it is."""
        make: Callable = self.get(name, import_names)
        return make(*args, **kwargs)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._builtin

    def query(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._entries, *self._builtin})

    def registered(self) -> list[tuple[str, Any]]:
        """(name, object) of what was registered so far."""
        return list(self._entries.items())


POLICIES = (
    *("a2c", "bc", "c51", "dqn"),
    *("iqn", "qrdqn", "rainbow", "sqn"),
    *("impala", "ppg", "ppo", "r2d2"),
    *("ddpg", "sac", "td3"),
)
POLICY_REGISTRY = Registry(
    "policy",
    {
        **{name: f"ding_like.policy.{name}" for name in POLICIES},
        "il": "ding_like.policy.bc",
        **dict.fromkeys(("discrete_sac", "sac_discrete"), "ding_like.policy.sac"),
    },
)
MODEL_REGISTRY = Registry(
    "model",
    {
        "dqn": "ding_like.model.template.q_learning",
        "drqn": "ding_like.model.template.drqn",
        "vac": "ding_like.model.template.vac",
        **dict.fromkeys(("qac", "continuous_qac", "discrete_qac"), "ding_like.model.template.qac"),
    },
)
ENV_REGISTRY = Registry("env")
ENV_MANAGER_REGISTRY = Registry(
    "env_manager",
    {
        "base": "ding_like.envs.env_manager.base_env_manager",
        "base_v2": "ding_like.envs.env_manager.base_env_manager",
        **dict.fromkeys(
            ("subprocess", "async_subprocess", "subprocess_v2", "async_subprocess_v2"),
            "ding_like.envs.env_manager.subprocess_env_manager",
        ),
        **dict.fromkeys(
            ("vector", "gym_vector", "env_pool", "envpool"), "ding_like.envs.env_manager.vector_env_manager"
        ),
    },
)
ENV_WRAPPERS = (
    *("atari", "channels_first", "episode_statistics", "episodic_life", "fire_reset", "frame_stack"),
    *("full_actions", "previous_step", "reward_clip", "reward_scale", "select_obs", "time_limit", "words"),
)
ENV_WRAPPER_REGISTRY = Registry("env_wrapper", dict.fromkeys(ENV_WRAPPERS, "ding_like.envs.env_wrappers"))
BUFFER_REGISTRY = Registry(
    "replay_buffer",
    {
        **dict.fromkeys(("replay", "naive", "deque", "advanced"), "ding_like.worker.replay_buffer.replay"),
        "rollout": "ding_like.worker.replay_buffer.rollout",
        "queue": "ding_like.worker.replay_buffer.queue",
        "dataset": "ding_like.worker.replay_buffer.dataset",
        "phasic": "ding_like.worker.replay_buffer.phasic",
    },
)
SAMPLE_WRAPPERS = (
    *("argmax_sample", "deterministic_sample", "eps_greedy_sample"),
    *("multinomial_sample", "reparam_sample", "action_noise", "critic_memory"),
)
WRAPPER_REGISTRY = Registry(
    "model_wrapper",
    dict.fromkeys(("base", "hidden_state", *SAMPLE_WRAPPERS, "target"), "ding_like.model.wrapper.model_wrappers"),
)
HOOK_REGISTRY = Registry(
    "learner_hook",
    {
        **dict.fromkeys(("checkpoint", "early_stop", "evaluation"), "ding_like.worker.learner.run_hooks"),
        "lr_schedule": "ding_like.worker.learner.lr_hook",
        "wandb": "ding_like.worker.learner.wandb_hook",
    },
)

REGISTRIES = {
    registry.kind: registry
    for registry in (
        POLICY_REGISTRY,
        MODEL_REGISTRY,
        ENV_REGISTRY,
        ENV_MANAGER_REGISTRY,
        ENV_WRAPPER_REGISTRY,
        BUFFER_REGISTRY,
        WRAPPER_REGISTRY,
        HOOK_REGISTRY,
    )
}
