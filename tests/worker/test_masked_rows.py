"""Rows that are no transition (an env that resets in the step after an end) are never counted, stored or drawn."""

import numpy as np
import pytest

from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.data import Infos
from ding_like.envs.base_env import EnvTimestep
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.worker import Replay, Rollout, SampleCollector
from tests.helpers import Constant, make_policy, policy_config
from tests.policy.test_actor_critic import LinearV
from tests.worker.test_sample_collector import GAMMA, Diary, table


class NextStep:
    """Diaries in the manner of a next-step autoreset: the step after an end ignores its action and resets."""

    may_idle = True
    auto_reset = True

    def __init__(self, envs):
        self.envs, self.env_num = envs, len(envs)
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space
        self.idle, self._ended, self._over = [], np.zeros(len(envs), bool), []

    def launch(self, seed):
        self.ready_obs = np.stack([env.reset()[0] for env in self.envs])

    def step(self, action):
        idle, rows = self._ended, []
        for b, env in enumerate(self.envs):
            rows.append((env.reset()[0], 0.0, False, False) if idle[b] else env.step(int(action[b]))[:4])
        obs, reward, terminated, truncated = (np.stack(column) for column in zip(*rows))
        self.idle = np.flatnonzero(idle)
        self._ended = terminated | truncated
        self._over += [
            dict(column=b, length=env.t, return_=0.0, return_raw=0.0)
            for b, env in enumerate(self.envs)
            if self._ended[b]
        ]
        self.ready_obs = obs.view() if self._ended.any() else obs
        return EnvTimestep(
            obs, reward.astype(np.float32), self._ended, Infos([{}] * self.env_num), terminated, truncated
        )

    def take_finished(self):
        taken, self._over = self._over, []
        return taken


class Dead(NextStep):
    """From the third step on every column's worker is dead."""

    steps = 0

    def step(self, action):
        self.steps += 1
        timestep = super().step(action)
        if self.steps > 2:
            self.idle = np.arange(self.env_num)
        return timestep


@pytest.mark.parametrize("recurrent", [False, True])
def test_blocks_without_a_transition_leave_all_statistics_and_give_nothing_to_learn(recurrent):
    over = dict(model=dict(encoder_hidden_size_list=[8], lstm_type="gru"), learn_unroll_len=2) if recurrent else {}
    cfg = policy_config(PPOPolicy, norm_obs=dict(use_norm=True), learn=dict(value_norm=True), **over)
    policy = PPOPolicy(cfg, seed=0, shapes=dict(obs_shape=3, action_shape=3))
    collect = deep_merge_defaults(policy._cfg.collect, {"n_sample": 3 if recurrent else 6})
    collector, store = SampleCollector(collect, Dead(diaries()), policy.collect_mode), Rollout()
    told = []
    for _ in range(3):
        collector.collect(store.push)
        told.append((store.count, policy._value_scale(), policy.get_model().moments("")))
        list(store.batches(1, 4))
    assert [count for count, *_ in told] == [3 if recurrent else 5, 0, 0]  # of 3 segments, of 6 steps
    assert told[2][1] == told[1][1] == told[0][1] and np.isfinite(told[0][1])
    for one, other in zip(told[2][2], told[1][2]):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all() and one.any()


def rows(items):
    """Items as comparable tuples, in order."""
    return sorted(tuple(np.round(np.float64(row), 4)) for row in items)


def diaries():
    return [Diary(0, [1, 2, 7]), Diary(1, [4, 3]), Diary(2, [100])]


def collector_of(nstep=1, n_sample=9, norm=False):
    envs = diaries()
    policy = make_policy(
        obs_shape=3,
        action_shape=3,
        model=Constant(0.0, 0.0, 0.0),
        nstep=nstep,
        discount_factor=GAMMA,
        norm_obs=dict(use_norm=norm),
        other=dict(eps=dict(start=1.0, end=1.0)),
    )
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": n_sample})
    return SampleCollector(cfg, NextStep(envs), policy.collect_mode), envs, policy


@pytest.mark.parametrize("nstep", [1, 3])
def test_the_ring_holds_the_real_steps_and_no_other(nstep):
    collector, envs, _ = collector_of(nstep)
    store = Replay(CfgDict(replay_buffer_size=1000))
    for _ in range(6):
        collector.collect(store.push)
    wanted = rows(item for env in envs for item in env.items(nstep))
    ring = store.ring
    serial = np.arange(ring.first, ring.end)
    found = rows(table(ring.gather(np.delete(serial, ring.idle(serial)))))
    waiting = [item for item in wanted if item not in found]  # those whose future may lie in the next block
    assert len(found) == len(set(found)) == store.count and set(found) <= set(wanted)
    assert len(waiting) <= 3 * (nstep - 1)
    assert collector.envstep == sum(len(env.steps) for env in envs)
    drawn = store.sample(4000)
    assert set(rows(table(drawn))) == set(found)


def test_a_collect_without_a_store_leaves_them_out():
    collector, envs, _ = collector_of()
    kept = [collector.collect() for _ in range(5)]
    found = np.concatenate([table(items) for items in kept if items is not None])
    assert rows(found) == rows(item for env in envs for item in env.items(1))
    assert all("mask" not in items for items in kept if items is not None)


def test_counts_stay_right_while_the_ring_wraps_and_through_its_state():
    collector, _, _ = collector_of(n_sample=6)
    store, again = Replay(CfgDict(replay_buffer_size=21)), Replay(CfgDict(replay_buffer_size=21))
    for _ in range(40):
        collector.collect(store.push)
        ring = store.ring
        real = ring.slots - len(ring.idle(np.arange(ring.first, ring.end)))
        assert store.count == real and store.count <= 21
        again.load_state_dict(store.state_dict())
        assert again.count == real


def test_a_rollout_holds_whole_rows_and_trains_on_the_real_ones_once_an_epoch():
    collector, envs, _ = collector_of(n_sample=30)
    store = Rollout()
    collector.collect(store.push)  # 10 rows of 3 columns
    assert sum(len(env.steps) for env in envs) == collector.envstep == store.count < 30
    wanted = rows(item for env in envs for item in env.items(1))
    seen = list(store.batches(2, 8))
    half = len(seen) // 2
    for epoch in (seen[:half], seen[half:]):
        assert rows(np.concatenate([table(batch) for batch in epoch])) == wanted


def test_the_normaliser_sees_the_observations_of_real_steps_alone():
    collector, envs, policy = collector_of(norm=True)
    for _ in range(5):
        collector.collect()
    collector.collect()  # takes in what the fifth saw
    seen = np.array([step[0] for env in envs for step in env.steps])
    statistics = policy.get_model().statistics[0]
    collector._policy.observe(collector._seen[0])
    np.testing.assert_allclose(statistics.mean.numpy(), seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(statistics.var.numpy(), seen.var(0), rtol=1e-6)


class Masked(DQNPolicy):
    def _process_transition(self, obs, model_output, timestep):
        return {**super()._process_transition(obs, model_output, timestep), "mask": np.ones(len(timestep.reward))}


def test_a_policys_own_field_called_mask_is_refused():
    policy = make_policy(Masked, obs_shape=3, action_shape=3, model=Constant(0.0, 0.0, 0.0))
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": 3})
    with pytest.raises(ValueError, match="the field 'mask' is the collector's"):
        SampleCollector(cfg, NextStep(diaries()), policy.collect_mode).collect()


class EpisodeV(LinearV):
    """V = 100 episode + t: the first observation of the next episode is worth another number than a final one."""

    def forward(self, x):
        return super().forward((100 * x[..., 1] + x[..., 2])[..., None])


@pytest.mark.parametrize("n_sample", [3, 9, 30])
def test_targets_at_ends_are_those_of_the_true_next_observation(n_sample):
    """Lambda 0: target = r + gamma V(next), wherever ends and block edges fall."""
    envs = diaries()
    policy = make_policy(
        PPOPolicy, obs_shape=3, action_shape=3, model=EpisodeV(), discount_factor=GAMMA, collect=dict(gae_lambda=0.0)
    )
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": n_sample})
    collector, store, found = SampleCollector(cfg, NextStep(envs), policy.collect_mode), Rollout(), []
    for _ in range(90 // n_sample):
        collector.collect(store.push)
        found += [(*b["obs"][0], b["return_"][0]) for b in store.batches(1, 1)]
    wanted = [
        (*obs, reward + (0.0 if terminated else GAMMA * (100 * after[1] + after[2])))
        for env in envs
        for obs, _, reward, after, terminated, _ in env.steps
    ]
    assert rows(found) == rows(wanted)
