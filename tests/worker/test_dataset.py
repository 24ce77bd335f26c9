"""Datasets: what is written is read again, what is none is named; the store's epochs, windows and state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import CfgDict
from ding_like.data import ArrayDict, tree_map, tree_paths
from ding_like.worker.replay_buffer import Dataset, load_dataset, save_dataset
from ding_like.worker.replay_buffer.dataset import DatasetError, Episodes


def episodes(lengths=(3, 5, 2), obs=lambda n: n[:, None].astype(np.float32), **header):
    """Steps numbered from 0; an observation and an action are the number."""
    total, starts = sum(lengths), np.cumsum([0, *lengths[:-1]])
    at, ends = np.arange(total), np.cumsum(lengths) - 1
    terminated = np.isin(at, ends)
    steps = ArrayDict(obs=obs(at), action=at, reward=np.ones(total, np.float32), terminated=terminated)
    steps["truncated"] = np.zeros(total, bool)
    return Episodes(steps, starts, obs(-1 - ends), dict(header))


class Mode:
    """As much of a `collect_mode` as a store asks."""

    def __init__(self, norm_obs=False, **attributes):
        self.seen, self._attributes = [], {"norm_obs": norm_obs, **attributes}
        self.observe = self.seen.append

    def get_attribute(self, name):
        if name not in self._attributes:
            raise AttributeError(name)
        return self._attributes[name]


class Spec:
    plain = {"obs": {"shape": [1]}, "action": {"n": 1000}}


def store(path, made=None, seed=0, **attributes):
    if made is not None:
        save_dataset(path, made)
    out = Dataset(CfgDict(path=str(path)), seed)
    out.attach(Mode(**attributes), Spec)
    return out


# ---------------------------------------------------------------- files
def test_any_tree_comes_back_as_it_was(tmp_path):
    def tree(at):
        image = np.random.default_rng(0).integers(0, 255, (len(at), 2, 3), dtype=np.uint8)
        return ArrayDict({"a": ArrayDict({"b": at}), "a.b": (at * 2.0, image), "t": at.astype(np.float32)})

    made = episodes(obs=tree, policy="dqn", seed=3)
    made.steps["logit"] = (np.zeros((10, 2), np.float32), np.ones((10, 3)))
    save_dataset(tmp_path / "new" / "d.npz", made)
    back = load_dataset(tmp_path / "new" / "d.npz")
    for mine, its in ((made.steps, back.steps), (made.finals, back.finals)):
        mine, its = dict(tree_paths(mine)), dict(tree_paths(its))
        assert mine.keys() == its.keys()
        for path, leaf in mine.items():
            assert its[path].dtype == leaf.dtype
            np.testing.assert_array_equal(its[path], leaf)
    assert isinstance(back.steps["obs"]["a.b"], tuple)
    assert (back.header["policy"], back.header["seed"]) == ("dqn", 3)
    np.testing.assert_array_equal(back.starts, [0, 3, 8])
    np.testing.assert_array_equal(back.ends, [3, 8, 10])
    np.testing.assert_array_equal(back.returns, [3, 5, 2])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["d.npz"]


def bytes_of(path, made=None):
    save_dataset(path, made or episodes())
    return path.read_bytes()


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes(255 - x for x in data[middle : middle + 40]) + data[middle + 40 :]


@pytest.mark.parametrize(
    "spoil",
    [lambda d: b"", lambda d: b"hello", lambda d: d[: len(d) // 2], flipped],
    ids=["empty", "text", "cut", "bits"],
)
def test_a_damaged_file_is_named_with_what_was_wanted(tmp_path, spoil):
    path = tmp_path / "d.npz"
    path.write_bytes(spoil(bytes_of(path)))
    with pytest.raises(
        DatasetError, match=r"d\.npz is no dataset, or a damaged one .*wanted a file that `ding -m collect`"
    ):
        load_dataset(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.arange(3)},
        {"header": np.array("[1]")},
        {"header": np.array('{"format": "another"}')},
        {"header": np.array([{"format": "ding_like dataset"}], object)},
    ],
    ids=["no header", "no dictionary", "another format", "a pickle"],
)
def test_another_npz_is_no_dataset(tmp_path, arrays):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match="is no dataset"):
        load_dataset(tmp_path / "d.npz")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(DatasetError, match="does not exist"):
        load_dataset(tmp_path / "d.npz")
    with pytest.raises(DatasetError, match=r"policy\.other\.replay_buffer\.path is None; wanted the dataset"):
        Dataset(CfgDict(path=None))


def without(name):
    def spoil(made):
        del made.steps[name]

    return spoil


def with_field(name, value):
    def spoil(made):
        made.steps[name] = value

    return spoil


def with_starts(starts):
    def spoil(made):
        made.starts = np.array(starts)
        made.finals = made.finals[: len(starts)]

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("action"), "lacks action"),
        (with_field("action", np.arange(9)), "action has not the 10 steps"),
        (with_field("logit", np.array(1.0)), "logit has not the 10 steps"),
        (with_field("logit", np.array([None] * 10)), "cannot be written"),
        (with_starts([1, 3]), "first steps ascending from 0"),
        (with_starts([0, 3, 3]), "first steps ascending from 0"),
        (with_starts([]), "wanted one episode or more"),
        (lambda made: setattr(made, "finals", made.finals[:2]), "one final observation for each of its 3"),
    ],
)
def test_what_makes_no_dataset_is_not_written(tmp_path, spoil, said):
    made = episodes()
    spoil(made)
    with pytest.raises(DatasetError, match=said):
        save_dataset(tmp_path / "d.npz", made)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the store
def test_an_epoch_has_each_step_once_whatever_the_rounds(tmp_path):
    one = store(tmp_path / "d.npz", episodes())
    batches = [batch for updates in (1, 2, 4, 2) for batch in one.batches(updates, 4)]  # 9 of them, 3 an epoch
    orders = [np.concatenate([b["action"] for b in batches[i : i + 3]]).tolist() for i in (0, 3, 6)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert orders[0] != orders[1] != orders[2]
    for batch in batches:
        assert len(batch["action"]) in (3, 4) and set(batch) == {"obs", "action"}
        np.testing.assert_array_equal(batch["obs"][:, 0], batch["action"])


@pytest.mark.parametrize("taken", [0, 2, 3, 7])
def test_what_follows_a_state_is_what_would_have_followed(tmp_path, taken):
    one = store(tmp_path / "d.npz", episodes(), seed=5)
    list(one.batches(taken, 4))
    state = one.state_dict()
    wanted = [b["action"].tolist() for b in one.batches(8, 4)]
    other = store(tmp_path / "d.npz", seed=9)
    other.load_state_dict(state)
    assert [b["action"].tolist() for b in other.batches(8, 4)] == wanted


def test_the_state_of_another_dataset_is_refused(tmp_path):
    state = store(tmp_path / "d.npz", episodes()).state_dict()
    with pytest.raises(ValueError, match=r"another one than it was: it had 10 items"):
        store(tmp_path / "d.npz", episodes((4,))).load_state_dict(state)
    other = {**state, "actions": state["actions"] + 1}
    with pytest.raises(ValueError, match="another one than it was"):
        store(tmp_path / "d.npz", episodes()).load_state_dict(other)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    length=st.integers(2, 6),
    burnin=st.integers(0, 4),
)
def test_windows_train_every_step_and_stay_in_their_episode(tmp_path_factory, lengths, length, burnin):
    path = tmp_path_factory.mktemp("windows") / "d.npz"
    one = store(path, episodes(lengths), sample_len=length, burnin=burnin)
    batch = next(iter(one.batches(1, 10_000)))
    at, mask, cut = batch["action"], batch["mask"] > 0, batch["cut"] > 0  # [N, U]
    assert at.shape == (one.count, burnin + length)
    np.testing.assert_array_equal(batch["obs"][..., 0], at)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    assert set(at[mask]) == set(range(sum(lengths)))
    assert not mask[:, :burnin].any()
    for row, real, goes_on in zip(at, mask, cut):
        assert len(set(owner[row])) == 1
        first = int(np.flatnonzero(real)[0])
        assert (np.diff(row[real]) == 1).all() and (np.diff(np.flatnonzero(real)) == 1).all()
        begins = np.flatnonzero(
            ~goes_on
        )  # the state starts anew after these slots: where an episode's first step follows
        start = sum(lengths[: owner[row[0]]])
        missing = burnin - (row[first] - start)  # slots in front of the episode
        assert begins.tolist() == ([missing - 1] if missing > 0 else [])


def test_another_env_is_named(tmp_path):
    same = {"interface": {"obs": {"shape": [1]}, "action": {"n": 1000}}, "env": "Toy-v0"}
    store(tmp_path / "d.npz", episodes(**same))
    other = {**same, "interface": {**same["interface"], "action": {"n": 3}}}
    with pytest.raises(DatasetError, match=r"of env 'Toy-v0', whose action is \{'n': 3\}; this run's is \{'n': 1000\}"):
        store(tmp_path / "d.npz", episodes(**other))


@pytest.mark.parametrize("action", [lambda a: a - 1, lambda a: a + 995, lambda a: a + 0.5])
def test_actions_that_the_env_has_not_are_named(tmp_path, action):
    made = episodes()
    made.steps["action"] = action(made.steps["action"])
    with pytest.raises(
        DatasetError, match=r"d\.npz: action holds .*; wanted whole numbers that count from 0, below 1000"
    ):
        store(tmp_path / "d.npz", made)


def test_a_normaliser_sees_all_observations(tmp_path):
    save_dataset(tmp_path / "d.npz", episodes())
    one, mode = Dataset(CfgDict(path=tmp_path / "d.npz")), Mode(norm_obs=True)
    one.attach(mode, Spec)
    (seen,) = mode.seen
    np.testing.assert_array_equal(tree_map(np.asarray, seen)[:, 0], np.arange(10))
