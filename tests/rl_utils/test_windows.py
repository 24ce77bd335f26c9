"""Windows: the guide's rules, padding, episode ends inside, burn-in and tail geometry."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block, RowLink, torchify, tree_map
from ding_like.rl_utils.adder import get_nstep_return_data, get_train_sample
from ding_like.rl_utils.loss import huber, masked_mean, select
from ding_like.rl_utils.td import q_learning_error

NULL = -1


def steps(length: int) -> list[dict]:
    """The guide's x_1 ... x_L, the last not done."""
    return [dict(obs=float(t), next_obs=t + 1.0, action=t, reward=1.0, done=False) for t in range(1, length + 1)]


def arrays(ends, x=None) -> ArrayDict:
    """A trajectory `[L]` or block `[T, B]` of steps numbered x from 1 on, next observation x + 0.5."""
    ends = np.asarray(ends, bool)
    x = np.arange(1, ends.size + 1).reshape(ends.shape) if x is None else x
    return ArrayDict(obs=x * 1.0, next_obs=x + 0.5, action=x, reward=x * 1.0, done=ends, terminated=ends.copy())


def numbers(sample) -> list:
    """Step numbers of the windows with null slots marked."""
    if isinstance(sample, list):
        return [[NULL if null else a for a, null in zip(w["action"], w["null"])] for w in sample]
    return np.where(np.asarray(sample["null"]), NULL, np.asarray(sample["action"])).tolist()


GUIDE = [
    (6, 3, "last", [[1, 2, 3], [4, 5, 6]]),
    (6, 4, "last", [[1, 2, 3, 4], [3, 4, 5, 6]]),
    (6, 7, "last", [[1, 2, 3, 4, 5, 6, NULL]]),
    (6, 4, "null_padding", [[1, 2, 3, 4], [5, 6, NULL, NULL]]),
    (6, 4, "drop", [[1, 2, 3, 4]]),
    (6, 7, "drop", []),
    (6, 6, "drop", [[1, 2, 3, 4, 5, 6]]),
    (7, 3, "last", [[1, 2, 3], [4, 5, 6], [5, 6, 7]]),
    (1, 2, "last", [[1, NULL]]),
    (0, 3, "last", []),
]


@pytest.mark.parametrize("length, unroll_len, last_fn_type, wanted", GUIDE)
def test_window_rules_of_the_guide(length, unroll_len, last_fn_type, wanted):
    """B30: which steps each window holds, for lists, deques, arrays and tensors."""
    flat = arrays(np.zeros(length))
    for data in (steps(length), deque(steps(length)), flat, flat[:, None], tree_map(torch.from_numpy, flat)):
        sample = get_train_sample(data, unroll_len, last_fn_type)
        assert numbers(sample) == wanted
        assert len(sample["reward"] if isinstance(sample, dict) else sample) == len(wanted)


def test_unroll_of_one_returns_the_steps_in_their_own_form_with_null_and_mask():
    data = steps(3)
    assert get_train_sample(data, 1) == [{**step, "null": False, "mask": 1.0} for step in data]
    assert "null" not in data[0]
    for data in (arrays([0, 1, 0]), tree_map(torch.from_numpy, arrays([0, 1, 0])), arrays([[0, 1], [0, 0]])):
        out = get_train_sample(data, 1)
        assert list(out) == [*data, "null", "mask"] and out["obs"] is data["obs"] and "null" not in data
        assert not out["null"].any() and (out["mask"] == 1).all() and out["mask"].shape == data["reward"].shape
        assert type(out["null"]) is type(out["mask"]) is type(data["reward"])
    link = RowLink(np.arange(3.0)[:, None], np.array([1]), np.array([9.0]), 1)
    fields = {k: v for k, v in arrays([[0], [1]]).items() if k != "next_obs"}
    block = get_train_sample(Block({**fields, "mask": np.array([[1], [0]], np.float32)}, 2, link), 1)
    assert isinstance(block, Block) and block.link is link and block["null"].tolist() == [[False], [True]]


def test_a_null_step_in_a_list_copies_the_last_and_carries_its_next_obs():
    (window,) = get_train_sample(steps(6), 7)
    assert all(isinstance(field, list) and len(field) == 7 for field in window.values())
    last = {name: field[-1] for name, field in window.items()}
    assert last == dict(obs=7.0, next_obs=7.0, action=6, reward=0.0, done=True, null=True, mask=0.0)
    assert window["mask"] == [1.0] * 6 + [0.0] and window["done"][:6] == [False] * 6


def test_a_null_step_keeps_kinds_of_tensors_and_fields_of_a_users_null_transition():
    data = [dict(obs=torch.ones(2), reward=torch.ones(1), done=torch.tensor(False)) for _ in range(2)]
    (window,) = get_train_sample(data, 3, null_transition=dict(obs=torch.zeros(2)))
    assert window["reward"][2].tolist() == [0.0] and window["done"][2].dtype == torch.bool and window["done"][2]
    assert window["obs"][2].tolist() == [0.0, 0.0]
    window = get_train_sample(arrays([0, 0]), 3, null_transition=dict(action=9))
    assert window["action"].tolist() == [[1, 2, 9]]


def test_nested_observations_become_lists_and_states_stay_whole():
    data = [dict(obs={"a": t, "b": {"c": -t}}, prev_state={"h": t}, reward=0.0, done=False) for t in range(2)]
    (window,) = get_train_sample(data, 2)
    assert window["obs"] == {"a": [0, 1], "b": {"c": [0, -1]}}
    assert window["prev_state"] == [{"h": 0}]  # of the first slot, as in arrays


@pytest.mark.parametrize("state", [None, {"h": np.zeros(2)}, (0, 1)])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_a_window_keeps_the_state_of_its_first_slot_alone_whatever_it_is(state, length):
    for window in get_train_sample([{**step, "prev_state": state} for step in steps(length)], 4):
        assert len(window["obs"]) == 4 and window["prev_state"] == [state]


def test_a_step_without_a_field_of_the_others_is_named():
    data = steps(3)
    del data[2]["action"]
    with pytest.raises(KeyError, match="step 2 has no 'action'"):
        get_train_sample(data, 3)


ENDS_EARLY = {
    "done": [False, True, False, False],
    "terminated": [False, False, True, True],
    "truncated": [np.False_, np.True_, np.False_, np.False_],
}


@pytest.mark.parametrize("flag", ENDS_EARLY)
@pytest.mark.parametrize("kind", [lambda x: x, torch.tensor, lambda x: np.array([x])])
def test_a_list_that_goes_on_after_an_end_is_refused(flag, kind):
    """No window of a list crosses an episode's end either."""
    data = [{**step, flag: kind(set_)} for step, set_ in zip(steps(4), ENDS_EARLY[flag])]
    at = ENDS_EARLY[flag].index(True)
    with pytest.raises(ValueError, match=f"step {at} of 4 has {flag}=True; wanted the steps of one episode"):
        get_train_sample(data, 3)
    assert len(get_train_sample(data, 1)) == 4


@given(st.integers(1, 8), st.integers(1, 4), st.sampled_from(["terminated", "truncated"]))
def test_lists_of_one_episode_are_served_before_and_after_the_nstep_return(length, nstep, how):
    data = [{**step, "done": t == length, how: t == length} for t, step in enumerate(steps(length), 1)]
    plain = numbers(get_train_sample(data, 3))
    assert numbers(get_train_sample(get_nstep_return_data(data, nstep), 3)) == plain


def test_data_that_no_window_can_be_made_of_is_named():
    with pytest.raises(KeyError, match=r"the data has no field 'reward', only \['obs', 'done'\]"):
        get_train_sample([dict(obs=1, done=False)] * 3, 4)
    with pytest.raises(KeyError, match=r"the data has no field 'reward', only \['obs', 'done'\]"):
        get_train_sample(ArrayDict(obs=np.zeros((3, 2)), done=np.zeros(3, bool)), 4)
    for unroll_len in (1, 4):
        with pytest.raises(TypeError, match="step 0 of the trajectory is a list; wanted a dictionary of its fields"):
            get_train_sample([steps(2), steps(2)], unroll_len)
    for name, value in dict(unroll_len=4.0, burnin=1.5, stride="2", tail=True).items():
        with pytest.raises(TypeError, match=f"{name} is {value!r}; wanted a whole number of steps"):
            get_train_sample(steps(3), **{"unroll_len": 4, name: value})


def test_null_slots_of_arrays():
    """B30: mask, reward, flags and the final observation at the slot after the end."""
    out = get_train_sample(arrays([0] * 6), 8)
    np.testing.assert_array_equal(out["mask"], [[1, 1, 1, 1, 1, 1, 0, 0]])
    assert out["mask"].dtype == np.float32 and out["null"].dtype == bool
    np.testing.assert_array_equal(out["reward"], [[1, 2, 3, 4, 5, 6, 0, 0]])
    np.testing.assert_array_equal(out["obs"], [[1, 2, 3, 4, 5, 6, 6.5, 6.5]])
    for flag in ("done", "terminated"):
        np.testing.assert_array_equal(out[flag], [[False] * 6 + [True] * 2])


@pytest.mark.parametrize("junk", [0.0, 1000.0, float("nan")])
def test_what_stands_in_a_null_step_changes_neither_loss_nor_gradient(junk):
    """B30: 6 steps in a window of 7; the sixth bootstraps from its true next observation."""
    null = None if junk == 0 else dict(reward=junk, obs=junk, next_obs=junk)
    data = torchify(get_train_sample(arrays([0] * 6), 7, null_transition=null))
    mask = data["mask"] == 1
    weight = torch.tensor([0.5, -0.25], dtype=torch.float64, requires_grad=True)

    def q(obs):
        return select(obs, mask).unsqueeze(-1) * weight  # [N, U, A]

    action = torch.zeros_like(data["action"])
    discount = torch.full_like(data["reward"], 0.9)
    td = q_learning_error(q(data["obs"]), action, data["reward"], discount, q(data["next_obs"]))
    loss = masked_mean(huber(select(td, mask)), mask)
    loss.backward()
    each = [x + 0.9 * 0.5 * (x + 0.5) - 0.5 * x for x in range(1, 7)]
    assert loss.item() == pytest.approx(sum(e * e / 2 if e < 1 else e - 0.5 for e in each) / 6)
    slope = -sum(x * min(e, 1) for x, e in zip(range(1, 7), each)) / 6
    assert weight.grad.tolist() == [pytest.approx(slope), 0.0]


def test_padding_stands_at_the_end_of_rows_of_three_and_two():
    """B31: trailing padding only, real lengths 3 and 2."""
    out = get_train_sample(arrays([0, 0, 1, 0, 1]), 3)
    assert numbers(out) == [[1, 2, 3], [4, 5, NULL]]
    assert out["mask"].sum(1).tolist() == [3, 2]


def test_no_window_crosses_an_episode_and_columns_stay_apart():
    ends = [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]]  # column 0: steps 1 3 | 5 7 9, column 1: 2 4 6 8 | 10
    assert numbers(get_train_sample(arrays(ends), 2)) == [[1, 3], [5, 7], [7, 9], [2, 4], [6, 8], [10, NULL]]


def test_rows_that_are_no_steps_belong_to_no_window():
    data = arrays([0, 1, 0, 0, 0, 1])
    data["mask"] = np.array([1, 1, 0, 1, 1, 1], np.float32)
    out = get_train_sample(data, 2, "null_padding")
    assert numbers(out) == [[1, 2], [4, 5], [6, NULL]]
    np.testing.assert_array_equal(out["mask"], [[1, 1], [1, 1], [1, 0]])


SLICES = [
    (0, "last", [0, 2, 0, 0, 3, 4]),
    (0, "null_padding", [0, 3, 0, 0, 3, 6]),
    (1, "last", [0, 2, 0, 0, 2, 4]),
]


@pytest.mark.parametrize("overlap, last_fn_type, wanted", SLICES)
def test_every_slice_has_the_state_of_its_own_start(overlap, last_fn_type, wanted):
    """B26: sequences of 5, 2, 7 cut by 3; the stored state counts the steps since the episode's start."""
    lengths = [5, 2, 7]
    data = arrays(np.concatenate([[0] * (n - 1) + [1] for n in lengths]))
    data["prev_state"] = {"h": np.concatenate([np.arange(n) for n in lengths])[:, None]}
    out = get_train_sample(data, 3, last_fn_type, stride=3 - overlap)
    assert out["prev_state"]["h"].shape == (len(wanted), 1, 1)
    assert out["prev_state"]["h"].ravel().tolist() == wanted


@pytest.mark.parametrize("n", [1, 2, 3])
def test_windows_of_nstep_output_still_end_with_the_episode(n):
    ends = [0, 0, 0, 1, 0, 0, 0, 0, 1]
    out = get_train_sample(get_nstep_return_data(arrays(ends), n, gamma=0.5), 3)
    assert numbers(out) == [[1, 2, 3], [2, 3, 4], [5, 6, 7], [7, 8, 9]]


@pytest.mark.parametrize("n, carry", [(1, 0), (3, 0), (3, 2)])
def test_windows_of_a_block_equal_those_of_its_rows(n, carry):
    ends = np.array([[0, 0], [0, 1], [1, 0], [0, 0], [0, 0], [0, 0]], bool)
    data = arrays(ends)
    data["obs"] = np.arange(14.0).reshape(7, 2)[:-1]
    data["next_obs"] = np.where(ends, 90.0 + np.arange(12).reshape(6, 2), np.arange(14.0).reshape(7, 2)[1:])
    at = np.flatnonzero(ends)
    link = RowLink(np.arange(14.0).reshape(7, 2), at, data["next_obs"].reshape(-1)[at], 2)
    starts = 6 - carry
    fields = {k: v for k, v in dict.items(data) if k != "next_obs"}
    block = get_nstep_return_data(Block(fields, starts, link), n, cum_reward=True, gamma=0.5)
    plain = get_nstep_return_data(data, n, cum_reward=True, gamma=0.5)[:starts]
    out, wanted = get_train_sample(block, 4, "null_padding"), get_train_sample(plain, 4, "null_padding")
    for name in ("action", "reward", "value_gamma", "mask"):
        np.testing.assert_array_equal(out[name], wanted[name])
    after = np.where(out["null"][:, 1:] & ~out["null"][:, :-1])
    rows, columns = np.divmod(out["action"][:, :-1][after] - 1, 2)
    np.testing.assert_array_equal(out["obs"][:, 1:][after], data["next_obs"][rows, columns])


@pytest.mark.parametrize("n", [1, 2])
def test_windows_of_a_block_without_next_obs(n):
    data = arrays([[0], [1], [0], [0]])
    fields = {k: data[k] for k in ("obs", "action", "reward", "done")}
    block = get_nstep_return_data(Block(fields, 4), n, gamma=0.5)
    out = get_train_sample(block, 3)
    assert numbers(out) == [[1, 2, NULL], [3, 4, NULL]]
    assert out["obs"].tolist() == [[1, 2, 2], [3, 4, 4]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 2),
    st.sampled_from(["last", "null_padding", "drop"]),
)
def test_windows_of_a_block_with_rows_that_are_no_step_are_those_of_its_episodes(lengths, n, unroll, burnin, kind):
    """Envs that reset in the step after an end: that row shows the final observation, and is none."""
    rows, columns = max(sum(c) + len(c) for c in lengths), len(lengths)
    x = np.arange(1, rows * columns + 1).reshape(rows, columns)
    obs = np.concatenate([x, x[-1:] + columns]) * 1.0
    mask, ends = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), bool)
    wanted, cut = [], dict(unroll_len=unroll, burnin=burnin, last_fn_type=kind)
    for b, column in enumerate(lengths):
        t = 0
        for length in column:
            at, stop = slice(t, t + length), t + length
            mask[at, b], ends[stop - 1, b] = 1, True
            one = arrays([0] * (length - 1) + [1], x[at, b])
            one["next_obs"] = obs[t + 1 : stop + 1, b]
            made = get_train_sample(get_nstep_return_data(one, n, gamma=0.5), **cut)
            wanted += [made] if unroll + burnin > 1 and len(made["obs"]) else []
            t = stop + 1
    reward = np.where(mask > 0, x * 1.0, np.nan)
    fields = dict(obs=obs[:-1], action=x, reward=reward, done=ends, terminated=ends.copy(), mask=mask)
    block = Block(fields, rows, RowLink(obs, np.empty(0, np.int64), None, columns))
    got = get_train_sample(get_nstep_return_data(block, n, gamma=0.5), **cut)
    if unroll + burnin == 1:
        np.testing.assert_array_equal(got["null"], mask == 0)
        return
    for name in ("obs", "action", "reward", "null", "mask", "terminated"):
        parts = [made[name] for made in wanted]
        np.testing.assert_array_equal(got[name], np.concatenate(parts) if parts else got[name][:0])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(1, 8),
    st.integers(0, 4),
    st.sampled_from(["last", "null_padding"]),
)
def test_every_step_trains_and_its_bootstrap_stands_k_slots_on(lengths, burnin, span, tail, last_fn_type):
    assume(burnin or span + tail > 1)
    ends = np.concatenate([[0] * (n - 1) + [1] for n in lengths])
    data = arrays(ends)
    out = get_train_sample(data, span + tail, last_fn_type, burnin=burnin, tail=tail)
    width = burnin + span + tail
    assert out["action"].shape[1] == width and ((out["mask"] == 1) == ~out["null"]).all()
    trained = slice(burnin, burnin + span)
    counts = np.bincount(out["action"][:, trained][~out["null"][:, trained]], minlength=len(ends) + 1)[1:]
    assert counts.min() == 1 and counts.max() <= (2 if last_fn_type == "last" else 1)
    distance = max(tail, 1)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    final = np.cumsum(lengths)  # number of each episode's last step
    for window, null, obs in zip(out["action"], out["null"], out["obs"]):
        real = np.flatnonzero(~null)
        assert (np.diff(window[real]) == 1).all() and len(set(episode[window[real] - 1])) == 1
        for slot in real[(real >= burnin) & (real < burnin + span)]:
            last = final[episode[window[slot] - 1]]
            k = min(distance, last - window[slot] + 1)
            if slot + k < width:  # tail=0 keeps no slot behind the window
                ahead = window[slot] + k
                assert obs[slot + k] == (ahead if ahead <= last else last + 0.5)


def test_the_first_window_is_null_before_the_episodes_first_step():
    out = get_train_sample(arrays([0, 0, 0, 0, 1]), 3, burnin=2, tail=1)
    assert numbers(out) == [[NULL, NULL, 1, 2, 3], [1, 2, 3, 4, 5], [2, 3, 4, 5, NULL]]
    listed = get_train_sample(steps(5), 3, burnin=2, tail=1)
    assert numbers(listed) == numbers(out)
    assert listed[0]["obs"][:3] == [1.0, 1.0, 1.0] and listed[2]["obs"][4] == 6.0


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(unroll_len=0), "unroll_len is 0"),
        (dict(unroll_len=3, last_fn_type="lst"), "last_fn_type is 'lst'"),
        (dict(unroll_len=3, tail=3), "no step would train"),
        (dict(unroll_len=5, tail=2, stride=4), "stride is 4"),
        (dict(unroll_len=5, burnin=-1), "burnin -1"),
    ],
)
def test_wrong_arguments_are_named(kwargs, message):
    with pytest.raises(ValueError, match=message):
        get_train_sample(steps(6), **kwargs)
    with pytest.raises(TypeError, match="set"):
        get_train_sample({1}, 2)
