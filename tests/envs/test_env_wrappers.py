import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnvManager, make_env, make_env_fns
from ding_like.envs.env_wrappers import apply_wrappers
from ding_like.utils import ENV_WRAPPER_REGISTRY, UnknownNameError
from tests.envs.toys import AnySpace, Count, CountDict


class Frames(Count):
    """Image t holds the number t in every pixel."""

    def __init__(self, shape=(2, 3), n=9):
        super().__init__(n)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def _see(self):
        return np.full(self.observation_space.shape, self.t, np.uint8)


def wrap(env, *entries, role="collect"):
    return apply_wrappers(env, entries, role)


def test_frame_stack_is_filled_at_reset_and_then_shifts():
    env = wrap(Frames(), dict(type="frame_stack", n=3))
    obs = [env.reset()[0], *(env.step(0)[0] for _ in range(4)), env.reset()[0]]
    assert [o[:, 0, 0].tolist() for o in obs] == [
        [0] * 3,
        [0, 0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [0] * 3,
    ]
    assert all(env.observation_space.contains(o) and o.dtype == np.uint8 and o.shape == (3, 2, 3) for o in obs)


def test_frame_stack_of_vectors_and_of_channels_first_images():
    assert wrap(Count(), "frame_stack").observation_space.shape == (4, 1)
    env = wrap(Frames((2, 3, 4)), "channels_first", dict(type="frame_stack", n=2))
    assert env.observation_space.shape == (8, 2, 3)
    env.reset()
    assert env.step(0)[0][:, 0, 0].tolist() == [0] * 4 + [1] * 4


def test_stacks_kept_by_a_caller_do_not_change():
    m = BaseEnvManager(make_env_fns({"wrappers": ["frame_stack"]}, 1, env_setting=Frames))
    m.launch(0)
    kept = [m.step(np.zeros(1, int)).obs for _ in range(3)]
    assert [k[0, :, 0, 0].tolist() for k in kept] == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]


def test_channels_first_moves_the_last_axis():
    env = AnySpace(spaces.Box(0, 255, (4, 5, 3), np.uint8))
    seen = wrap(env, "channels_first")
    env.observation_space.seed(1)
    image = env.observation_space.sample()
    env.observation_space.seed(1)
    obs, _ = seen.reset()
    assert obs.shape == (3, 4, 5) == seen.observation_space.shape
    assert np.array_equal(obs[2], image[:, :, 2])


@pytest.mark.parametrize("kwargs, keys", [({"keep": ["t"]}, ["t"]), ({"drop": ["t"]}, ["a"]), ({"drop": "t"}, ["a"])])
def test_select_obs_keeps_and_drops_keys(kwargs, keys):
    env = wrap(CountDict(), dict(type="select_obs", **kwargs))
    obs, _ = env.reset()
    assert list(obs) == keys == list(env.observation_space.spaces) and env.observation_space.contains(obs)


def test_select_obs_of_one_key_gives_the_entry_itself():
    env = wrap(CountDict(), dict(type="select_obs", keep="t"))
    assert env.observation_space == spaces.Discrete(1000) and env.reset()[0] == 0


@pytest.mark.parametrize("kwargs", [{"keep": [2, 0]}, {"drop": [1]}])
def test_select_obs_keeps_and_drops_positions_of_a_vector(kwargs):
    space = spaces.Box(np.float32([0, 10, 20]), np.float32([1, 11, 21]))
    env = wrap(AnySpace(space), dict(type="select_obs", **kwargs))
    at = [2, 0] if "keep" in kwargs else [0, 2]
    obs, _ = env.reset()
    assert env.observation_space == spaces.Box(space.low[at], space.high[at])
    assert env.observation_space.contains(obs) and obs.shape == (2,)


def test_select_obs_wants_a_dict_or_a_vector():
    with pytest.raises(ValueError, match="wanted a Dict or a Box of one axis"):
        wrap(AnySpace(spaces.Box(0, 255, (3, 3), np.uint8)), "select_obs")


def test_text_entry_can_be_dropped():
    space = spaces.Dict({"image": spaces.Box(0, 255, (3, 3), np.uint8), "mission": spaces.Text(5)})
    cfg = {"wrappers": [dict(type="select_obs", drop=["mission"])]}
    m = BaseEnvManager(make_env_fns(cfg, 2, env_setting=lambda: AnySpace(space)))
    assert list(m.launch(0)) == ["image"]


@pytest.mark.parametrize("kwargs", [{}, {"low": -0.5}, {"high": 1.0}, {"low": -0.5, "high": 0.25}])
@pytest.mark.parametrize("reward", [-3.0, 0.0, 0.125, 7.0])
def test_reward_clip(kwargs, reward):
    env = wrap(Count(reward=reward), dict(type="reward_clip", **kwargs))
    env.reset()
    low, high = kwargs.get("low", -np.inf), kwargs.get("high", np.inf)
    assert env.step(0)[1] == (np.clip(reward, low, high) if kwargs else np.sign(reward))


def test_reward_scale():
    env = wrap(Count(reward=3.0), dict(type="reward_scale", scale=0.5))
    env.reset()
    assert env.step(0)[1] == 1.5


@pytest.mark.parametrize("wrappers", [["reward_clip", dict(type="reward_scale", scale=0.5)], ["TimeLimit0"]])
def test_raw_return_is_taken_beneath_the_first_wrapper_that_changes_the_reward(wrappers):
    class TimeLimit0(gymnasium.RewardWrapper):
        def reward(self, reward):
            return 0.5

    wrappers = [TimeLimit0 if w == "TimeLimit0" else w for w in wrappers]
    fns = make_env_fns({"wrappers": wrappers}, 1, env_setting=lambda: Count(3, reward=4.0))
    m = BaseEnvManager(fns)
    m.launch(0)
    for _ in range(6):
        m.step(np.zeros(1, int))
    assert [(e["return_"], e["return_raw"], e["length"]) for e in m.take_finished()] == [(1.5, 12.0, 3)] * 2


def test_explicit_statistics_stay_where_they_are_put():
    env = wrap(Count(2, reward=4.0), "episode_statistics", "frame_stack", "reward_clip")
    env.reset()
    env.step(0)
    assert env.step(0)[4]["episode"] == {"r": 8.0, "l": 2}
    above = wrap(Count(2, reward=4.0), "reward_clip", "episode_statistics")
    above.reset()
    above.step(0)
    assert above.step(0)[4]["episode"]["r"] == 2.0


def test_time_limit_truncates_and_leaves_a_true_end_terminated():
    env = wrap(Count(9), dict(type="time_limit", max_episode_steps=2))
    env.reset()
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    env = wrap(Count(2), dict(type="time_limit", max_episode_steps=2))
    env.reset()
    env.step(0)
    assert env.step(0)[2] is True


def test_train_only_wrappers_are_left_out_of_evaluation():
    entry = dict(type="reward_scale", scale=0.5, train_only=True)
    for role, reward in (("collect", 0.5), ("eval", 1.0)):
        env = wrap(Count(), entry, role=role)
        env.reset()
        assert env.step(0)[1] == reward
    assert entry == dict(type="reward_scale", scale=0.5, train_only=True)


def test_wrappers_of_the_user_and_of_gymnasium():
    @ENV_WRAPPER_REGISTRY.register("toy_double")
    class Double(gymnasium.RewardWrapper):
        def __init__(self, env, by=2):
            super().__init__(env)
            self.by = by

        def reward(self, reward):
            return self.by * reward

    try:
        env = wrap(Count(), dict(type="toy_double", by=3), "FlattenObservation", lambda env: Double(env))
        env.reset()
        assert env.step(0)[1] == 6
    finally:
        del ENV_WRAPPER_REGISTRY._entries["toy_double"]


@pytest.mark.parametrize(
    "entry, error, message",
    [
        ("frame_stak", UnknownNameError, "Did you mean 'frame_stack'"),
        (dict(n=4), ValueError, "no 'type'"),
        (dict(type="frame_stack", m=4), TypeError, r"'frame_stack' with arguments \{'m': 4\}"),
        (dict(type="frame_stack", n=0), ValueError, "n=0"),
        ("channels_first", ValueError, r"wanted \[H, W, C\]"),
        (dict(type="select_obs", keep=["t"]), ValueError, r"names the position 't'; the observation has \[0"),
        (dict(type="select_obs", drop=[7]), ValueError, "names the position 7"),
        (dict(type="reward_clip", low=2, high=1), ValueError, "low 2 is above high 1"),
    ],
)
def test_wrong_wrapper_entry_is_named(entry, error, message):
    with pytest.raises(error, match=message):
        wrap(Count(), entry)


def test_wrong_key_and_wrong_space_are_named():
    with pytest.raises(ValueError, match="names the key 'tt'"):
        wrap(CountDict(), dict(type="select_obs", drop=["tt"]))
    with pytest.raises(ValueError, match="select_obs"):
        wrap(CountDict(), "frame_stack")


# Atari


class Lives(Count):
    """Two lives of 3 steps; keeps its actions; a time limit may come from outside."""

    def __init__(self, actions=("NOOP", "FIRE", "RIGHT")):
        super().__init__(6)
        self.names, self.log, self.ale = list(actions), [], self
        self.action_space = spaces.Discrete(len(actions))

    def get_action_meanings(self):
        return self.names

    def lives(self):
        return 2 - self.t // 3

    def reset(self, **kwargs):
        self.log.append("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.log.append(action)
        return super().step(action)


@pytest.mark.parametrize("fire, first", [(True, 1), (False, 0)])
def test_episodic_life_ends_with_a_life_but_resets_the_game_only_when_it_is_over(fire, first):
    game = Lives()
    env = wrap(game, dict(type="episodic_life", fire=fire))
    env.reset(seed=0)
    assert [env.step(2)[2] for _ in range(3)] == [False, False, True]
    obs, _ = env.reset()
    assert obs.tolist() == [4.0] and game.log == ["reset", 2, 2, 2, first]
    assert [env.step(2)[2] for _ in range(2)] == [False, True]
    obs, _ = env.reset()
    assert obs.tolist() == [0.0] and game.log[5:] == [2, 2, "reset"]


def test_episodic_life_is_left_out_of_evaluation_and_yields_to_a_seed():
    assert isinstance(wrap(Lives(), "episodic_life", role="eval"), Lives)
    game = Lives()
    env = wrap(game, "episodic_life")
    env.reset(seed=0)
    for _ in range(3):
        env.step(2)
    assert env.reset(seed=1)[0].tolist() == [0.0] and game.log[-1] == "reset"


def test_fire_reset_fires_only_where_the_game_can():
    for names, log in ((("NOOP", "FIRE"), ["reset", 1]), (("NOOP", "UP"), ["reset"])):
        game = Lives(names)
        wrap(game, "fire_reset").reset(seed=0)
        assert game.log == log


class Recorder(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.log = []

    def reset(self, **kwargs):
        self.log.append("reset")
        return self.env.reset(**kwargs)

    def step(self, action):
        self.log.append(int(action))
        return self.env.step(action)


def breakout(**kwargs):
    pytest.importorskip("ale_py")
    cfg = {"type": "ALE/Breakout-v5", "wrappers": [Recorder, dict(type="atari", **kwargs)]}
    env = make_env(cfg)
    inner = env
    while not isinstance(inner, Recorder):
        inner = inner.env
    return env, inner.log


@pytest.mark.system
@pytest.mark.parametrize("fire", [True, False])
def test_atari_fires_after_the_no_ops_of_a_reset(fire):
    """Case B60: the order of actions at the start, and that firing can be turned off."""
    env, log = breakout(fire_reset=fire)
    counts = set()
    for seed in range(4):
        log.clear()
        obs, _ = env.reset(seed=seed)
        noops = log[1:].index(1) if fire else len(log) - 1
        assert log == ["reset"] + [0] * noops + [1] * (4 if fire else 0)
        assert 1 <= noops <= 30 and obs.shape == (84, 84) and obs.dtype == np.uint8
        counts.add(noops)
    assert len(counts) > 1
    log.clear()
    env.step(2)
    assert log == [2] * 4


@pytest.mark.system
def test_atari_score_is_raw_and_whole_games_in_evaluation():
    """Case B60: life-loss and reward-clip wrappers on the training env do not reach the raw score."""
    pytest.importorskip("ale_py")
    wrappers = [dict(type="atari", noop_max=0), "episodic_life", "reward_clip", dict(type="frame_stack", n=4)]
    m = BaseEnvManager(make_env_fns({"type": "ALE/SpaceInvaders-v5", "wrappers": wrappers}, 1, "eval"), role="eval")
    assert m.launch(0).shape == (1, 4, 84, 84) and m.ready_obs.dtype == np.uint8
    rng = np.random.default_rng(0)
    while not m.finished:
        m.step(rng.integers(0, 6, 1))
    (episode,) = m.finished
    assert episode["return_raw"] > episode["return_"] > 0 and episode["info"]["lives"] == 0


def test_the_step_before_is_shown_with_every_observation_the_last_one_included():
    env = wrap(Count(n=2, reward=0.5), "previous_step")
    seen = [env.reset()[0], env.step(1)[0], env.step(0)[0], env.reset()[0]]
    assert [(o["env_obs"].tolist(), int(o["prev_action"]), float(o["prev_reward"])) for o in seen] == [
        ([0], -1, 0),
        ([1], 1, 0.5),
        ([2], 0, 0.5),
        ([0], -1, 0),
    ]
    assert all(env.observation_space.contains(o) for o in seen)


@pytest.mark.parametrize(
    ("action_space", "action", "shown"),
    [
        (spaces.Discrete(3, start=7), 8, 1),
        (spaces.MultiDiscrete([3, 2], start=[1, 0]), np.array([3, 1]), [2, 1]),
        (spaces.MultiBinary(2), np.int8([1, 0]), [1, 0]),
        (spaces.Box(0, 4, (2,), np.float32), np.float32([0, 3]), [-1, 0.5]),
    ],
)
@pytest.mark.parametrize("own", [spaces.Discrete(4, start=-1), spaces.Dict(a=spaces.MultiBinary(3))])
def test_the_step_before_through_a_manager(action_space, action, shown, own):
    m = BaseEnvManager(
        make_env_fns({"wrappers": ["previous_step"]}, 2, env_setting=lambda: AnySpace(own, action_space))
    )
    first = m.launch(0)
    from_zero = action - getattr(action_space, "start", 0)
    ts = m.step(np.stack([from_zero] * 2))
    assert first["prev_action"].shape == ts.obs["prev_action"].shape == (2, *np.shape(shown))
    np.testing.assert_array_equal(ts.obs["prev_action"], [shown] * 2)
    assert ts.obs["prev_reward"].tolist() == [0.5, 0.5] and first["prev_reward"].tolist() == [0, 0]
    assert len(np.asarray(m.ready_obs["prev_reward"])) == 2
    np.testing.assert_array_equal(m._envs[0].unwrapped.actions[0], action)


def test_the_reward_shown_is_the_one_where_the_wrapper_stands():
    for order, shown in ((["previous_step", "reward_clip"], 5), (["reward_clip", "previous_step"], 1)):
        env = wrap(Count(reward=5.0), *order)
        env.reset()
        obs, reward, *_ = env.step(0)
        assert obs["prev_reward"] == shown and reward == 1


def test_one_field_of_the_step_before_is_enough():
    env = wrap(Count(), dict(type="previous_step", fields=["prev_reward"]))
    assert [*env.observation_space] == ["env_obs", "prev_reward"] == [*env.reset()[0]]


def test_all_18_actions_reach_a_game_that_lacks_some_as_no_ops():
    game = Lives(("NOOP", "RIGHT", "UPLEFT"))
    env = wrap(game, "full_actions")
    assert env.action_space == spaces.Discrete(18)
    env.reset(seed=0)
    for action in range(18):
        env.step(action)
    assert game.log == ["reset", *(1 if action == 3 else 2 if action == 7 else 0 for action in range(18))]
