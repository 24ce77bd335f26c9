"""`policy.collect.n_step`: a collect counts env steps in place of train samples."""

import numpy as np
import pytest

from ding_like.config import CfgDict
from ding_like.data import ArrayDict, tree_map
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.worker import Replay, Rollout, SampleCollector
from tests.helpers import make_collector, make_policy
from tests.policy.test_recurrent_actor_critic import policy as segmented
from tests.worker.test_masked_rows import NextStep
from tests.worker.test_sample_collector import diaries, explorer, table
from tests.worker.test_window_collect import recurrent


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3, 7, 40])
def test_whole_rows_are_collected_and_extras_count_for_the_next_collect(n_step, nstep):
    envs = diaries()
    collector = make_collector(explorer(nstep=nstep, collect={"n_step": n_step}), *envs, n_sample=1000)
    parts = []
    for k in range(1, 12):
        parts.append(collector.collect())
        assert collector.envstep == sum(len(env.steps) for env in envs) == 3 * -(-k * n_step // 3)
    got = np.concatenate([table(part) for part in parts if part is not None])
    rows = collector.envstep // 3 - nstep + 1  # those of which the future is known
    for env in envs:
        mine = got[got[:, 0] == env.column]
        np.testing.assert_allclose(mine, np.array(env.items(nstep))[:rows], rtol=1e-6)


@pytest.mark.parametrize("n_step", [6, 30, 100])
def test_windows_are_those_of_counting_windows(n_step):
    found = []
    for collect in ({"n_step": n_step}, {}):
        policy = recurrent(R2D2Policy, collect=collect)
        collector, parts = make_collector(policy, *diaries(), n_sample=4), []

        def keep(items, parts=parts):
            parts.append(tree_map(np.copy, ArrayDict(items)))
            return len(items["reward"])

        while collector.envstep < 300:
            before = collector.envstep
            collector.collect(keep)
            assert not collect or collector.envstep - before in (3 * (n_step // 3), 3 * -(-n_step // 3))
        windows = tree_map(lambda *xs: np.concatenate(xs), *parts)
        rows = [tree_map(lambda x, i=i: x[i], windows) for i in range(len(windows["reward"]))]
        found.append({tuple(row["obs"][row["mask"] > 0].ravel()): row["action"].tolist() for row in rows})
    many, few = sorted(found, key=len, reverse=True)
    assert len(few) > 50 and few.items() <= many.items()


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
@pytest.mark.parametrize("lstm_type", [None, "gru"])
def test_a_rollout_is_so_many_steps(cls, lstm_type):
    policy = segmented(cls, unroll=4, lstm=lstm_type, collect={"n_step": 24})
    collector, store = make_collector(policy, *diaries()), Rollout()
    for k in range(1, 5):
        collector.collect(store.push)
        assert collector.envstep == 24 * k
        (batch,) = store.batches(1, 100)
        assert batch["adv"].shape == ((6, 4) if lstm_type else (24,))


def test_a_rollout_of_envs_that_reset_in_a_row_of_their_own_has_as_many_rows():
    envs = diaries()
    policy = make_policy(PPOPolicy, obs_shape=3, action_shape=3, collect={"n_step": 30})
    collector, store, lengths = SampleCollector(policy._cfg.collect, NextStep(envs), policy.collect_mode), Rollout(), []

    def push(block):
        lengths.append(len(block["mask"]))
        return store.push(block)

    for _ in range(4):
        collector.collect(push)
    assert lengths == [10] * 4
    assert store.count == collector.envstep == sum(len(env.steps) for env in envs) < 120


def test_what_a_call_asks_for_goes_before_and_moves_no_surplus():
    collector = make_collector(explorer(collect={"n_step": 7}), *diaries())
    store = Replay(CfgDict(replay_buffer_size=1000))
    collector.collect(store.push)  # 9 steps, two too many
    collector.collect(store.push, n_sample=4)
    collector.collect(store.push, n_step=1)
    assert collector.envstep == 9 + 6 + 3
    collector.collect(store.push)
    assert collector.envstep == 18 + 6  # of 7 two were there


def test_the_surplus_is_part_of_the_state():
    first, again = (make_collector(explorer(collect={"n_step": 7}), *diaries()) for _ in range(2))
    first.collect()
    again.load_state_dict(first.state_dict())
    for collector in (first, again):
        collector.collect()
        assert collector.envstep == 15


def test_n_step_below_one_is_named():
    with pytest.raises(ValueError, match=r"policy\.collect\.n_step is 0; wanted at least 1"):
        make_collector(explorer(collect={"n_step": 0}), *diaries())
