"""Snapshots of envs: what comes back goes on exactly; what would lose its state is refused."""

import gymnasium
import numpy as np
import pytest

from ding_like.envs import BaseEnvManager
from ding_like.envs.adapter import EnvAdapter, wrap_env
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.envs.make import make_env
from ding_like.envs.snapshot import NoSnapshot, restore, snapshot, taken
from tests.envs.toys import Count

IDS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "Blackjack-v1"]


def played(envs, steps, seed=None):
    """Observations, rewards and ends of random play, with resets."""
    told = []
    rng = np.random.default_rng(0)
    for env in envs:
        if seed is not None:
            env.reset(seed=seed)
        for _ in range(steps):
            space = env.action_space
            action = (
                rng.uniform(-1, 1, space.shape) if isinstance(space, gymnasium.spaces.Box) else int(rng.integers(2))
            )
            obs, reward, terminated, truncated, _ = env.step(action)
            told.append((np.asarray(obs).tobytes(), float(reward), terminated, truncated))
            if terminated or truncated:
                told.append(np.asarray(env.reset()[0]).tobytes())
    return told


@pytest.mark.parametrize("env_id", IDS)
def test_restored_envs_go_on_as_the_originals(env_id):
    envs = [make_env({"type": env_id}) for _ in range(2)]
    played(envs, 20, seed=3)
    back = restore([make_env({"type": env_id}) for _ in range(2)], snapshot(envs))
    assert played(envs, 120) == played(back, 120)


@pytest.mark.system  # importing these takes a second
@pytest.mark.parametrize(
    "cfg",
    [
        {"type": "MinAtar/Breakout-v1"},
        {"type": "ALE/Pong-v5", "env_kwargs": {"obs_type": "ram"}},
    ],
    ids=lambda cfg: cfg["type"],
)
def test_grid_and_atari_games_go_on_as_the_originals(cfg):
    envs = [make_env(cfg)]
    played(envs, 30, seed=3)
    back = restore([make_env(cfg)], snapshot(envs))
    assert played(envs, 60) == played(back, 60)


def test_taking_a_snapshot_changes_nothing():
    one, other = make_env({"type": "CartPole-v1"}), make_env({"type": "CartPole-v1"})
    one.reset(seed=1), other.reset(seed=1)
    snapshot([one])
    assert played([one], 100) == played([other], 100)


def test_what_pickling_would_make_anew_is_refused():
    env = make_env({"type": "LunarLander-v3"})
    env.reset(seed=0)
    with pytest.raises(NoSnapshot, match=r"LunarLander cannot be pickled with its state.*EzPickle"):
        snapshot([env])


class Handle(Count):
    def __reduce__(self):
        raise TypeError("cannot pickle a handle")


class OwnState(Handle):
    """Cannot be pickled, but says what its state is."""

    def get_state(self):
        return {k: v for k, v in vars(self).items() if k != "_np_random"}

    def set_state(self, state):
        vars(self).update(state)


def test_what_cannot_be_pickled_is_refused_with_the_reason():
    with pytest.raises(NoSnapshot, match=r"pickling it raises .*handle"):
        snapshot([Handle()])
    assert "handle" in taken([Handle()])["not_exact"]


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: gymnasium.wrappers.TimeLimit(e, 9), wrap_env])
def test_an_env_with_a_state_of_its_own_is_asked_for_it(wrap):
    env = wrap(OwnState())
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    fresh = wrap(OwnState())
    fresh.reset(seed=9)
    [back] = restore([fresh], snapshot([env]))
    assert played([env], 40) == played([back], 40)


def test_wrappers_around_an_env_without_snapshot_keep_what_they_have_seen():
    def make():
        return gymnasium.wrappers.NormalizeObservation(Handle())

    one, other = BaseEnvManager([make] * 2), BaseEnvManager([make] * 2)
    one.launch(0)
    for _ in range(9):
        one.step(np.zeros(2, np.int64))
    other.load_state_dict(one.state_dict())
    assert "handle" in other.not_exact
    seen, kept = (m._envs[1].obs_rms for m in (one, other))
    assert kept.count >= seen.count > 9 and kept is not seen  # the new episode's first observation came since
    assert other._envs[1].unwrapped is not one._envs[1].unwrapped


def test_what_columns_share_stays_shared():
    class Shared(Count):
        pass

    log = []
    envs = [Shared(), Shared()]
    for env in envs:
        env.log = log
        env.reset(seed=0)
    back = restore([Shared(), Shared()], snapshot(envs))
    back[0].log.append(1)
    assert back[1].log == [1] and log == []


def managers(kind):
    def one():
        if kind == "base":
            return BaseEnvManager([lambda: make_env({"type": "CartPole-v1"})] * 3)
        return VectorEnvManager.from_config({"type": "CartPole-v1"}, None, 3, "collect")

    return one(), one()


def stepped(manager, steps):
    told = []
    for t in range(steps):
        ts = manager.step(np.array([t % 2, 1, 0]))
        told += [ts.obs.tobytes(), ts.reward.tobytes(), ts.done.tobytes(), np.asarray(manager.ready_obs).tobytes()]
        told.append([(e["column"], e["length"], e["return_"]) for e in manager.take_finished()])
    return told


@pytest.mark.parametrize("kind", ["base", "vector"])
@pytest.mark.parametrize("before", [0, 1, 9, 10, 25])  # pushed one way, the pole falls after 9 to 10 steps
def test_a_manager_goes_on_from_its_state(kind, before):
    one, other = managers(kind)
    one.launch(5)
    stepped(one, before)
    other.load_state_dict(one.state_dict())
    assert other.not_exact is None
    assert stepped(one, 40) == stepped(other, 40)


@pytest.mark.parametrize("kind", ["base", "vector"])
def test_without_a_snapshot_a_manager_starts_new_episodes_with_seeds_it_did_not_have(kind):
    one, other = managers(kind)
    first = np.copy(one.launch(5))
    stepped(one, 4)
    state = one.state_dict() | {"envs": None, "not_exact": "no reason"}
    other.load_state_dict(state)
    again = np.copy(other.ready_obs)
    assert other.not_exact == "no reason" and not np.isin(again, first).any()
    third = managers(kind)[0]
    third.load_state_dict(other.state_dict() | {"envs": None, "not_exact": "no reason"})
    assert not np.isin(third.ready_obs, [first, again]).any()
    assert managers_end(other)[0]["length"] >= 8  # lengths count from the new start


def managers_end(manager):
    finished = []
    while not finished:
        manager.step(np.array([1, 1, 1]))
        finished = list(manager.take_finished())
    return finished


def test_another_number_of_columns_is_refused():
    one = managers("base")[0]
    one.launch(0)
    other = BaseEnvManager([lambda: make_env({"type": "CartPole-v1"})])
    with pytest.raises(ValueError, match="saved run has 3 env columns, this one 1"):
        other.load_state_dict(one.state_dict())


def test_a_foreign_env_behind_the_adapter_comes_back():
    class Old:
        observation_space, action_space = Count().observation_space, Count().action_space

        def reset(self):
            self.t = 0
            return np.zeros(self.observation_space.shape, np.float32)

        def step(self, action):
            self.t += 1
            return np.full(self.observation_space.shape, self.t, np.float32), 1.0, self.t == 5, {}

    env = wrap_env(Old())
    assert isinstance(env, EnvAdapter)
    env.reset(), env.step(0), env.step(0)
    [back] = restore([wrap_env(Old())], snapshot([env]))
    assert back.step(0)[0][0] == 3


def test_wrappers_of_an_old_gym_env_with_a_state_of_its_own_keep_theirs():
    gym = pytest.importorskip("gym")

    class Env(gym.Env):
        observation_space = gym.spaces.Box(0, 99, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.full(1, self.t, np.float32), 1.0, False, False, {}

        def get_state(self):
            return self.t

        def set_state(self, state):
            self.t = state

    def make():
        return wrap_env(gym.wrappers.TimeLimit(Env(), 10))

    env = make()
    env.reset(seed=0)
    for _ in range(6):
        env.step(0)
    [back] = restore([make()], snapshot([env]))
    steps = [back.step(0) for _ in range(4)]
    assert [float(s[0][0]) for s in steps] == [7, 8, 9, 10] and [s[3] for s in steps] == [False, False, False, True]
