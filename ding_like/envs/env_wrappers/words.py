"""Texts of an observation as word numbers."""

from __future__ import annotations

import re
import zlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.spaces import Words
from ding_like.utils import ENV_WRAPPER_REGISTRY, suggest


@ENV_WRAPPER_REGISTRY.register("words")
class WordNumbers(gymnasium.ObservationWrapper):
    """One text of a Dict observation, `obs['mission']` say, as int64 `[length]`: a number a word, then zeros.

    A word's number is a hash of it in lower case, so it is the same in every env, process and run, and none is missing:
    the space of BabyAI's missions does not tell their words. Two words may share a number: of the 53 of MiniGrid's and
    BabyAI's missions none do where `vocab` is 1000. Punctuation is left out.

    Args:
        key: of the text.
        vocab: numbers there are, 0 included.
        length: words that a text may have.

    Raises ValueError in `reset` or `step` for a text of more words.
    """

    def __init__(self, env: gymnasium.Env, key: str = "mission", vocab: int = 1000, length: int = 16) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Dict):
            raise ValueError(f"words got the observation space {space}; wanted a Dict with the text '{key}'")
        if key not in space.spaces:
            known = list(space.spaces)
            raise ValueError(f"words names the key {key!r}; the observation has {known}.{suggest(key, known)}")
        if vocab < 2 or length < 1:
            raise ValueError(f"words has vocab={vocab}, length={length}; wanted at least 2 and 1")
        self._key, self._vocab, self._length = key, vocab, length
        self._text: Any = None  # the last one and its numbers: an episode has one mission
        self._numbers = np.zeros(length, np.int64)
        self.observation_space = spaces.Dict({**space.spaces, key: Words(vocab, length)})

    def observation(self, obs: dict[str, Any]) -> dict[str, Any]:
        if obs[self._key] != self._text:
            self._numbers = self._read(obs[self._key])
            self._text = obs[self._key]
        return {**obs, self._key: self._numbers}

    def _read(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower())
        if len(words) > self._length:
            raise ValueError(
                f"obs['{self._key}'] has {len(words)} words: {text!r}; wanted at most {self._length}: raise `length` "
                "of the wrapper 'words'"
            )
        numbers = np.zeros(self._length, np.int64)
        numbers[: len(words)] = [zlib.crc32(word.encode()) % (self._vocab - 1) + 1 for word in words]
        return numbers
