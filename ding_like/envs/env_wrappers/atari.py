"""Atari preprocessing (Mnih et al. 2015), over `gymnasium.wrappers.AtariPreprocessing`."""

from __future__ import annotations

from typing import Any

import gymnasium

from ding_like.utils import ENV_WRAPPER_REGISTRY

NOOP, FIRE = 0, 1
DIRECTIONS = ("UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT")
ACTIONS = ("NOOP", "FIRE", *DIRECTIONS, *(f"{direction}FIRE" for direction in DIRECTIONS))  # in ALE's order


def _can_fire(env: gymnasium.Env) -> bool:
    meanings: list[str] = getattr(env.unwrapped, "get_action_meanings", list)()
    return len(meanings) > FIRE and meanings[FIRE] == "FIRE"


@ENV_WRAPPER_REGISTRY.register("full_actions")
class FullActions(gymnasium.ActionWrapper):
    """All 18 actions in every game; those that the game itself lacks are no-ops, as in ALE.

    Skiing has 9 with `full_action_space=True`, all other games of the 57 have 18. Goes innermost.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        own: list[str] = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        self._own = [own.index(action) if action in own else NOOP for action in ACTIONS]
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))

    def action(self, action: Any) -> int:
        return self._own[action]


@ENV_WRAPPER_REGISTRY.register("fire_reset")
class FireReset(gymnasium.Wrapper):
    """Press FIRE once after each reset, in games that have it as action 1."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._fires = _can_fire(env)

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        obs, info = self.env.reset(**kwargs)
        if self._fires:
            obs, _, terminated, truncated, info = self.env.step(FIRE)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


@ENV_WRAPPER_REGISTRY.register("episodic_life")
class EpisodicLife(gymnasium.Wrapper):
    """A lost life ends the episode for the learner; the game itself is reset only when it is over. Training
    only.

    The next life begins with FIRE where `fire` is set and the game has it, else with a no-op.
    """

    train_only = True

    def __init__(self, env: gymnasium.Env, fire: bool = True) -> None:
        super().__init__(env)
        self._first = FIRE if fire and _can_fire(env) else NOOP
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if not self._over and seed is None:
            obs, _, terminated, truncated, info = self.env.step(self._first)
            if not (terminated or truncated):
                self._lives = self._count()
                return obs, info
        obs, info = self.env.reset(seed=seed, options=options)
        self._over, self._lives = False, self._count()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._over = terminated or truncated
        lives = self._count()
        terminated = terminated or 0 < lives < self._lives
        self._lives = lives
        return obs, reward, terminated, truncated, info

    def _count(self) -> int:
        return self.env.unwrapped.ale.lives()  # type: ignore[attr-defined]


@ENV_WRAPPER_REGISTRY.register("atari")
def atari_preprocessing(
    env: gymnasium.Env,
    noop_max: int = 30,
    frame_skip: int = 4,
    screen_size: int = 84,
    grayscale: bool = True,
    fire_reset: bool = True,
) -> gymnasium.Env:
    """Up to `noop_max` no-ops on reset, then FIRE; each action repeated, the maximum of its last two frames,
    84x84 grey.

    The env beneath must not skip frames: `frameskip=1`, set by `make_env` for `ALE/` ids.
    """
    env = gymnasium.wrappers.AtariPreprocessing(
        env, noop_max=noop_max, frame_skip=frame_skip, screen_size=screen_size, grayscale_obs=grayscale
    )
    return FireReset(env) if fire_reset else env
