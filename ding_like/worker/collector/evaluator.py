"""The evaluator: whole episodes with the deterministic policy, on envs and seeds of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.data import tree_index


class Evaluator:
    """Runs a fixed number of episodes, the same ones at every evaluation.

    How many episodes each env column runs is fixed before the start, so short episodes are not over-represented; every
    episode has a seed of its own.

    Args:
        cfg: the `policy.eval.evaluator` section.
        env_manager: a manager with `auto_reset=False` and `seed_every_episode=True`.
        policy: an `eval_mode`.
        seed: seed of the episodes.
    """

    config: dict = dict(
        eval_freq=1000,  # gradient steps between evaluations
        n_episode=None,  # episodes of one evaluation; None takes env.n_evaluator_episode
        stop_value=None,  # training stops when the mean return reaches it; None takes env.stop_value
    )

    def __init__(self, cfg: Any, env_manager: Any, policy: Any, seed: int = 0) -> None:
        self._env = env_manager
        self._policy = policy
        self._seed = seed
        self.n_episode = int(cfg.n_episode)
        self.stop_value = None if cfg.stop_value is None else float(cfg.stop_value)
        self.eval_freq = int(cfg.eval_freq)
        if self.n_episode < 1 or self.eval_freq < 1:
            raise ValueError(
                f"n_evaluator_episode is {self.n_episode}, eval_freq is {self.eval_freq}; wanted at least 1 of each"
            )

    def evaluate(self) -> dict[str, Any]:
        """Run the episodes. Returns `eval_value` (mean return through the eval wrappers), `eval_value_raw` (before any
        reward wrapper), `eval_value_std`, `eval_length`, `n_episode` and the list `returns`.

        Raises FloatingPointError naming the column whose return is not finite.
        """
        env, columns = self._env, self._env.env_num
        quota = np.full(columns, self.n_episode // columns)
        quota[: self.n_episode % columns] += 1
        active = np.flatnonzero(quota)
        env.launch(self._seed)
        self._policy.reset(None)
        done: list[dict] = []
        while len(active):
            everyone = len(active) == columns
            obs = env.ready_obs if everyone else tree_index(env.ready_obs, active)
            output = self._policy.forward(obs, data_id=active)
            timestep = env.step(output["action"], None if everyone else active)
            if timestep.done.any():
                ended = active[timestep.done]
                done += env.take_finished()
                quota[ended] -= 1
                again = ended[quota[ended] > 0]
                if len(again):
                    env.reset(again)
                    self._policy.reset(again)
                active = active[~np.isin(active, ended) | (quota[active] > 0)]
        returns = [episode["return_"] for episode in done]
        bad = [episode["column"] for episode in done if not np.isfinite(episode["return_"])]
        if bad:
            raise FloatingPointError(
                f"the return of evaluation env column {bad[0]} is not finite: a reward was NaN or infinite; "
                "check the env"
            )
        return {
            "eval_value": float(np.mean(returns)),
            "eval_value_raw": float(np.mean([episode["return_raw"] for episode in done])),
            "eval_value_std": float(np.std(returns)),
            "eval_length": float(np.mean([episode["length"] for episode in done])),
            "n_episode": len(done),
            "returns": returns,
        }

    def reached(self, value: float) -> bool:
        """Whether a mean return is at the stop value."""
        return self.stop_value is not None and value >= self.stop_value
