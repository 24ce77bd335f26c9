"""The replay store: uniform drawing, its forms of input, exact state."""

import numpy as np
import pytest
import torch

from ding_like.config import CfgDict
from ding_like.utils import BUFFER_REGISTRY
from ding_like.worker import Replay
from tests.helpers import Steps, chi_limit, chi_square, fingerprint, make_policy


def store(size=20, seed=0):
    return Replay(CfgDict(replay_buffer_size=size), seed)


def filled(rows=10, columns=2, nstep=3, size=20, seed=0):
    made, policy = store(size, seed), make_policy(nstep=nstep, fields=["collect"])
    flags = np.random.default_rng(0).choice([0, 0, 0, 1, 2], (rows + nstep - 1, columns))
    for block in Steps(flags).blocks([1] * rows, nstep):
        made.push(policy._get_train_sample(block))
    return made


def test_ding_engines_names_mean_this_store():
    assert {BUFFER_REGISTRY.get(name) for name in ("replay", "naive", "deque", "advanced")} == {Replay}


@pytest.mark.parametrize("rows", [7, 10, 13, 25])
def test_drawing_is_uniform_over_the_valid_items_and_nothing_else(rows):
    replay = filled(rows)
    batch = replay.sample(20000)
    valid = 1000 * np.arange(2)[:, None] + np.arange(max(0, rows - 10), rows)
    drawn, counts = np.unique(batch["obs"][:, 0].astype(int), return_counts=True)
    assert drawn.tolist() == sorted(valid.ravel().tolist())
    assert chi_square(counts, np.full(valid.size, 20000 / valid.size)) < chi_limit(valid.size)


@pytest.mark.parametrize("rows", [7, 13, 25, 60])
def test_index_is_the_serial_number_of_each_item(rows):
    replay = filled(rows)
    batch = replay.sample(50)
    assert batch["obs"][:, 0].tolist() == (batch["index"] // 2 + batch["index"] % 2 * 1000).tolist()
    again = replay.ring.gather(batch["index"])
    for name in again:
        np.testing.assert_array_equal(batch[name], again[name])


def test_batches_are_copies():
    replay = filled()
    index = np.arange(5)
    before = fingerprint(replay.ring.gather(index))
    batch = replay.ring.gather(index)
    for field in batch.values():
        field[:] = 0
    assert fingerprint(replay.ring.gather(index)) == before


def test_ready_count_and_empty_store():
    replay = store()
    assert replay.count == 0 and not replay.ready(1)
    with pytest.raises(ValueError, match="replay buffer is empty"):
        replay.sample(1)
    assert replay.push([]) == 0
    replay.push({"obs": np.zeros((3, 2))})
    assert replay.count == 3 and replay.ready(3) and not replay.ready(4)


def test_list_of_dicts_and_flat_tree_give_the_same_items():
    rows = [
        {"obs": np.float32([i, i]), "action": i, "reward": torch.tensor([0.5 * i]), "done": i == 2} for i in range(4)
    ]
    a, b = store(), store()
    assert a.push(rows) == 4
    tree = dict(
        obs=np.float32([[i, i] for i in range(4)]),
        action=np.arange(4),
        reward=np.float32([0, 0.5, 1, 1.5]),
        done=np.arange(4) == 2,
    )
    assert b.push(tree) == 4
    first, second = a.ring.gather(np.arange(4)), b.ring.gather(np.arange(4))
    assert fingerprint(dict(first)) == fingerprint(dict(second))


def test_priorities_mean_nothing_where_drawing_is_uniform():
    a, b = filled(), filled()
    a.update(a.sample(5)["index"], np.full(5, np.nan))
    b.sample(5)
    assert "weight" not in a.sample(1) and b.sample(1)["index"].shape == (1,)
    assert fingerprint(a.state_dict()) == fingerprint(b.state_dict())


def test_seeds_draw_differently_and_the_state_is_whole():
    a = filled()
    a.sample(5)
    b, c = store(), filled(seed=1)
    b.load_state_dict(a.state_dict())
    batch = a.sample(30)
    assert fingerprint(dict(batch)) == fingerprint(dict(b.sample(30)))
    c.sample(5)
    assert batch["index"].tolist() != c.sample(30)["index"].tolist()
    for replay in (a, b):
        replay.push(
            make_policy(nstep=3, fields=["collect"])._get_train_sample(next(Steps(np.zeros((5, 2))).blocks([3], 3)))
        )
    assert fingerprint(dict(a.sample(30))) == fingerprint(dict(b.sample(30)))
