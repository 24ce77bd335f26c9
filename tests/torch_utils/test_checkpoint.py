"""Checkpoints: written whole or not at all; every way of not fitting is named."""

import pytest
import torch
from torch import nn

from ding_like.torch_utils.checkpoint import CheckpointError, load_checkpoint, load_model_state, save_checkpoint

COUNTERS = {"train_iter": 3, "envstep": 40}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.pth.tar"


def state():
    return {"model": nn.Linear(2, 3).state_dict(), "optimizer": {"lr": 0.1}}


def test_round_trip_in_plain_types(path):
    wanted = state()
    save_checkpoint(path, "dqn", wanted, COUNTERS)
    content = load_checkpoint(path, "dqn")
    assert content["counters"] == COUNTERS and content["policy"] == "dqn"
    assert content["state"]["optimizer"] == {"lr": 0.1}
    torch.testing.assert_close(content["state"]["model"], wanted["model"])
    assert torch.load(path, weights_only=True)["counters"] == COUNTERS
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_written(path, bad):
    save_checkpoint(path, "dqn", state(), COUNTERS)
    before = path.read_bytes()
    broken = state()
    broken["model"]["bias"][1] = bad
    with pytest.raises(CheckpointError, match="is not written: the model holds weights that are not finite"):
        save_checkpoint(path, "dqn", broken, COUNTERS)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_checkpoint_of_before(path, monkeypatch):
    save_checkpoint(path, "dqn", state(), COUNTERS)
    before = path.read_bytes()

    def full(content, where):
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left.*of before are untouched"):
        save_checkpoint(path, "dqn", state(), COUNTERS)
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == [path.name]


def test_missing_file_is_named(path):
    with pytest.raises(CheckpointError, match=r"a\.pth\.tar does not exist"):
        load_checkpoint(path)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_truncated_file_is_damaged(path, keep):
    save_checkpoint(path, "dqn", state(), COUNTERS)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else keep])
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        load_checkpoint(path)


def test_text_file_is_no_checkpoint(path):
    path.write_text("hello, this is a text file")
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", [{"model": {}}, [1, 2], torch.zeros(2), {"format": "other"}])
def test_foreign_torch_file_is_refused(path, content):
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="was not written by ding_like"):
        load_checkpoint(path)


def test_file_with_pickled_code_is_refused_without_running_it(path):
    torch.save({"format": "ding_like checkpoint", "state": nn.Linear(1, 1)}, path)
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        load_checkpoint(path)


def test_checkpoint_of_another_policy_is_named(path):
    save_checkpoint(path, "dqn", state(), COUNTERS)
    with pytest.raises(CheckpointError, match=r"is of policy 'dqn', the config's policy.type is 'c51'"):
        load_checkpoint(path, "c51")


def test_state_of_another_network_names_every_difference_and_loads_nothing():
    model, other = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))
    before = model.weight.detach().clone()
    with pytest.raises(CheckpointError, match=r"weight is missing; bias is missing; 0.weight is not in this model"):
        load_model_state(model, other.state_dict(), "x.tar")
    wrong = {**nn.Linear(2, 3).state_dict(), "bias": torch.zeros(4)}
    with pytest.raises(CheckpointError, match=r"bias has shape \[4\], this model wants \[3\]"):
        load_model_state(model, wrong, "x.tar")
    torch.testing.assert_close(model.weight, before, rtol=0, atol=0)
    good = nn.Linear(2, 3).state_dict()
    load_model_state(model, good, "x.tar")
    torch.testing.assert_close(model.state_dict(), good)
