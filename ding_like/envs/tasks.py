"""Several tasks in one run: what `env.tasks` may say, and what their returns are worth together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ding_like.config import CfgDict, ConfigError, merge
from ding_like.config.checks import Check, at_least, mistakes, number, optional
from ding_like.envs.atari_scores import scores_of
from ding_like.envs.make import registered, task_sections

TASK_CONFIG: dict[str, Any] = dict(
    name=None,  # of the task in logs and results; None: its id
    type=None,  # as env.type; this key and the next four: what is left out is that of `env`
    env_id=None,  # as env.env_id
    env_kwargs={},  # joined with env.env_kwargs
    max_episode_steps=None,  # as env.max_episode_steps
    wrappers=[],  # in place of env.wrappers
    reference=None,  # [random, reference] returns for env.score; None: of an Atari game a random player's and a human's
)
_IS_REFERENCE = Check(
    lambda two: isinstance(two, list | tuple) and len(two) == 2 and all(map(number.fine, two)) and two[0] < two[1],
    "[random, reference], two numbers, the second above the first",
)
_IS_NAME = optional(Check(lambda name: isinstance(name, str) and name != "", "a name"))
_CHECKS = {
    "name": _IS_NAME,
    "type": _IS_NAME,
    "env_id": _IS_NAME,
    "max_episode_steps": optional(at_least(1)),
    "reference": optional(_IS_REFERENCE),
}


@dataclass(frozen=True)
class Tasks:
    """The tasks of a run; env column b runs number `b % len(names)`.

    Attributes:
        references: (random, reference) returns of each where `env.score` asks for it.
    """

    names: tuple[str, ...] = ()
    references: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, env_cfg: Mapping[str, Any]) -> Tasks:
        """The tasks of an `env` section; none where it names none."""
        sections = task_sections(env_cfg)
        scored = env_cfg.get("score") is not None
        return cls(tuple(map(_name, sections)), tuple(map(_reference, sections)) if scored else ())  # type: ignore[arg-type]

    def score(self, returns: Sequence[float]) -> float:
        """The mean capped normalised score of the tasks' mean raw returns (Espeholt et al. 2018, section 5.3)."""
        parts = [(r - low) / (high - low) for r, (low, high) in zip(returns, self.references, strict=True)]
        return sum(min(1.0, part) for part in parts) / len(parts)


def each_task(env_cfg: CfgDict, change: Callable[[CfgDict], CfgDict]) -> CfgDict:
    """The `env` section with `change` made to it, or to the section of every task where there are some."""
    sections = task_sections(env_cfg)
    return CfgDict({**env_cfg, "tasks": [change(section) for section in sections]}) if sections else change(env_cfg)


def task_mistakes(env_cfg: Mapping[str, Any]) -> Iterator[str]:
    """A line for everything in `env.tasks` and `env.score` that a run could not do."""
    tasks = env_cfg["tasks"]
    if env_cfg["score"] is not None and not tasks:
        yield f"env.score: got {env_cfg['score']!r}, wanted None without env.tasks, whose scores it is the mean of"
    told = [line for i, task in enumerate(tasks) for line in _mistakes_of(task, f"env.tasks[{i}]")]
    yield from told
    if told or not tasks:
        return
    sections = task_sections(env_cfg)
    twice = [name for name, n in Counter(map(_name, sections)).items() if n > 1]
    if twice:
        yield f"env.tasks: two are called {twice[0]!r}; give each a 'name' of its own"
    for key in ("collector_env_num", "evaluator_env_num"):
        if env_cfg[key] % len(tasks):
            yield (
                f"env.{key}: got {env_cfg[key]}, wanted a multiple of {len(tasks)}, the number of env.tasks: column b "
                f"runs task b % {len(tasks)}"
            )
    if env_cfg["score"] is not None:
        for i, section in enumerate(sections):
            if _reference(section) is None:
                yield (
                    f"env.tasks[{i}].reference: got None, wanted [random, reference] returns of '{_name(section)}' for "
                    f"env.score='{env_cfg['score']}'; only Atari games have theirs here"
                )


def _mistakes_of(task: Any, path: str) -> Iterator[str]:
    if not isinstance(task, Mapping):
        yield f"{path}: got {task!r}, wanted a section, such as dict(type='CartPole-v1')"
        return
    told = list(mistakes(task, TASK_CONFIG, _CHECKS, path))
    own = None if told else registered(task)
    try:
        merge({**getattr(own, "config", {}), **TASK_CONFIG}, task, path=path, strict=own is None)
    except ConfigError as error:
        told.append(str(error))
    yield from told


def _name(section: Mapping[str, Any]) -> str:
    return str(section.get("name") or _id(section))


def _id(section: Mapping[str, Any]) -> str:
    return str(section.get("env_id") or section.get("type"))


def _reference(section: Mapping[str, Any]) -> tuple[float, float] | None:
    given = section.get("reference")
    return scores_of(_id(section)) if given is None else (float(given[0]), float(given[1]))
