"""Generalised advantages against the sum that defines them, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.rl_utils import gae, gae_data, get_gae, get_gae_with_default_last_value, scan
from ding_like.rl_utils.adder import make_masks
from ding_like.rl_utils.gae import gae_advantage
from tests.rl_utils.blocks import each_row, random_block, sizes


def direct_gae(block, lam):
    """Sum over k of (lambda^k times the discounts so far) times delta."""

    def one(column, t, stop):
        total = 0.0
        for i in range(t, stop):
            delta = column["reward"][i] + column["discount"][i] * column["next_value"][i] - column["value"][i]
            total += lam ** (i - t) * np.prod(column["discount"][t:i]) * delta
        return total

    return each_row(block, one)


def advantages(reward, terminated, truncated, value, next_value, gamma, lam):
    data = {"reward": np.array(reward, float), "terminated": np.array(terminated, bool)}
    data["done"] = data["terminated"] | np.array(truncated, bool)
    return gae_advantage(
        data["reward"], *make_masks(data, gamma), np.array(value, float), np.array(next_value, float), lam
    )


@given(sizes, st.floats(0, 1))
def test_equals_the_direct_sum(size, lam):
    block = random_block(*size)
    np.testing.assert_allclose(gae_advantage(**block, lambda_=lam), direct_gae(block, lam), atol=1e-12)


@given(sizes, st.integers(1, 11))
def test_a_cut_splits_a_block_in_two(size, at):
    block = random_block(*size)
    block["cut"][min(at, size[0]) - 1] = 0
    halves = [{k: v[part] for k, v in block.items()} for part in (slice(at), slice(at, None))]
    apart = np.concatenate([gae_advantage(**half) for half in halves])
    np.testing.assert_array_equal(gae_advantage(**block), apart)


@given(sizes)
def test_columns_do_not_touch(size):
    block = random_block(*size)
    alone = [gae_advantage(**{k: v[:, b] for k, v in block.items()}) for b in range(size[1])]
    np.testing.assert_array_equal(gae_advantage(**block), np.stack(alone, 1))


def test_a_terminal_step_has_no_future():
    """Case B04."""
    adv = advantages([1, 1, 1], [0, 0, 1], [0, 0, 0], [2, 2, 2], [2, 2, 2], 0.99, 0.95)
    np.testing.assert_allclose(adv, [1.01715, 0.0395, -1.0], atol=1e-6)


@pytest.mark.parametrize("x", [0.3, -1e6, 1e6])
def test_two_episodes_back_to_back_are_two_episodes(x):
    """Case B05."""
    adv = advantages([1, 2, 3, 4], [0, 1, 0, 0], [0] * 4, [0.1, 0.2, 0.3, 0.4], [0.2, x, 0.4, 0.5], 0.9, 0.8)
    np.testing.assert_allclose(adv, [2.376, 1.8, 5.976, 4.05], atol=1e-10)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_a_time_out_in_one_column_leaves_the_other_alone(lam):
    """Case B08: V is 10, gamma 0.9, reward 1; only column 0 is truncated, at step 1: both targets are 10."""
    tens = np.full((4, 2), 10.0)
    truncated = [[0, 0], [1, 0], [0, 0], [0, 0]]
    adv = advantages(np.ones((4, 2)), np.zeros((4, 2)), truncated, tens, tens, 0.9, lam)
    np.testing.assert_allclose(adv, 0, atol=1e-12)


def test_terminated_wins_over_truncated():
    """Case B09: r = 1, V(final) = 10, both flags set: the target is 1; truncated alone bootstraps."""
    zero = np.zeros(1)
    assert advantages([1], [1], [1], zero, [10], 0.9, 0.95).item() == 1
    assert advantages([1], [0], [1], zero, [10], 0.9, 0.95).item() == 10


def test_torch_gives_torch_and_keeps_the_rewards_dtype():
    block = {k: torch.from_numpy(v.astype(np.float32)) for k, v in random_block(9, 3, 1).items()}
    out = gae_advantage(**block)
    assert out.dtype == torch.float32 and not out.requires_grad
    np.testing.assert_array_equal(out.numpy(), gae_advantage(**{k: v.numpy() for k, v in block.items()}))
    mixed = gae_advantage(**{**block, "value": block["value"].double().requires_grad_()})
    assert mixed.dtype == torch.float32
    assert gae_advantage(np.array([1, 2]), *np.ones((4, 2))).dtype == np.float32  # integer rewards


def test_inputs_stay_and_their_memory_order_does_not_matter():
    block = random_block(7, 4, 3)
    before = {k: v.copy() for k, v in block.items()}
    out = gae_advantage(**{k: np.asfortranarray(v) for k, v in block.items()})
    np.testing.assert_array_equal(out, gae_advantage(**block))
    for name, array in before.items():
        np.testing.assert_array_equal(block[name], array)


def test_a_shape_that_would_broadcast_is_refused_by_name():
    block = random_block(5, 2, 0)
    with pytest.raises(ValueError, match=r"next_value has shape \(5, 1\).*\(5, 2\)"):
        gae_advantage(**{**block, "next_value": block["next_value"][:, :1]})
    with pytest.raises(ValueError, match=r"mask has shape \(5,\)"):
        gae_advantage(**{**block, "mask": np.ones(5)})
    with pytest.raises(ValueError, match="time as its first axis"):
        gae_advantage(*[np.float32(1)] * 5)


@pytest.mark.parametrize("rows", [0, 1])
def test_the_shortest_blocks(rows):
    out = gae_advantage(*np.ones((4, rows, 3)), np.full((rows, 3), 5.0))
    np.testing.assert_array_equal(out, np.full((rows, 3), 5.0))


# ---------------------------------------------------------------- the compiled scan
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numba_gives_the_same_bits(monkeypatch, dtype):
    pytest.importorskip("numba")
    block = {k: v.astype(dtype) for k, v in random_block(50, 17, 5).items()}
    monkeypatch.setattr(scan, "_scan", scan.numpy_scan)
    plain = gae_advantage(**block)
    assert scan.load_numba() and scan._scan is not scan.numpy_scan
    np.testing.assert_array_equal(gae_advantage(**block), plain)


def test_numba_comes_after_many_rows_and_is_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(scan, "_scan", scan.numpy_scan)
    monkeypatch.setattr(scan, "_rows_left", 20)
    monkeypatch.setattr(scan, "load_numba", lambda: asked.append(1))
    for _ in range(3):
        gae_advantage(**random_block(9, 2, 0))
    assert len(asked) == 1
    gae_advantage(**random_block(9, 2, 0))
    assert len(asked) == 1


def test_without_numba_the_loop_goes_on(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    monkeypatch.setattr(scan, "_scan", scan.numpy_scan)
    assert not scan.load_numba() and scan._scan is scan.numpy_scan


def test_numba_without_a_cache_directory_compiles_in_memory(monkeypatch):
    numba = pytest.importorskip("numba")

    def no_cache(function=None, cache=False):
        if cache:
            raise RuntimeError("no locator available")
        return function

    monkeypatch.setattr(numba, "njit", no_cache)
    monkeypatch.setattr(scan, "_scan", scan.numpy_scan)
    assert scan.load_numba() and scan._scan is scan._loops


# ---------------------------------------------------------------- DI-engine's calling forms
def test_gae_takes_done_for_no_bootstrap_and_traj_flag_for_an_end():
    block = random_block(8, 3, 2, masked=False)
    tensors = {k: torch.from_numpy(v) for k, v in block.items()}
    done, flag = (tensors["discount"] == 0), 1 - tensors["cut"]
    next_value = tensors["next_value"].clone()
    data = gae_data(tensors["value"], next_value, tensors["reward"], done, flag)
    np.testing.assert_allclose(gae(data, 0.9, 0.8).numpy(), direct_gae(block, 0.8), atol=1e-12)
    assert torch.equal(next_value, tensors["next_value"])
    without_flag = gae(data._replace(traj_flag=None), 0.9, 0.8)
    np.testing.assert_array_equal(without_flag.numpy(), gae(data._replace(traj_flag=done.double()), 0.9, 0.8).numpy())
    agents = data._replace(
        value=data.value[..., None].repeat(1, 1, 2), next_value=next_value[..., None].repeat(1, 1, 2)
    )
    np.testing.assert_array_equal(gae(agents, 0.9, 0.8)[..., 1].numpy(), gae(data, 0.9, 0.8).numpy())


def steps(value=(2.0, 2.0, 2.0), **last):
    made = [{"value": torch.tensor([v]), "reward": torch.tensor([1.0]), "done": False} for v in value]
    made[-1] |= last
    return made


def adv(out):
    return torch.cat([step["adv"] for step in out]).tolist()


def test_get_gae_of_a_list():
    data = steps(done=True)
    out = get_gae(data, torch.tensor([2.0]), 0.99, 0.95, False)
    assert adv(out) == pytest.approx([1.01715, 0.0395, -1.0])  # B04's numbers: nothing after a terminal step
    assert "adv" not in data[0] and out[0]["adv"].shape == (1,)
    truncated = steps(done=True, truncated=True, terminated=False)
    assert adv(get_gae(truncated, torch.tensor(2.0), 0.99, 0.95, False))[-1] == pytest.approx(0.98)
    assert adv(get_gae(steps(), torch.tensor(0.0), 0.99, 0.95, False))[-1] == -1
    assert get_gae([], torch.zeros(1), 0.99, 0.95, False) == []


def test_get_gae_refuses_two_trajectories():
    with pytest.raises(ValueError, match="one trajectory"):
        get_gae(steps(done=True) + steps(), torch.zeros(1), 0.99, 0.95, False)


def test_the_default_last_value_is_zero_or_the_last_steps_own():
    ended = get_gae_with_default_last_value(steps(done=True), True, 0.99, 0.95, False)
    assert adv(ended) == pytest.approx([1.01715, 0.0395, -1.0])
    for data, done in ((steps(), False), (steps(done=True, truncated=True), True)):
        out = get_gae_with_default_last_value(data, done, 0.99, 0.95, False)
        assert len(out) == 2 and len(data) == 3
        assert adv(out) == pytest.approx([0.98 * (1 + 0.99 * 0.95), 0.98])
    assert get_gae_with_default_last_value([], False, 0.99, 0.95, False) == []
