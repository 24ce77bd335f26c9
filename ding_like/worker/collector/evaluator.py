"""The evaluator: whole episodes with the deterministic policy, on envs and seeds of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import tree_index, tree_paths
from ding_like.utils.log import get_logger

ENDLESS = 10_000  # steps of one episode after which an evaluation says that it waits


def of_tasks(result: dict[str, Any]) -> dict[str, float]:
    """What an evaluation's result says of single tasks."""
    return {key: value for key, value in result.items() if "/" in key}


class Evaluator:
    """Runs a fixed number of episodes, the same ones at every evaluation.

    How many episodes each env column runs is fixed before the start, so short episodes are not over-represented; every
    episode has a seed of its own.

    Args:
        cfg: the `policy.eval.evaluator` section.
        env_manager: a manager with `auto_reset=False` and `seed_every_episode=True`.
        policy: an `eval_mode`.
        seed: seed of the episodes.
        tasks: of the env columns, where there are several: `names`, column b runs number `b % len(names)`;
            `references` and `score(returns)`, where a score stands in the place of the mean return.
    """

    config: dict = dict(
        eval_freq=1000,  # gradient steps between evaluations
        where="here",  # here: training stops for evaluations; process: another process makes them meanwhile
        timeout=None,  # seconds of one evaluation after which that process counts as dead; None waits for ever
        n_episode=None,  # episodes of one evaluation, of each task; None takes env.n_evaluator_episode
        stop_value=None,  # training stops when the mean return reaches it; None takes env.stop_value
    )

    def __init__(self, cfg: Any, env_manager: Any, policy: Any, seed: int = 0, tasks: Any = None) -> None:
        self._env = env_manager
        self._policy = policy
        self._seed = seed
        self._tasks = tasks
        self._names: tuple[str, ...] = () if tasks is None else tasks.names
        self.n_episode = int(cfg.n_episode)
        self.stop_value = None if cfg.stop_value is None else float(cfg.stop_value)
        self.eval_freq = int(cfg.eval_freq)
        if self.n_episode < 1 or self.eval_freq < 1:
            raise ValueError(
                f"n_evaluator_episode is {self.n_episode}, eval_freq is {self.eval_freq}; wanted at least 1 of each"
            )

    def evaluate(self) -> dict[str, Any]:
        """Run the episodes. Returns `eval_value` (mean return through the eval wrappers), `eval_value_raw` (before any
        reward wrapper), `eval_value_std`, `eval_length`, `n_episode` and the list `returns`; with tasks also the means
        of each, `eval_value/<task>` and `eval_value_raw/<task>`, and `eval_value` is their score if one is asked for.

        Raises FloatingPointError naming column and step of an observation or reward that is not finite.
        """
        env, columns = self._env, self._env.env_num
        tasks = max(1, len(self._names))
        each = columns // tasks  # columns of a task
        quota = self.n_episode // each + (np.arange(columns) // tasks < self.n_episode % each)
        active = np.flatnonzero(quota)
        steps = np.zeros(columns, np.int64)  # of the running episodes
        env.launch(self._seed)
        self._policy.reset(None)
        done: list[dict] = []
        told = ENDLESS
        while len(active):
            everyone = len(active) == columns
            obs = env.ready_obs if everyone else tree_index(env.ready_obs, active)
            _check_finite("obs", obs, active, steps)
            output = self._policy.forward(obs, data_id=active)
            timestep = env.step(output["action"], None if everyone else active)
            steps[active] += 1
            if steps[active[0]] >= told:
                told *= 2
                self._warn_of_endless(active, steps)
            _check_finite("reward", timestep.reward, active, steps)
            if timestep.done.any():
                ended = active[timestep.done]
                steps[ended] = 0
                done += env.take_finished()
                quota[ended] -= 1
                again = ended[quota[ended] > 0]
                if len(again):
                    env.reset(again)
                    self._policy.reset(again)
                active = active[~np.isin(active, ended) | (quota[active] > 0)]
        returns = [episode["return_"] for episode in done]
        return {
            "eval_value": float(np.mean(returns)),
            "eval_value_raw": float(np.mean([episode["return_raw"] for episode in done])),
            "eval_value_std": float(np.std(returns)),
            "eval_length": float(np.mean([episode["length"] for episode in done])),
            "n_episode": len(done),
            "returns": returns,
            **self._of_tasks(done),
        }

    def _of_tasks(self, done: list[dict]) -> dict[str, float]:
        """The mean returns of each task, and their score."""
        means: dict[str, float] = {}
        for key, field in (("eval_value", "return_"), ("eval_value_raw", "return_raw")):
            for i, name in enumerate(self._names):
                own = [episode[field] for episode in done if episode["column"] % len(self._names) == i]
                means[f"{key}/{name}"] = float(np.mean(own))
        if self._tasks is not None and self._tasks.references:
            means["eval_value"] = self._tasks.score([means[f"eval_value_raw/{name}"] for name in self._names])
        return means

    def _warn_of_endless(self, active: np.ndarray, steps: np.ndarray) -> None:
        """Nothing else would tell of an env that does not end: evaluation waits for whole episodes."""
        get_logger().warning(
            f"evaluation: env column {active[0]} has played {steps[active[0]]:,} steps without an end; evaluation "
            "waits for whole episodes, so give an env without end of its own a limit: env.max_episode_steps"
        )

    def state_dict(self) -> dict:
        """Its envs, which may keep something from one evaluation to the next (statistics in a wrapper)."""
        return self._env.state_dict() if hasattr(self._env, "state_dict") else {}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`; envs without a snapshot start anew, as every evaluation does."""
        if state:
            self._env.load_state_dict(state)

    def reached(self, value: float) -> bool:
        """Whether a mean return is at the stop value."""
        return self.stop_value is not None and value >= self.stop_value


def _check_finite(name: str, tree: Any, columns: np.ndarray, steps: np.ndarray) -> None:
    """Raises FloatingPointError where `tree [b]`, seen by `columns` after so many `steps`, holds NaN or infinity."""
    leaves = (("", tree),) if type(tree) is np.ndarray else tree_paths(tree)
    for path, leaf in leaves:
        if leaf.dtype.kind == "f" and np.count_nonzero(finite := np.isfinite(leaf)) != leaf.size:
            b = columns[np.argwhere(~finite)[0][0]]
            field = f"{name}.{path}" if path else name
            raise FloatingPointError(
                f"{field} of evaluation env column {b} is not finite at step {steps[b]} of its episode: NaN or "
                "infinity; check the env"
            )
