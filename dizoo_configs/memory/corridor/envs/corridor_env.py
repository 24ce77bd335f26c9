"""The recall corridor: a cue is shown once, long after the start, and asked for at the end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.utils import ENV_REGISTRY


@ENV_REGISTRY.register("corridor")
class Corridor(gymnasium.Env):
    """Walk a lead-in of random length, see one of `cues` for one step, walk on for `delay` steps, then name the cue.

    The decision ends the episode and is the only reward: 1 for the action that equals the cue, else `wrong_reward`;
    other actions do nothing. With the default of 0 the mean return is the share of right answers, `1 / cues` is chance.

    The observation is one-hot: walking, the question, each cue. Nothing in it tells the length of the lead-in.

    Args:
        cues: number of cues, and of actions.
        min_lead_in, max_lead_in: steps before the cue, drawn uniformly, both included.
        delay: steps between the cue and the question.
        wrong_reward: 0 or -1, say.
    """

    def __init__(
        self,
        cues: int = 2,
        min_lead_in: int = 0,
        max_lead_in: int = 32,
        delay: int = 8,
        wrong_reward: float = 0.0,
    ) -> None:
        if cues < 2 or not 0 <= min_lead_in <= max_lead_in or delay < 0:
            raise ValueError(
                f"corridor has cues={cues}, min_lead_in={min_lead_in}, max_lead_in={max_lead_in}, delay={delay}; "
                "wanted at least 2 cues, 0 <= min_lead_in <= max_lead_in and a delay of at least 0"
            )
        self.cues, self.lead_in, self.delay, self.wrong_reward = cues, (min_lead_in, max_lead_in), delay, wrong_reward
        self.observation_space = spaces.Box(0.0, 1.0, (2 + cues,), np.float32)
        self.action_space = spaces.Discrete(cues)
        self._cue = self._cue_at = self._t = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._t = 0
        self._cue_at = int(self.np_random.integers(self.lead_in[0], self.lead_in[1] + 1))
        self._cue = int(self.np_random.integers(self.cues))
        return self._show(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        decides = self._t == self._cue_at + self.delay + 1
        reward = 0.0
        if decides:
            reward = 1.0 if int(action) == self._cue else float(self.wrong_reward)
        self._t += 1
        return self._show(), reward, decides, False, {}

    def _show(self) -> np.ndarray:
        obs = np.zeros(2 + self.cues, np.float32)
        question = self._cue_at + self.delay + 1
        obs[2 + self._cue if self._t == self._cue_at else 1 if self._t == question else 0] = 1.0
        return obs
