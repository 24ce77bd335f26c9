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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(policy=3), "its 'policy' is 3, wanted a policy's name"),
        (dict(counters=[1]), r"its 'counters' is \[1\], wanted whole numbers"),
        (dict(counters={"train_iter": "x"}), "its 'counters' is"),
        (dict(state=[]), "its 'state' is a list, wanted a dict"),
        (dict(state={}), "its state's 'model' is a NoneType, wanted tensors by name"),
        (dict(state={"model": {1: 2}}), "its state's 'model' is a dict, wanted tensors by name"),
    ],
)
@pytest.mark.parametrize("wanted", ["dqn", None])
def test_a_part_that_is_missing_or_odd_is_named(path, change, says, wanted):
    good = dict(format="ding_like checkpoint", policy="dqn", counters=COUNTERS, state=state())
    torch.save({**good, **change}, path)
    with pytest.raises(CheckpointError, match=says):
        load_checkpoint(path, wanted)
    torch.save({"format": "ding_like checkpoint"}, path)
    with pytest.raises(CheckpointError, match="is not complete"):
        load_checkpoint(path, wanted)


@pytest.mark.parametrize(
    ("bias", "says"),
    [
        (3, "bias is a int, wanted a tensor"),
        (torch.zeros(3, dtype=torch.int64), "bias is of torch.int64, .*; this model wants torch.float32"),
        (torch.zeros(3, dtype=torch.complex64), "bias is of torch.complex64"),
        (torch.zeros(3).to_sparse(), "torch.sparse_coo"),
        (torch.tensor([0.0, float("nan"), 0.0]), "holds numbers that are not finite, in bias"),
    ],
)
def test_a_tensor_of_another_kind_or_not_finite_is_named_and_nothing_is_loaded(bias, says):
    model = nn.Linear(2, 3)
    before = model.weight.detach().clone()
    with pytest.raises(CheckpointError, match=says):
        load_model_state(model, {**nn.Linear(2, 3).state_dict(), "bias": bias}, "x.tar")
    assert torch.equal(model.weight, before)


def test_double_weights_load_into_a_float_model():
    model = nn.Linear(2, 3)
    load_model_state(model, nn.Linear(2, 3).double().state_dict(), "x.tar")
    assert model.weight.dtype == torch.float32


def test_the_refusal_of_foreign_objects_advises_no_unsafe_way(path):
    torch.save({"format": "ding_like checkpoint", "state": nn.Linear(1, 1)}, path)
    with pytest.raises(CheckpointError, match="other objects than tensors and plain types") as caught:
        load_checkpoint(path)
    assert "weights_only" not in str(caught.value)


def test_an_interrupt_while_writing_leaves_no_part(path, monkeypatch):
    def interrupted(content, where):
        where.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, "dqn", state(), COUNTERS)
    assert list(path.parent.iterdir()) == []


def test_a_recipe_is_kept_and_a_file_may_lack_it(path):
    recipe = {"policy": "dqn", "config": {"a": [1.5, None]}}
    save_checkpoint(path, "dqn", state(), COUNTERS, recipe)
    assert load_checkpoint(path)["recipe"] == recipe
    save_checkpoint(path, "dqn", state(), COUNTERS)
    assert "recipe" not in load_checkpoint(path)
    torch.save(dict(format="ding_like checkpoint", policy="dqn", counters=COUNTERS, state=state(), recipe=3), path)
    with pytest.raises(CheckpointError, match="its 'recipe' is 3, wanted a dict"):
        load_checkpoint(path)


def test_every_truncation_is_named(path):
    save_checkpoint(path, "dqn", state(), COUNTERS)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 29), *range(len(whole) - 30, len(whole))]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path, "dqn")


def test_a_flipped_bit_is_named_or_changes_nothing(path):
    """Also in the directory of the archive, whose parts then are folders, or compressed, or elsewhere."""
    wanted = state()
    save_checkpoint(path, "dqn", wanted, COUNTERS)
    whole, named = path.read_bytes(), 0
    directory = whole.index(b"PK\x01\x02")
    flips = [(at, at % 8) for at in range(0, len(whole), 17)]
    flips += [(at, bit) for at in range(directory, directory + 60) for bit in (0, 3, 4)]
    for at, bit in flips:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            content = load_checkpoint(path, "dqn")
        except CheckpointError:
            named += 1
            continue
        assert content["counters"] == COUNTERS and content["state"]["optimizer"] == {"lr": 0.1}
        torch.testing.assert_close(content["state"]["model"], wanted["model"], rtol=0, atol=0)
    assert named > len(flips) / 3
