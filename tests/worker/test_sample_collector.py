"""The collector against what the envs themselves wrote down: nothing lost, nothing twice, every number right."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.config import CfgDict
from ding_like.data import Block, torchify, tree_map
from ding_like.policy.dqn import DQNPolicy
from ding_like.worker import Replay
from tests.envs.toys import Count, CountDict
from tests.helpers import Constant, make_collector, make_policy

GAMMA = 0.9


class Diary(gymnasium.Env):
    """obs = [column, episode, t]; episodes of these lengths in turn, every second one truncated; keeps its steps."""

    def __init__(self, column, lengths):
        self.column, self.lengths = column, lengths
        self.observation_space = spaces.Box(-1, 1e9, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.episode, self.steps = -1, []

    def obs(self):
        return np.float32([self.column, self.episode, self.t])

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return self.obs(), {}

    def step(self, action):
        before, reward = self.obs(), float(1 + self.column + 0.5 * self.t)
        self.t += 1
        end = self.t == self.lengths[self.episode % len(self.lengths)]
        terminated, truncated = end and self.episode % 2 == 0, end and self.episode % 2 == 1
        self.steps.append((before, action, reward, self.obs(), terminated, truncated))
        return self.obs(), reward, terminated, truncated, {}

    def items(self, n):
        """The n-step items of the first steps, in order, as far as their future is known."""
        found = []
        for start in range(len(self.steps)):
            total, k, flags = 0.0, 0, (False, False)
            while k < n and start + k < len(self.steps) and not any(flags):
                step = self.steps[start + k]
                total += GAMMA**k * step[2]
                flags, k = step[4:], k + 1
            if k < n and not any(flags):
                break
            obs, action, _, _, _, _ = self.steps[start]
            found.append((*obs, action, total, 0.0 if flags[0] else GAMMA**k, *self.steps[start + k - 1][3]))
        return found


def diaries():
    return [Diary(0, [1, 2, 7]), Diary(1, [4, 3]), Diary(2, [100])]


def table(items):
    return np.concatenate(
        [
            np.asarray(items[k]).reshape(len(items["reward"]), -1)
            for k in ("obs", "action", "reward", "discount", "next_obs")
        ],
        1,
    )


def explorer(cls=DQNPolicy, **over):
    eps = {"eps": {"start": 1.0, "end": 1.0}}
    return make_policy(cls, obs_shape=3, action_shape=3, discount_factor=GAMMA, other=eps, **over)


@pytest.mark.parametrize("nstep", [1, 2, 3, 5])
@pytest.mark.parametrize("n_sample", [1, 3, 7, 16])
def test_every_step_becomes_one_right_item(nstep, n_sample):
    envs = diaries()
    collector = make_collector(explorer(nstep=nstep), *envs, n_sample=n_sample)
    parts = [collector.collect() for _ in range(9)]
    got = np.concatenate([table(p) for p in parts if p is not None])
    rows = len(got) // 3
    assert rows == -(-9 * n_sample // 3)  # whole rows; extras of one collect count for the next
    assert collector.envstep == sum(len(e.steps) for e in envs) == 3 * (rows + nstep - 1)
    for env in envs:
        mine = got[got[:, 0] == env.column]
        np.testing.assert_allclose(mine, np.array(env.items(nstep))[:rows], rtol=1e-6)
    assert {a for env in envs for _, a, *_ in env.steps} == {0, 1, 2}


def test_nothing_is_lost_when_collects_ask_for_different_numbers():
    envs = diaries()
    collector = make_collector(explorer(nstep=3), *envs, n_sample=4)
    parts = [collector.collect(n_sample=n, random=n == 50) for n in (50, 1, 4, 2, 9, 1)]
    got = np.concatenate([table(p) for p in parts if p is not None])
    for env in envs:
        mine = got[got[:, 0] == env.column]
        np.testing.assert_allclose(mine, np.array(env.items(3))[: len(mine)], rtol=1e-6)
    assert len(got) == 3 * -(-67 // 3)


def test_finished_episodes_are_counted_with_return_and_length():
    envs = [Diary(0, [2]), Diary(1, [3])]
    collector = make_collector(explorer(), *envs, n_sample=12)
    assert collector.statistics() == {}
    collector.collect()
    assert collector.episode_count == 5
    returns = [1 + 1.5] * 3 + [2 + 2.5 + 3] * 2
    numbers = collector.statistics()
    assert numbers["return"] == numbers["return_raw"] == pytest.approx(np.mean(returns))
    assert numbers["length"] == pytest.approx(12 / 5) and numbers["episodes"] == 5


def targets(env, nstep=1, q=3.0):
    """DQN targets of the first episode at constant Q, and the stored next observations, through the replay ring."""
    policy = make_policy(model=Constant(q, q), nstep=nstep, discount_factor=GAMMA)
    replay = Replay(CfgDict(replay_buffer_size=100))
    collector = make_collector(policy, env, n_sample=5)
    collector.collect(replay.push)
    batch = replay.ring.gather(np.arange(5))
    td = policy.learn_mode.forward(torchify(batch))["td_error"]
    return (td + q).tolist(), batch["next_obs"][:, 0].tolist()


@pytest.mark.parametrize("nstep", [1, 2, 3])
def test_a_time_out_bootstraps_from_the_true_final_observation(nstep):
    """Case B06: the last target is 1 + 0.9 * 3 = 3.7 and its next obs [5]."""
    got, next_obs = targets(Count(5, trunc=True), nstep)
    assert got[-1] == pytest.approx(3.7) and next_obs[-1] == 5.0
    distance = [min(nstep, 5 - t) for t in range(5)]
    assert got == pytest.approx([sum(GAMMA**i for i in range(k)) + GAMMA**k * 3 for k in distance])
    assert next_obs == [min(t + nstep, 5) for t in range(5)]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("nstep", [1, 2, 3])
def test_a_termination_does_not(nstep, both):
    """Cases B06 and B09: 1 where the episode terminated, also when it was cut off in the same step."""
    got, next_obs = targets(Count(5, both=both), nstep)
    assert got[-1] == pytest.approx(1.0) and next_obs[-1] == 5.0


def test_one_columns_time_out_is_not_anothers():
    """Case B08 with Q = 10: targets of step 1 are 10 in both columns."""
    policy = make_policy(model=Constant(10.0, 10.0), discount_factor=GAMMA)
    items = make_collector(policy, Count(2, trunc=True), Count(9), n_sample=4).collect()
    td = policy.learn_mode.forward(torchify(items))["td_error"]
    assert (td + 10).tolist() == pytest.approx([10, 10, 10, 10])


@pytest.mark.parametrize("env", [Count(4, trunc=True, mutate=True), CountDict(4, trunc=True, mutate=True)])
def test_envs_that_reuse_their_array_are_stored_right(env):
    """Case B50: obs 0, 1, 2, 3 and next obs 1, 2, 3, 4 in the list and in the buffer."""
    shape = {"a": {"b": 1}, "t": {"@one_hot": [1000]}} if isinstance(env, CountDict) else 1
    policy = make_policy(obs_shape=shape)
    replay = Replay(CfgDict(replay_buffer_size=8))
    collector = make_collector(policy, env, n_sample=1)
    kept = [collector.collect() for _ in range(4)]
    collector.collect(replay.push, n_sample=8)
    batch = replay.ring.gather(replay.ring.address(np.arange(8)))

    def leaf(obs):
        return obs["a"]["b"] if isinstance(env, CountDict) else obs

    assert [leaf(k["obs"]).item() for k in kept] == [0, 1, 2, 3]
    assert [leaf(k["next_obs"]).item() for k in kept] == [1, 2, 3, 4]
    assert leaf(batch["obs"])[:, 0].tolist() == [0, 1, 2, 3] * 2
    assert leaf(batch["next_obs"])[:, 0].tolist() == [1, 2, 3, 4] * 2


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    """Case B48, in process: random prefill and exploration included; columns differ."""

    def run(seed):
        policy = make_policy(obs_shape=4, nstep=2, seed=seed, model=Constant(0.0, 0.0))
        envs = [gymnasium.make("CartPole-v1") for _ in range(4)]
        collector = make_collector(policy, *envs, n_sample=40, seed=seed)
        parts = [collector.collect(random=True), collector.collect()]
        return np.concatenate([np.concatenate([p["obs"], p["action"][:, None]], 1) for p in parts])

    first = run(0)
    assert first.tobytes() == run(0).tobytes() != run(1).tobytes()
    assert len(np.unique(first[:4], axis=0)) == 4


# ---------------------------------------------------------------- users' policies
class PerEnv(DQNPolicy):
    per_env_transition = True

    def _process_transition(self, obs, model_output, timestep):
        assert np.ndim(timestep.reward) == 0 and obs.shape == (3,) and np.ndim(model_output["action"]) == 0
        return super()._process_transition(obs, model_output, timestep)


class Copies(DQNPolicy):
    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        return tree_map(np.copy, row)


class AddsFlags(DQNPolicy):
    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        del row["terminated"]
        return row


class Flat(DQNPolicy):
    def _get_train_sample(self, data):
        assert isinstance(data, Block)
        return super()._get_train_sample(data).flat()


class Lists(DQNPolicy):
    def _get_train_sample(self, data):
        flat = super()._get_train_sample(data).flat()
        return [{k: v[i] for k, v in flat.items()} for i in range(len(flat["reward"]))]


@pytest.mark.parametrize("cls", [PerEnv, Copies, AddsFlags, Flat, Lists])
def test_other_ways_to_write_a_policy_give_the_same_items(cls):
    items = []
    for policy_cls in (DQNPolicy, cls):
        replay = Replay(CfgDict(replay_buffer_size=60))
        collector = make_collector(explorer(policy_cls, nstep=3), *diaries(), n_sample=6)
        for _ in range(5):
            collector.collect(replay.push)
        items.append(table(replay.ring.gather(replay.ring.address(np.arange(replay.count)))))
    assert len(items[1]) == 30
    np.testing.assert_array_equal(items[0], items[1])


class Broken(DQNPolicy):
    change = None

    def _process_transition(self, obs, model_output, timestep):
        row = super()._process_transition(obs, model_output, timestep)
        return type(self).change(row, timestep) or row


def collect_with(change, rows=6):
    policy = explorer(type("Own", (Broken,), {"change": staticmethod(change)}))
    make_collector(policy, *diaries(), n_sample=3 * rows).collect()


def test_a_row_of_wrong_shape_is_named_with_field_and_wanted_shape():
    with pytest.raises(ValueError, match=r"_process_transition: field 'reward' has shape \[\]; wanted .*\[3, \.\.\.\]"):
        collect_with(lambda row, ts: row.update(reward=1.0))
    with pytest.raises(ValueError, match=r"field 'action' has shape \[2\]"):
        collect_with(lambda row, ts: row.update(action=row["action"][:2]))


def later(change):
    """`change` only from the second row on."""
    seen = []
    return lambda row, ts: change(row) if seen else seen.append(1)


def test_a_row_unlike_the_first_is_named():
    with pytest.raises(ValueError, match=r"_process_transition: the row does not fit the first one"):
        collect_with(later(lambda row: row.update(reward=np.zeros((3, 2)))))
    with pytest.raises(
        ValueError, match=r"_process_transition returned the fields .*'extra'.*every row needs the same"
    ):
        collect_with(later(lambda row: row.update(extra=np.zeros(3))))
    with pytest.raises(ValueError, match=r"_process_transition returned the fields .*every row needs the same"):
        collect_with(later(lambda row: row.pop("reward") is None))


class Wrong(DQNPolicy):
    def _get_train_sample(self, data):
        return np.zeros(3)


def test_wrong_train_samples_are_named():
    with pytest.raises(TypeError, match="_get_train_sample returned ndarray; wanted a Block"):
        make_collector(explorer(Wrong), *diaries()).collect()


def test_n_sample_below_one_is_named():
    with pytest.raises(ValueError, match="n_sample is 0; wanted at least 1"):
        make_collector(explorer(), *diaries(), n_sample=0)


# ---------------------------------------------------------------- numbers that are not finite
class Bad(Count):
    """`Count` whose 8th observation or reward (0-based 7) is not finite."""

    def __init__(self, where, n=50, value=np.nan, trunc=False):
        super().__init__(n, trunc)
        self.where, self.value = where, value

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.where == "obs" and self.t == 7:
            obs[0] = self.value
        if self.where == "reward" and self.t == 8:
            reward = self.value
        return obs, reward, *rest


@pytest.mark.filterwarnings("ignore:invalid value")  # the network is asked about the infinity before it is found
@pytest.mark.parametrize("n_sample", [2, 6, 14, 40])
@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize(
    ("where", "value"), [("obs", np.nan), ("obs", np.inf), ("reward", np.nan), ("reward", -np.inf)]
)
def test_a_number_that_is_not_finite_is_named_and_not_stored(n_sample, nstep, where, value):
    policy = make_policy(nstep=nstep)
    collector = make_collector(policy, Count(50), Bad(where, value=value), n_sample=n_sample)
    stored = []
    with pytest.raises(FloatingPointError, match=rf"{where} of env column 1 is not finite at env step 14 \(row 7 "):
        for _ in range(20):
            collector.collect(lambda items: stored.append(items.flat()) or 2 * items.starts)
    for items in stored:
        assert all(np.isfinite(v).all() for v in items.values())


@pytest.mark.parametrize("trunc", [False, True])
def test_a_final_observation_that_is_not_finite_is_named(trunc):
    collector = make_collector(make_policy(), Count(50), Bad("obs", n=7, trunc=trunc), n_sample=40)
    with pytest.raises(FloatingPointError, match=r"final obs of env column 1 is not finite at env step 12 \(row 6 "):
        collector.collect()


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("steps", [1, 5, 7, 40])
def test_so_many_env_steps_are_collected_and_every_item_comes_once(steps, nstep):
    policy = explorer(nstep=nstep)
    collector = make_collector(policy, *diaries(), n_sample=6)
    got = []

    def push(items):
        got.append(items.flat())
        return len(got[-1]["reward"])

    collector.collect(push, n_step=steps, random=True)
    assert collector.envstep == 3 * -(-steps // 3)
    collector.collect(push)
    rows = np.concatenate([table(items) for items in got])
    wanted = [item for env in collector._rows.env._envs for item in env.unwrapped.items(nstep)]
    assert len(np.unique(rows, axis=0)) == len(rows) and len(rows) >= 6
    known = {tuple(np.round(w, 4)) for w in wanted}
    assert {tuple(np.round(r, 4)) for r in rows} <= known
