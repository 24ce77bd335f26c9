"""n-step returns and masks against a float64 sum written out step by step."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block, RowLink, tree_index, tree_map
from ding_like.rl_utils.adder import get_nstep_return_data, make_masks

GAMMA = 0.9


def rows(terminated, truncated=None, reward=None) -> ArrayDict:
    """Rows `[T, B]` or `[L]` whose observation is 10 * row + column and whose next observation adds 0.5."""
    terminated = np.asarray(terminated, bool)
    truncated = np.zeros_like(terminated) if truncated is None else np.asarray(truncated, bool)
    number = 10.0 * np.arange(len(terminated)).reshape((-1,) + (1,) * (terminated.ndim - 1))
    obs = number + (np.arange(terminated.shape[1]) if terminated.ndim == 2 else 0)
    return ArrayDict(
        obs={"x": obs},
        next_obs={"x": obs + 0.5},
        action=np.arange(terminated.size).reshape(terminated.shape),
        reward=np.ones(terminated.shape) if reward is None else np.asarray(reward),
        done=terminated | truncated,
        terminated=terminated,
        truncated=truncated,
    )


def expected(data: ArrayDict, t: int, b: int, n: int, gamma: float):
    """Rewards, distance, bootstrap observation and flags of the return that starts at row t of column b."""
    rewards = []
    while True:
        rewards.append(float(data["reward"][t, b]))
        last = t
        t += 1
        if data["done"][last, b] or len(rewards) == n or t == len(data["reward"]):
            break
    flags = {k: bool(data[k][last, b]) for k in ("terminated", "truncated")}
    total = sum(r * gamma**i for i, r in enumerate(rewards))
    return rewards, total, len(rewards), data["next_obs"]["x"][last, b], flags


@st.composite
def flag_blocks(draw):
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 3)))
    size = shape[0] * shape[1]
    bits = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=size, max_size=size)
    reward = draw(st.lists(st.floats(-5, 5, width=32), min_size=size, max_size=size))
    return rows(
        np.reshape(draw(bits), shape),
        np.reshape(draw(bits), shape),
        np.reshape(reward, shape).astype(np.float64),
    )


@settings(max_examples=150, deadline=None)
@given(flag_blocks(), st.integers(1, 6))
def test_every_row_equals_the_sum_written_out(data, n):
    summed = get_nstep_return_data(data, n, cum_reward=True, gamma=GAMMA)
    stacked = get_nstep_return_data(data, n, gamma=GAMMA)
    for t, b in np.ndindex(data["reward"].shape):
        rewards, total, k, next_obs, flags = expected(data, t, b, n, GAMMA)
        assert summed["reward"][t, b] == pytest.approx(total, abs=1e-12)
        padded = rewards + [0.0] * (n - k)
        np.testing.assert_array_equal(np.atleast_1d(stacked["reward"][t, b]), padded)
        for out in (summed, stacked):
            assert out["value_gamma"][t, b] == pytest.approx(GAMMA**k, abs=1e-12)
            assert out["next_obs"]["x"][t, b] == next_obs
            assert out["done"][t, b] == flags["terminated"]
            assert {k: bool(out[k][t, b]) for k in flags} == flags
            assert out["obs"]["x"][t, b] == data["obs"]["x"][t, b]


@settings(max_examples=60, deadline=None)
@given(flag_blocks(), st.integers(1, 6), st.data())
def test_a_cut_inside_equals_both_halves_apart(data, n, draw):
    cut = draw.draw(st.integers(1, len(data["reward"])))
    data["truncated"][cut - 1], data["done"][cut - 1] = True, True
    whole = get_nstep_return_data(data, n, cum_reward=True, gamma=GAMMA)
    for part in (slice(0, cut), slice(cut, None)):
        if len(data["reward"][part]):
            half = get_nstep_return_data(data[part], n, cum_reward=True, gamma=GAMMA)
            for name in ("reward", "value_gamma", "done", "terminated", "truncated"):
                np.testing.assert_array_equal(half[name], whole[name][part], err_msg=name)
            np.testing.assert_array_equal(half["next_obs"]["x"], whole["next_obs"]["x"][part])


def linked(data: ArrayDict, starts: int) -> Block:
    """The same rows as a collector's block: observations once, final ones on the side."""
    length, columns = data["reward"].shape
    obs = np.concatenate([data["obs"]["x"], data["next_obs"]["x"][-1:]])
    for t, b in np.ndindex(length, columns):
        if not data["done"][t, b]:
            data["next_obs"]["x"][t, b] = obs[t + 1, b]
    ends = np.flatnonzero(data["done"])
    finals = {"x": data["next_obs"]["x"].reshape(-1)[ends]}
    fields = {k: v for k, v in dict.items(data) if k != "next_obs"}
    return Block(fields, starts, RowLink({"x": obs}, ends, finals, columns))


@settings(max_examples=80, deadline=None)
@given(flag_blocks(), st.integers(1, 6), st.booleans(), st.data())
def test_block_equals_plain_rows_and_stores_no_next_obs(data, n, cum_reward, draw):
    starts = draw.draw(st.integers(1, len(data["reward"])))
    block = linked(data, starts)
    plain = get_nstep_return_data(data, n, cum_reward, gamma=GAMMA)
    out = get_nstep_return_data(block, n, cum_reward, gamma=GAMMA)
    assert isinstance(out, Block) and out.starts == starts == len(out["reward"])
    assert "next_obs" not in dict.keys(out) and out.link.rows is block.link.rows
    for name in ("obs", "next_obs", "action", "reward", "value_gamma", "done", "terminated", "truncated"):
        tree_map(np.testing.assert_array_equal, out[name], tree_index(plain[name], slice(starts)))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("link", [False, True])
def test_block_with_a_next_obs_field_of_its_own_keeps_that(n, link):
    data = rows([[0], [1], [0], [0]])
    elsewhere = RowLink({"x": np.zeros((5, 1))}, np.array([1]), [{"x": np.zeros(())}], 1) if link else None
    out = get_nstep_return_data(Block(dict.items(data), 2, elsewhere), n, cum_reward=True, gamma=GAMMA)
    plain = get_nstep_return_data(data, n, cum_reward=True, gamma=GAMMA)
    assert isinstance(out, Block) and out.starts == 2
    for name in ("reward", "value_gamma", "done"):
        np.testing.assert_array_equal(out[name], plain[name][:2])
    np.testing.assert_array_equal(out["next_obs"]["x"], plain["next_obs"]["x"][:2])


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_successive_blocks_with_carry_start_every_row_once(n):
    rng = np.random.default_rng(n)
    data = rows(rng.random((40, 2)) < 0.15, rng.random((40, 2)) < 0.1, rng.normal(size=(40, 2)))
    whole = get_nstep_return_data(linked(data, 40), n, cum_reward=True, gamma=GAMMA)
    carry, fresh, first, seen = n - 1, 5, 0, []
    while first + fresh + carry <= 40:
        part = data[first : first + fresh + carry]
        out = get_nstep_return_data(linked(part, fresh), n, cum_reward=True, gamma=GAMMA)
        seen.append(out["action"])
        for name in ("reward", "value_gamma", "done"):
            np.testing.assert_array_equal(out[name], whole[name][first : first + fresh])
        np.testing.assert_array_equal(out["next_obs"]["x"], whole["next_obs"]["x"][first : first + fresh])
        first += fresh
    np.testing.assert_array_equal(np.concatenate(seen), data["action"][:first])


def test_the_bootstrap_of_a_whole_window_is_discounted_n_times():
    """B12: 1 + .9 + .81 + .729 * 20 = 17.29."""
    out = get_nstep_return_data(rows([0] * 6), 3, cum_reward=True, gamma=GAMMA)
    target = out["reward"] + out["value_gamma"] * 20 * (1 - out["done"])
    np.testing.assert_allclose(target, [17.29] * 4 + [18.1, 19.0])


@pytest.mark.parametrize("terminal, target", [(False, [17.29, 18.1, 19.0]), (True, [2.71, 1.9, 1.0])])
def test_tail_of_a_short_trajectory(terminal, target):
    """B13: the last three of five steps, unfinished and terminated."""
    out = get_nstep_return_data(rows([0, 0, 0, 0, terminal]), 3, cum_reward=True, gamma=GAMMA)
    np.testing.assert_allclose((out["reward"] + out["value_gamma"] * 20 * (1 - out["done"]))[2:], target)


@pytest.mark.parametrize("kind", [list, deque, "array", "torch"])
@pytest.mark.parametrize("terminal", [True, False])
def test_last_steps_of_an_episode_stay_and_keep_their_flag(kind, terminal):
    """B14: a 4-step episode, terminated or truncated."""
    flags = [False, False, False, True]
    data = rows(flags if terminal else [False] * 4, [False] * 4 if terminal else flags)
    if kind == "array":
        out = get_nstep_return_data(data, 3, cum_reward=True, gamma=GAMMA)
    elif kind == "torch":
        out = get_nstep_return_data(tree_map(torch.from_numpy, data), 3, cum_reward=True, gamma=GAMMA)
        assert all(isinstance(out[k], torch.Tensor) for k in ("reward", "value_gamma", "done", "cut"))
    else:
        steps = kind({k: tree_index(v, t) for k, v in dict.items(data)} for t in range(4))
        out = get_nstep_return_data(steps, 3, cum_reward=True, gamma=GAMMA)
        assert [s["next_obs"]["x"] for s in out] == [20.5, 30.5, 30.5, 30.5]
        out = {k: np.array([s[k] for s in out]) for k in ("reward", "value_gamma", "done")}
    np.testing.assert_allclose(out["reward"], [2.71, 2.71, 1.9, 1.0])
    np.testing.assert_allclose(out["value_gamma"], [0.729, 0.729, 0.81, 0.9])
    assert np.asarray(out["done"]).tolist() == ([False, True, True, True] if terminal else [False] * 4)


def test_two_episodes_back_to_back_are_never_joined():
    """B15: terminated 2-step episodes, then a collection that stops after one step."""
    data = rows([0, 1, 0, 1])
    data["obs"]["x"], data["next_obs"]["x"] = np.array([0.0, 1, 100, 101]), np.array([1.0, 2, 101, 102])
    out = get_nstep_return_data(data, 3, cum_reward=True, gamma=GAMMA)
    np.testing.assert_allclose(out["reward"], [1.9, 1, 1.9, 1])
    assert out["done"].all()
    np.testing.assert_array_equal(out["next_obs"]["x"], [2, 2, 102, 102])
    np.testing.assert_array_equal(out["cut"], [1, 0, 1, 0])
    alone = get_nstep_return_data(rows([0]), 3, cum_reward=True, gamma=GAMMA)
    assert (alone["reward"][0], alone["value_gamma"][0], alone["done"][0]) == (1.0, pytest.approx(0.9), False)


def test_terminated_wins_where_both_flags_are_set():
    out = get_nstep_return_data(rows([0, 1], [0, 1]), 2, cum_reward=True, gamma=GAMMA)
    assert out["done"].tolist() == [True, True]


def test_a_trajectory_with_only_done_is_taken_literally():
    steps = [dict(obs=t, reward=1.0, done=t == 2) for t in range(3)]
    out = get_nstep_return_data(steps, 2, cum_reward=True, gamma=GAMMA)
    assert [s["done"] for s in out] == [False, True, True]
    assert "next_obs" not in out[0] and steps[0] == dict(obs=0, reward=1.0, done=False)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_list_of_tensors_gives_tensors_of_n_rewards(shape):
    steps = [dict(reward=torch.full(shape, float(t)), done=torch.tensor(False)) for t in range(3)]
    stacked = get_nstep_return_data(steps, 2, gamma=GAMMA)
    assert [s["reward"].tolist() for s in stacked] == [[0.0, 1.0], [1.0, 2.0], [2.0, 0.0]]
    summed = get_nstep_return_data(steps, 2, cum_reward=True, gamma=GAMMA)
    assert all(s["reward"].shape == shape and s["reward"].dtype == torch.float32 for s in summed)
    assert summed[0]["reward"].item() == pytest.approx(GAMMA)
    assert isinstance(summed[0]["done"], torch.Tensor) and isinstance(summed[0]["value_gamma"], float)


def test_one_step_keeps_the_reward_and_clears_done_at_a_truncation():
    data = rows([[0], [0], [1]], [[0], [1], [0]])
    out = get_nstep_return_data(data, 1, gamma=GAMMA)
    assert out["reward"] is not None and out["reward"].shape == (3, 1)
    np.testing.assert_allclose(out["value_gamma"], GAMMA)
    assert out["done"].ravel().tolist() == [False, False, True]
    assert data["done"].ravel().tolist() == [False, True, True]
    out["done"][:] = True
    assert not data["terminated"][0, 0]


def test_vector_rewards_are_summed_entry_by_entry():
    data = rows([0, 0, 1], reward=[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    out = get_nstep_return_data(data, 2, cum_reward=True, gamma=0.5)
    np.testing.assert_allclose(out["reward"], [[2, 20], [3.5, 35], [3, 30]])
    assert get_nstep_return_data(data, 2, gamma=0.5)["reward"].shape == (3, 2, 2)


def test_gamma_to_the_n_everywhere_on_request():
    out = get_nstep_return_data(rows([0, 0]), 3, correct_terminate_gamma=False, gamma=GAMMA)
    np.testing.assert_allclose(out["value_gamma"], [0.729, 0.729])


def test_nothing_beyond_an_end_leaks_in_even_if_it_is_nan():
    data = rows([0, 1, 0], reward=[1.0, 1.0, np.nan])
    assert get_nstep_return_data(data, 3, cum_reward=True, gamma=GAMMA)["reward"][:2].tolist() == [1.9, 1.0]


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="nstep is 0"):
        get_nstep_return_data(rows([0]), 0)
    with pytest.raises(TypeError, match="set"):
        get_nstep_return_data({1, 2}, 1)
    with pytest.raises(KeyError, match="terminated"):
        make_masks(ArrayDict(reward=np.ones(2)), GAMMA)
    assert get_nstep_return_data([], 3) == []


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_masks_separate_bootstrap_and_cut(convert):
    data = tree_map(convert, rows([0, 1, 0, 1], [0, 0, 1, 1]))
    discount, cut = make_masks(data, GAMMA)
    np.testing.assert_allclose(np.asarray(discount), [0.9, 0.0, 0.9, 0.0])
    np.testing.assert_allclose(np.asarray(cut), [1, 0, 0, 0])
    assert discount.dtype == data["reward"].dtype


def test_masks_of_a_sequence_end_only_at_its_terminal_step():
    """B17: the bootstrap masks of a sequence of 4, terminal at index 3."""
    discount, _ = make_masks(ArrayDict(done=np.array([False, False, False, True])), 1.0)
    assert discount.tolist() == [1, 1, 1, 0] and discount.dtype == np.float32
