"""Whole trajectories of single columns, against what the envs themselves wrote down."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ding_like.utils.log as log
from ding_like.config import CfgDict, deep_merge_defaults
from ding_like.data import ArrayDict, tree_map
from ding_like.policy.dqn import DQNPolicy
from ding_like.rl_utils import get_nstep_return_data, get_train_sample
from ding_like.torch_utils.packing import pack, unpack
from ding_like.worker import Learner, Replay, Rollout, SampleCollector
from tests.envs.toys import CountDict
from tests.helpers import Constant, make_manager, make_policy
from tests.worker.test_masked_rows import NextStep
from tests.worker.test_sample_collector import GAMMA, Diary, diaries, explorer, table
from tests.worker.test_window_collect import episodes_of, recurrent


class Whole(DQNPolicy):
    """Keeps the trajectories it gets; makes an item of every step."""

    per_column_trajectory = True

    def _process_transition(self, obs, model_output, timestep):
        return {"obs": obs, "action": model_output["action"], "reward": timestep.reward, "next_obs": timestep.obs}

    def _get_train_sample(self, data):
        self.seen = [*getattr(self, "seen", []), data]
        return ArrayDict(data)


def collector_of(policy, envs, n_sample=4, manager=make_manager, **collect):
    cfg = deep_merge_defaults(policy._cfg.collect, {"n_sample": n_sample, **collect})
    return SampleCollector(cfg, manager(*envs), policy.collect_mode)


def next_step(*envs):
    return NextStep(envs)


def whole(cls=Whole, longest=10000, **over):
    return explorer(cls, collect={"max_traj_len": longest}, **over)


def wanted(env, longest):
    """The trajectories of a diary that are finished: its episodes, cut after `longest` steps."""
    found = []
    for steps, ended in episodes_of(env):
        parts = [steps[i : i + longest] for i in range(0, len(steps), longest)]
        found += parts if ended or len(parts[-1]) == longest else parts[:-1]
    return found


def assert_is(trajectory, steps):
    for name, column in zip(("obs", "action", "reward", "next_obs", "terminated", "truncated"), zip(*steps)):
        np.testing.assert_array_equal(trajectory[name], np.array(column))


lengths = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(lengths, st.sampled_from([3, 5, 10000]), st.integers(1, 9), st.booleans())
def test_every_finished_trajectory_comes_once_with_its_true_fields(lengths, longest, n_sample, idle):
    envs = [Diary(b, own) for b, own in enumerate(lengths)]
    policy = whole(longest=longest)
    collector = collector_of(policy, envs, n_sample, next_step if idle else make_manager)
    for _ in range(5):
        collector.collect(lambda items: len(items["reward"]))
    for env in envs:
        mine = [data for data in policy.seen if data["obs"][0, 0] == env.column]
        parts = wanted(env, longest)
        assert len(mine) == len(parts)
        for trajectory, steps in zip(mine, parts):
            assert "mask" not in trajectory and len(trajectory) == len(steps)
            assert_is(trajectory, steps)
    assert collector.envstep == sum(len(env.steps) for env in envs)


def test_trajectories_are_copies_and_rows_are_dropped_with_the_last_that_has_them():
    envs = [Diary(0, [3]), Diary(1, [5])]
    policy = whole()
    collector = collector_of(policy, envs)
    collector.collect(lambda items: 1, n_sample=30)
    before = [tree_map(np.copy, data) for data in policy.seen]
    assert len(collector._stream._chunks) <= 2  # of 8 rows each: nothing older than the open episodes
    for data in policy.seen:
        data["reward"][:] = 7
    again = len(policy.seen)
    collector.collect(lambda items: 1, n_sample=30)
    assert all((data["reward"] != 7).all() for data in [*before, *policy.seen[again:]])


def test_n_sample_counts_what_get_train_sample_makes():
    """8 rows a block; 2 columns of episodes of 5 steps, an item a step."""
    collector = collector_of(whole(), [Diary(0, [5]), Diary(1, [5])], 7)
    given = []
    collector.collect(lambda items: given.append(len(items["reward"])) or given[-1])
    assert given == [10] and collector.envstep == 16  # 3 more than asked for
    assert collector.collect(lambda items: 1 / 0, n_sample=3) is None and collector.envstep == 16
    collector.collect(lambda items: given.append(len(items["reward"])) or given[-1], n_sample=1)
    assert given == [10, 20]


class Windows(Whole):
    """The guide's statements."""

    def _get_train_sample(self, data):
        data = get_nstep_return_data(data, self._nstep, gamma=self._gamma)
        return get_train_sample(data, 4)


class ListedWindows(Windows):
    per_column_trajectory = "list"


class ListedItems(Whole):
    """A loop over the steps, as written for lists; half of the episodes give nothing."""

    per_column_trajectory = "list"

    def _get_train_sample(self, data):
        assert type(data) is list and all(type(step) is dict for step in data)
        total = 0.0
        for i in reversed(range(len(data))):
            data[i]["return_"] = total = data[i]["reward"] + self._gamma * total
            data[i].pop("next_obs")
        return data if data[-1]["terminated"] else None


@pytest.mark.parametrize("nstep", [1, 2])
def test_lists_and_arrays_give_the_same_windows(nstep):
    stored = []
    for cls in (Windows, ListedWindows):
        replay = Replay(CfgDict(replay_buffer_size=100))
        collector = collector_of(whole(cls, nstep=nstep), diaries(), 9)
        for _ in range(3):
            collector.collect(replay.push)
        stored.append(replay.ring.gather(np.arange(replay.count)))
    arrays, listed = stored
    assert len(arrays["reward"]) >= 27 and arrays["obs"].shape[1:] == (4, 3)
    assert arrays["reward"].shape[1:] == ((4, 2) if nstep == 2 else (4,))
    assert arrays.keys() - {"cut"} == listed.keys()
    for name in listed:
        np.testing.assert_allclose(arrays[name], listed[name], rtol=1e-6)
        assert arrays[name].shape == listed[name].shape


@pytest.mark.parametrize("store", [Replay, Rollout])
def test_a_policy_written_for_lists_keeps_its_loops(store):
    store = store(CfgDict(replay_buffer_size=100, gamma=GAMMA))
    env = Diary(0, [4, 3])
    collector_of(whole(ListedItems), [env], 8).collect(store.push)
    assert store.count == 8
    (batch,) = store.batches(1, 8) if isinstance(store, Rollout) else [store.ring.gather(np.arange(8))]
    rewards = np.array([1.0, 1.5, 2.0, 2.5])
    returns = [sum(GAMMA**k * r for k, r in enumerate(rewards[t:])) for t in range(4)]
    for t, value in enumerate(returns):
        np.testing.assert_allclose(batch["return_"][batch["obs"][:, 2] == t], value, rtol=1e-6)
    assert set(batch["obs"][:, 1]) == {0, 2}


def test_dqn_makes_of_whole_trajectories_what_it_makes_of_rows():
    items = []
    for inf in (False, True):
        envs = [Diary(0, [1, 2, 7]), Diary(1, [4, 3])]
        policy = explorer(nstep=3, collect={"traj_len_inf": inf})
        got = table(collector_of(policy, envs, 60).collect())
        items.append(sorted(map(tuple, got[got[:, 1] < 2].tolist())))
    assert len(items[0]) == 10 and items[0] == items[1]


def test_dictionary_observations():
    class Own(Whole):
        def _forward_collect(self, obs, data_id=None, **setting):
            return ArrayDict(action=np.zeros(1, np.int64))

    policy = make_policy(Own, model=Constant(0.0, 0.0))
    collector = collector_of(policy, [CountDict(3)], 3)
    items = collector.collect()
    assert items["obs"]["a"]["b"][:3].tolist() == [[0], [1], [2]] and items["next_obs"]["t"][:3].tolist() == [1, 2, 3]


def test_stored_states_are_those_of_the_steps():
    class Own(type(recurrent())):
        per_column_trajectory = True

        def _get_windows(self):
            return None

        def _get_train_sample(self, data):
            self.seen = [*getattr(self, "seen", []), data]
            return get_train_sample(data, 4)

    policy = recurrent(Own)
    items = collector_of(policy, [Diary(0, [3, 6]), Diary(1, [5])], 6).collect()
    assert items["prev_state"]["h"].shape[1:] == (1, 1, 4)
    net = policy.get_model()
    for data in policy.seen:
        with torch.no_grad():
            whole = net({"obs": torch.from_numpy(data["obs"])[:, None], "prev_state": None})  # [L, 1, A]
        np.testing.assert_allclose(data["q"], whole["logit"][:, 0], atol=1e-5)
        assert not data["prev_state"]["h"][0].any()


class Endless(Whole):
    """One window of the whole trajectory."""

    def _get_train_sample(self, data):
        self.seen = [*getattr(self, "seen", []), data]
        return


def test_an_endless_episode_is_handed_on_in_parts_that_end_nothing():
    policy = whole(longest=5)
    collector_of(policy, [Diary(0, [1000])], 20).collect()
    assert [data["obs"][0, 2] for data in policy.seen] == [0, 5, 10, 15]
    assert all(len(data) == 5 and not (data["terminated"] | data["truncated"]).any() for data in policy.seen)


@pytest.mark.parametrize("made", [None, []])
def test_a_trajectory_may_give_nothing(made):
    class Own(Whole):
        def _get_train_sample(self, data):
            return made if len(data) < 3 else data

    items = collector_of(explorer(Own), [Diary(0, [2, 4])], 4).collect()
    assert items["obs"][:, 1].tolist() == [1] * 4


def test_windows_of_short_trajectories_that_are_dropped_give_nothing():
    class Own(Whole):
        def _get_train_sample(self, data):
            return get_train_sample(data, 3, last_fn_type="drop")

    items = collector_of(explorer(Own), [Diary(0, [2, 4])], 1).collect()
    assert items["obs"].shape == (1, 3, 3)


def test_what_is_no_sample_is_named():
    class Own(Whole):
        def _get_train_sample(self, data):
            return np.zeros(3)

    with pytest.raises(TypeError, match="_get_train_sample returned ndarray; wanted a Block, a tree"):
        collector_of(explorer(Own), [Diary(0, [2])]).collect()


# ---------------------------------------------------------------- resume
def saved(collector):
    return copy.deepcopy(unpack(pack(collector.state_dict())))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_restored_collector_goes_on_with_the_open_trajectories(at):
    def run(stops):
        policy = whole()
        collector = collector_of(policy, diaries(), 12)
        for k in range(6):
            collector.collect(lambda items: len(items["reward"]))
            if k in stops:
                state, seen, noises = saved(collector), policy.seen, policy.run_state_dict()
                policy = whole()
                policy.seen = seen
                policy.load_run_state_dict(noises)
                collector = collector_of(policy, diaries(), 12)
                collector.load_state_dict(state)
                assert collector.not_exact is None
        return policy.seen

    once, resumed = run([]), run([at])
    assert len(once) == len(resumed) > 8
    for a, b in zip(once, resumed):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_where_envs_start_anew_open_trajectories_end_truncated():
    first = whole()
    collector = collector_of(first, [Diary(0, [50]), Diary(1, [3, 6])], 6)
    collector.collect(lambda items: len(items["reward"]))
    state = saved(collector)
    state["env"] = {"env": None, "not_exact": "no snapshot"}
    second = whole()
    resumed = collector_of(second, [Diary(2, [9]), Diary(3, [9])], 6)
    resumed.load_state_dict(state)
    resumed.collect(lambda items: len(items["reward"]), n_sample=30)
    zero, one, *new = second.seen
    assert zero["obs"][:, 2].tolist() == list(range(16)) and one["obs"][:, 2].tolist() == list(range(4))
    for data in (zero, one):
        assert data["truncated"].tolist() == [False] * (len(data) - 1) + [True] and not data["terminated"].any()
        assert data["next_obs"][-1].tolist() == [data["obs"][0, 0], data["obs"][0, 1], len(data)]
    assert {int(data["obs"][0, 0]) for data in new} == {2, 3} and all(len(data) == 9 for data in new)


def test_a_state_of_another_number_of_columns_is_named():
    state = collector_of(whole(), diaries())._stream.state_dict()
    with pytest.raises(ValueError, match="the saved run has 3 env columns, this one 1"):
        collector_of(whole(), [Diary(0, [2])])._stream.load_state_dict(state)


# ---------------------------------------------------------------- the learner
def test_windows_of_a_users_policy_come_time_major_to_the_learner():
    class Own(Windows):
        def _forward_learn(self, data):
            self.data = data
            return {"total_loss": 0.0}

    policy = whole(Own, nstep=2)
    replay = Replay(CfgDict(replay_buffer_size=100))
    collector_of(policy, diaries(), 9).collect(replay.push)
    batch = replay.sample(5)
    Learner(policy._cfg.learn.learner, policy.learn_mode).train(batch, 0)
    assert policy.data["obs"].shape == (4, 5, 3) and policy.data["reward"].shape == (4, 5, 2)
    assert policy.data["null"].shape == (4, 5) and policy.data["index"].shape == (5,)
    np.testing.assert_array_equal(policy.data["action"].numpy().T, batch["action"])


READS = {
    "mask": lambda data: data["mask"],
    "null": lambda data: data.get("null"),
    "pop": lambda data: data.pop("mask"),
    "copy": lambda data: ArrayDict(data)["mask"],
    "dict": lambda data: dict(data)["mask"],
    "slice": lambda data: data[1:]["mask"],
    "tree": lambda data: tree_map(torch.clone, data)["mask"],
    "items": lambda data: [value for _, value in data.items()],
    "values": lambda data: list(data.values()),
    "nothing": lambda data: data["reward"],
    "other fields": lambda data: data[1:]["reward"] if "mask" in data else None,
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("lengths", [[4], [4, 3]])
def test_a_loss_that_never_reads_the_mask_of_padded_windows_is_told_once(how, lengths, monkeypatch, caplog):
    class Own(Windows):
        def _forward_learn(self, data):
            READS[how](data)
            return {"total_loss": 0.0}

    monkeypatch.setattr(log, "_warned", set())
    policy = whole(Own)
    replay = Replay(CfgDict(replay_buffer_size=100))
    collector_of(policy, [Diary(0, lengths)], 9).collect(replay.push)
    learner = Learner(policy._cfg.learn.learner, policy.learn_mode)
    for _ in range(3):
        learner.train(replay.ring.gather(np.arange(6)), 0)
    said = [record.getMessage() for record in caplog.records if "neither 'mask' nor 'null'" in record.getMessage()]
    assert len(said) == (how in ("nothing", "other fields") and lengths == [4, 3])
