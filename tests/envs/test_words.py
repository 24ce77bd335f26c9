"""The wrapper 'words'."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnvManager, make_env_fns
from ding_like.envs.env_wrappers import WordNumbers
from ding_like.envs.spaces import Words, obs_spec
from tests.envs.toys import Count


class Says(Count):
    """Says what it is told to: text t at step t."""

    def __init__(self, *texts, key="mission"):
        super().__init__(99)
        self.texts, self.key = texts or ("go to the red ball", "Go to the BALL, red!", ""), key
        self.observation_space = spaces.Dict({"t": self.observation_space, key: spaces.Text(99)})

    def _see(self):
        return {"t": super()._see(), self.key: self.texts[self.t % len(self.texts)]}


def test_words_have_numbers_and_texts_end_in_zeros():
    env = WordNumbers(Says(), length=7)
    first, second, empty = env.reset()[0], env.step(0)[0], env.step(0)[0]
    go, to, the, red, ball = first["mission"][:5]
    assert len({go, to, the, red, ball}) == 5 and min(first["mission"][:5]) > 0
    assert second["mission"].tolist() == [go, to, the, ball, red, 0, 0]
    assert empty["mission"].tolist() == [0] * 7
    assert env.observation_space.contains(first) and first["t"] == [0.0]


def test_kept_observations_do_not_change():
    env = WordNumbers(Says("a", "b"))
    kept = env.reset()[0]["mission"]
    before = kept.copy()
    env.step(0)
    np.testing.assert_array_equal(kept, before)


def test_a_model_is_told_vocabulary_and_length_through_any_manager():
    env = {"wrappers": [dict(type="words", key="say", vocab=9, length=3)]}
    manager = BaseEnvManager(make_env_fns(env, 2, env_setting=lambda: Says("so it is", key="say")))
    manager.launch(0)
    assert obs_spec(manager.observation_space) == {"say": {"@words": [9, 3]}, "t": 1}
    assert manager.ready_obs["say"].shape == (2, 3) and manager.ready_obs["say"].dtype == np.int64
    assert manager.ready_obs["say"].max() < 9


def test_numbers_are_the_same_in_every_process():
    code = (
        "from tests.envs.test_words import Says; from ding_like.envs.env_wrappers import WordNumbers; "
        "print(WordNumbers(Says()).reset()[0]['mission'].tolist())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(WordNumbers(Says()).reset()[0]["mission"].tolist())


def test_no_two_words_of_babyais_missions_share_a_number():
    """The grammar of Chevalier-Boisvert 2019, figure 2, and the words that MiniGrid's own missions add."""
    words = (
        "go to pick up open put next then after you and a the red green blue purple yellow grey ball box key door "
        "in front of behind on your left right "
        "at avoid end fetch find from get goal hallway lava matching must near object opening reach room rooms square "
        "traverse unlock use"
    )
    numbers = WordNumbers(Says(words), length=60).reset()[0]["mission"]
    assert len(set(numbers[numbers > 0])) == len(words.split()) == 53


def test_babyais_missions_are_read():
    pytest.importorskip("minigrid")
    env = WordNumbers(gymnasium.make("BabyAI-GoToLocalS5N2-v0"))
    said = {}
    for seed in range(8):
        text = env.reset(seed=seed)[0]["mission"]
        said[env.unwrapped.mission] = text.tolist()
    assert len({str(numbers) for numbers in said.values()}) == len(said) > 2


@pytest.mark.parametrize(
    "env, kwargs, words",
    [
        (Count(), {}, "words got the observation space Box"),
        (Says(), {"key": "mision"}, "words names the key 'mision'; .* Did you mean 'mission'"),
        (Says(), {"vocab": 1}, "words has vocab=1, length=16; wanted at least 2 and 1"),
        (Says(), {"length": 4}, r"obs\['mission'\] has 5 words: 'go to the red ball'; wanted at most 4: raise"),
    ],
)
def test_what_cannot_be_read_is_named(env, kwargs, words):
    with pytest.raises(ValueError, match=words):
        WordNumbers(env, **kwargs).reset()


def test_a_text_without_the_wrapper_is_refused_with_it():
    with pytest.raises(
        TypeError, match=r"obs.mission is a Text space.*wrappers=\[dict\(type='words', key='mission'\)\]"
    ):
        obs_spec(Says().observation_space)


def test_its_space_is_a_box_of_whole_numbers():
    space = Words(5, 2)
    assert space == spaces.Box(0, 4, (2,), np.int64) and space != Words(6, 2)
