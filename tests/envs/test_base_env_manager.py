import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, tree_leaves
from ding_like.envs import BaseEnvManager, EnvError
from ding_like.utils import ENV_MANAGER_REGISTRY
from ding_like.utils.seed import episode_seed
from tests.envs.toys import AnySpace, Count, CountDict, DICount, OldCount


def manager(*envs, seed=0, **kwargs):
    made = BaseEnvManager([lambda env=env: env for env in envs], **kwargs)
    made.launch(seed)
    return made


def zeros(m):
    return np.zeros(m.env_num, np.int64)


def test_both_registered_names_give_the_manager():
    assert ENV_MANAGER_REGISTRY.get("base") is ENV_MANAGER_REGISTRY.get("base_v2") is BaseEnvManager


def test_timestep_fields_shapes_and_dtypes():
    m = manager(Count(2), Count(5), Count(5, trunc=True))
    ts = m.step(zeros(m))
    assert ts._fields == ("obs", "reward", "done", "info", "terminated", "truncated")
    assert ts.obs.shape == (3, 1) and ts.reward.dtype == np.float32 and ts.reward.shape == (3,)
    assert all(flag.dtype == bool and flag.shape == (3,) for flag in (ts.done, ts.terminated, ts.truncated))
    assert [info["t"] for info in ts.info] == [1, 1, 1]


def test_time_out_keeps_the_true_final_observation():
    """Case B06: the next obs of the last step is [5], not the reset's [0]."""
    m = manager(Count(5, trunc=True))
    steps = [m.step(zeros(m)) for _ in range(5)]
    assert steps[-1].obs.tolist() == [[5.0]] and m.ready_obs.tolist() == [[0.0]]
    assert [bool(s.truncated[0]) for s in steps] == [False] * 4 + [True]
    assert not any(s.terminated[0] for s in steps)


def test_flags_belong_to_their_column():
    """Cases B08 and B09: one column times out alone; both flags may be true at once."""
    m = manager(Count(2, trunc=True), Count(9), Count(2, both=True))
    m.step(zeros(m))
    ts = m.step(zeros(m))
    assert ts.truncated.tolist() == [True, False, True]
    assert ts.terminated.tolist() == [False, False, True]
    assert ts.done.tolist() == [True, False, True]


def test_ready_obs_is_the_timestep_obs_when_nothing_ended_and_a_copy_when_something_did():
    m = manager(Count(2), Count(9))
    ts = m.step(zeros(m))
    assert m.ready_obs is ts.obs
    ts = m.step(zeros(m))
    assert m.ready_obs is not ts.obs
    assert ts.obs.tolist() == [[2.0], [2.0]] and m.ready_obs.tolist() == [[0.0], [2.0]]


@pytest.mark.parametrize("kind", [Count, CountDict])
def test_kept_observations_do_not_change_when_the_env_reuses_its_array(kind):
    """Case B50, flat and nested."""
    m = manager(kind(4, mutate=True), kind(4, mutate=True))

    def values(obs):
        leaf = obs["a"]["b"] if kind is CountDict else obs
        assert leaf.shape == (2, 1) and (leaf[0] == leaf[1]).all()
        return leaf[0, 0]

    obs, next_obs = [], []
    for _ in range(4):
        obs.append(m.ready_obs)
        next_obs.append(m.step(zeros(m)).obs)
    assert [values(o) for o in obs] == [0, 1, 2, 3]
    assert [values(o) for o in next_obs] == [1, 2, 3, 4]
    assert values(m.ready_obs) == 0


def test_columns_that_share_one_array_are_kept_apart():
    shared = np.zeros(1, np.float32)

    class Shares(Count):
        def _see(self):
            shared[0] = self.t + 10 * self.n
            return shared

    m = manager(Shares(3), Shares(5))
    assert m.ready_obs.tolist() == [[30.0], [50.0]]
    assert m.step(zeros(m)).obs.tolist() == [[31.0], [51.0]]


SPACES = [
    spaces.Box(-1, 1, (3,), np.float64),
    spaces.Box(0, 255, (2, 4, 4), np.uint8),
    spaces.Box(0, 1, (2, 2), np.bool_),
    spaces.Discrete(5),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))}),
    spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: type(s).__name__)
def test_every_observation_space_is_batched_as_the_env_returned_it(space):
    import copy

    m = BaseEnvManager([lambda: AnySpace(copy.deepcopy(space)) for _ in range(2)])
    m.launch(0)
    twins = [AnySpace(copy.deepcopy(space)) for _ in range(2)]
    expected = [t.reset(seed=episode_seed(0, "collect", b, 0))[0] for b, t in enumerate(twins)]
    for step in range(4):
        batch = m.ready_obs
        for b in range(2):
            mine = [leaf[b] for leaf in tree_leaves(batch)]
            for got, want in zip(mine, tree_leaves(expected[b])):
                np.testing.assert_allclose(got, want, rtol=1e-6)
        assert not isinstance(space, spaces.Dict) or isinstance(batch, ArrayDict)
        m.step(np.zeros(2, np.int64))
        expected = [t.step(0)[0] if step != 2 else (t.step(0), t.reset())[1][0] for t in twins]
    assert all(leaf.dtype != np.float64 for leaf in tree_leaves(m.ready_obs))
    if isinstance(space, spaces.Box):
        assert m.ready_obs.dtype == (np.float32 if space.dtype == np.float64 else space.dtype)


@pytest.mark.parametrize(
    "space, action",
    [
        (spaces.Discrete(3), np.array([2, 0])),
        (spaces.MultiDiscrete([3, 2]), np.array([[2, 1], [0, 1]])),
        (spaces.Box(-1, 1, (2,)), np.array([[0.5, -0.5], [1.0, 0.0]])),
        (spaces.MultiBinary(2), np.array([[1, 0], [0, 1]])),
    ],
    ids=lambda v: type(v).__name__,
)
def test_actions_arrive_in_the_form_of_the_space_and_do_not_alias(space, action):
    envs = [AnySpace(spaces.Discrete(2), space) for _ in range(2)]
    m = manager(*envs)
    m.step(action)
    for b, env in enumerate(envs):
        (got,) = env.actions
        assert space.contains(got) and np.array_equal(got, action[b].astype(space.dtype))
        assert not np.shares_memory(got, action)


def test_discrete_space_with_a_start_takes_actions_from_zero():
    env = AnySpace(spaces.Discrete(2), spaces.Discrete(3, start=5))
    m = manager(env)
    assert m.action_space == spaces.Discrete(3)
    m.step(np.array([0]))
    m.step(np.array([2]))
    assert env.actions == [5, 7]


def test_wrong_action_shape_is_named():
    m = manager(Count(), Count())
    with pytest.raises(ValueError, match=r"actions have shape \(2, 1\); wanted \(2,\)"):
        m.step(np.zeros((2, 1), int))
    with pytest.raises(ValueError, match=r"actions have shape \(1,\)"):
        m.step(np.zeros(1, int))


def test_finished_episodes_are_counted_whole_and_once():
    m = manager(Count(2, reward=0.5), Count(3))
    for _ in range(6):
        m.step(zeros(m))
    done = m.take_finished()
    assert [(e["column"], e["length"], e["return_"], e["return_raw"]) for e in done] == [
        (0, 2, 1.0, 1.0),
        (1, 3, 3.0, 3.0),
        (0, 2, 1.0, 1.0),
        (0, 2, 1.0, 1.0),
        (1, 3, 3.0, 3.0),
    ]
    assert done[0]["info"] == {"t": 2.0} and m.take_finished() == [] == m.finished


def test_raw_return_is_taken_from_the_env_where_it_tells_one():
    m = manager(DICount({"n": 2}))
    m.step(zeros(m))
    m.step(zeros(m))
    (episode,) = m.take_finished()
    assert (episode["return_"], episode["return_raw"]) == (2.0, 20.0)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), steps=st.integers(1, 30))
def test_any_episode_lengths_give_the_counting_sequence(lengths, steps):
    m = manager(*(Count(n) for n in lengths))
    n = np.array(lengths)
    for t in range(steps):
        assert m.ready_obs[:, 0].tolist() == (t % n).tolist()
        ts = m.step(zeros(m))
        assert ts.obs[:, 0].tolist() == (t % n + 1).tolist()
        assert ts.done.tolist() == (t % n + 1 == n).tolist()
    assert len(m.finished) == int((steps // n).sum())


# seeds


def first_obs(seed, **kwargs):
    m = BaseEnvManager([lambda: gymnasium.make("CartPole-v1")] * 4, **kwargs)
    m.launch(seed)
    return m.ready_obs


def run(seed, steps=60):
    m = BaseEnvManager([lambda: gymnasium.make("CartPole-v1")] * 4)
    m.launch(seed)
    actions = np.random.default_rng(0).integers(0, 2, (steps, 4))
    return b"".join(leaf.tobytes() for a in actions for leaf in (m.step(a).obs, m.ready_obs))


def test_same_seed_same_run_and_columns_differ():
    """Case B48, the in-process manager."""
    assert run(3) == run(3) != run(4)
    assert len({row.tobytes() for row in first_obs(3)}) == 4
    assert not np.array_equal(first_obs(3, role="eval"), first_obs(3))


class Seeds(Count):
    def __init__(self, n=2):
        super().__init__(n)
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return super().reset(seed=seed)


def test_only_the_first_reset_is_seeded_by_default():
    env = Seeds()
    m = manager(env, seed=9)
    for _ in range(4):
        m.step(zeros(m))
    assert env.seeds == [episode_seed(9, "collect", 0, 0), None, None]


def test_seed_every_episode_gives_each_episode_its_own_seed_and_launch_the_same_again():
    envs = Seeds(), Seeds(3)
    m = manager(*envs, seed=9, role="eval", seed_every_episode=True)
    for _ in range(6):
        m.step(zeros(m))
    for b, (env, count) in enumerate(zip(envs, (4, 3))):
        assert env.seeds == [episode_seed(9, "eval", b, k) for k in range(count)]
        assert len(set(env.seeds)) == count
        env.seeds.clear()
    m.launch(9)
    assert envs[1].seeds == [episode_seed(9, "eval", 1, 0)] and m.finished == []


# partial steps and resets


def test_resetting_one_column_leaves_the_others_alone():
    """Case B51, the in-process manager."""
    envs = Count(9), Count(9)
    m = manager(*envs)
    m.step(zeros(m))
    m.reset([0])
    assert m.ready_obs.tolist() == [[0.0], [1.0]]
    assert m.step(zeros(m)).obs.tolist() == [[1.0], [2.0]]
    assert [e.resets for e in envs] == [2, 1]


@pytest.mark.parametrize("kind", [Count, CountDict])
def test_stepping_some_columns_in_any_order(kind):
    m = manager(kind(9), kind(2), kind(9))
    kept = m.ready_obs
    ts = m.step(np.zeros(2, int), columns=np.array([2, 1]))
    read = (lambda obs: obs["a"]["b"][:, 0].tolist()) if kind is CountDict else (lambda obs: obs[:, 0].tolist())
    assert read(ts.obs) == [1.0, 1.0] and read(m.ready_obs) == [0.0, 1.0, 1.0] and read(kept) == [0.0] * 3
    ts = m.step(np.zeros(2, int), columns=[2, 1])
    assert read(ts.obs) == [2.0, 2.0] and ts.done.tolist() == [False, True]
    assert read(m.ready_obs) == [0.0, 0.0, 2.0]
    assert [(e["column"], e["length"]) for e in m.finished] == [(1, 2)]


def test_all_columns_in_another_order():
    m = manager(Count(2), Count(9))
    m.step(zeros(m))
    ts = m.step(zeros(m), columns=[1, 0])
    assert ts.done.tolist() == [False, True] and m.ready_obs.tolist() == [[0.0], [2.0]]


def test_without_auto_reset_an_ended_column_waits_for_the_caller():
    m = manager(Count(1), Count(5), auto_reset=False)
    ts = m.step(zeros(m))
    assert m.ready_obs is ts.obs
    with pytest.raises(EnvError, match=r"columns \[0\] have ended; call reset\(\[0\]\)"):
        m.step(zeros(m))
    assert m.step(np.zeros(1, int), columns=[1]).obs.tolist() == [[2.0]]
    m.reset([0])
    assert m.step(zeros(m)).obs.tolist() == [[1.0], [3.0]]


def test_old_and_di_engine_envs_run_behind_the_manager():
    for envs in ((OldCount(2, True), OldCount(3)), (DICount({"n": 2, "trunc": True}), DICount({"n": 3}))):
        m = manager(*envs)
        m.step(zeros(m))
        ts = m.step(zeros(m))
        assert ts.obs.tolist() == [[2.0], [2.0]] and m.ready_obs.tolist() == [[0.0], [2.0]]
        assert ts.truncated.tolist() == [True, False] and ts.terminated.tolist() == [False, False]
        assert m.step(zeros(m)).terminated.tolist() == [False, True]
