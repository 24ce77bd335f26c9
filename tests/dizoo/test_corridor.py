"""The recall corridor: when the cue comes, what pays, and that its seed decides."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ding_like.envs import make_env
from dizoo_configs.memory.corridor.envs.corridor_env import Corridor


def play(env, decide, seed=None):
    """Observations, rewards and the cue of an episode in which `decide(cue)` answers and 0 is done before."""
    obs, _ = env.reset(seed=seed)
    seen, rewards, done = [obs], [], False
    while not done:
        cue = next((int(o[2:].argmax()) for o in seen if o[2:].any()), None)
        obs, reward, done, truncated, _ = env.step(decide(cue) if obs[1] else 0)
        assert not truncated
        seen.append(obs)
        rewards.append(reward)
    return np.array(seen), rewards, cue


@pytest.mark.parametrize("delay", [0, 3])
def test_an_episode_is_a_lead_in_a_cue_a_delay_and_a_question(delay):
    env = Corridor(cues=3, min_lead_in=2, max_lead_in=5, delay=delay)
    lead_ins = set()
    for seed in range(40):
        seen, rewards, cue = play(env, lambda cue: cue, seed)
        at = int(seen[:, 2:].any(1).argmax())
        lead_ins.add(at)
        wanted = np.zeros((at + delay + 3, 5))
        wanted[:, 0] = 1
        wanted[at] = np.eye(5)[2 + cue]
        wanted[at + delay + 1] = np.eye(5)[1]
        np.testing.assert_array_equal(seen, wanted)  # the last one is after the end
        assert rewards == [0.0] * (at + delay + 1) + [1.0]
    assert lead_ins == {2, 3, 4, 5}


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_a_wrong_answer_gets_the_wrong_reward(wrong):
    _, rewards, _ = play(Corridor(cues=4, wrong_reward=wrong), lambda cue: (cue + 1) % 4, seed=0)
    assert rewards[-1] == wrong and not any(rewards[:-1])


def test_every_cue_is_as_likely_and_one_answer_is_right_by_chance():
    env = Corridor(cues=4, max_lead_in=0, delay=0)
    env.reset(seed=0)
    results = [play(env, lambda cue: 2) for _ in range(400)]
    counts = np.bincount([cue for _, _, cue in results], minlength=4)
    assert counts.min() > 70  # 100 each: 3.5 standard deviations
    assert sum(sum(rewards) for _, rewards, _ in results) == counts[2]


def test_the_seed_decides_the_episodes():
    def runs(seed):
        env = Corridor()
        env.reset(seed=seed)
        return [play(env, lambda cue: cue)[0].tolist() for _ in range(5)]

    assert runs(3) == runs(3) != runs(4)


def test_it_is_made_from_a_config_and_passes_gymnasiums_check():
    module = "dizoo_configs.memory.corridor.envs.corridor_env"
    env = make_env(dict(type="corridor", import_names=[module], env_kwargs=dict(cues=3, delay=1)))
    assert isinstance(env.unwrapped, Corridor) and env.action_space == gymnasium.spaces.Discrete(3)
    check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    "kwargs", [dict(cues=1), dict(min_lead_in=-1), dict(min_lead_in=9, max_lead_in=8), dict(delay=-1)]
)
def test_odd_lengths_are_named(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))}={next(iter(kwargs.values()))}"):
        Corridor(**kwargs)
