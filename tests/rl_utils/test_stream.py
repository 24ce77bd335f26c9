"""The streaming adder gives the windows that cutting whole episodes gives, each as early as it can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block
from ding_like.rl_utils.stream import WindowStream
from ding_like.rl_utils.windows import get_train_sample
from tests.helpers import Steps


class Rows(Steps):
    """Known rows with both flags, `prev_state` the step of the episode at which it stands."""

    def fields(self):
        age = np.zeros((self.length, self.columns), np.float32)
        for t in range(1, self.length):
            age[t] = np.where(self.end[t - 1], 0, age[t - 1] + 1)
        return ArrayDict(
            obs=self.obs[:-1],
            action=self.action,
            reward=self.reward,
            terminated=self.flags == 1,
            truncated=self.flags == 2,
            done=self.end,
            prev_state=age[..., None],
        )

    def whole(self, b, start, stop, **plan):
        """The windows of the rows [start, stop) of a column, which are one episode that ended."""
        one = ArrayDict({k: v[start:stop, b] for k, v in self.fields().items()})
        one["next_obs"] = self.next_obs[start:stop, b]
        return get_train_sample(one, **plan)

    def block(self, start, stop):
        """Rows [start, stop) as a collector shows them."""
        from ding_like.data import RowLink

        fields = {k: v[start:stop] for k, v in self.fields().items()}
        ends = np.flatnonzero(self.end[start:stop].reshape(-1))
        finals = self.next_obs[start:stop].reshape(-1, 1)[ends]
        rows = self.obs[start : stop + 1]
        fields["obs"] = rows[:-1]
        return Block(fields, stop - start, RowLink(rows, ends, finals, self.columns))


def streamed(rows, stream, sizes):
    """Pairs (number of rows seen, windows) of blocks whose new rows are `sizes`."""
    stop = 0
    for size in sizes:
        start = max(0, stop - stream.carry)
        fresh, stop = stop - start, min(stop + size, rows.length)
        if stop - start > fresh:
            yield stop, stream.take(rows.block(start, stop), fresh)


def as_set(windows):
    """Windows by content: what each field shows at real slots, and where slots are null."""
    if windows is None:
        return []
    out = []
    for n in range(len(windows["reward"])):
        real = windows["mask"][n] > 0
        first = int(np.argmax(real))
        out.append(
            (
                tuple(windows["null"][n].tolist()),
                tuple(windows["obs"][n, first:, 0].tolist()),
                tuple(windows["action"][n][real].tolist()),
                tuple(windows["reward"][n].tolist()),
                tuple(windows["terminated"][n][first:].tolist()),
                tuple(windows["truncated"][n][real].tolist()),
                float(windows["prev_state"][n].reshape(-1)[0]),
            )
        )
    return out


@st.composite
def plans(draw):
    tail, burnin = draw(st.integers(0, 3)), draw(st.integers(0, 4))
    unroll = tail + draw(st.integers(1, 5))
    stride = draw(st.one_of(st.none(), st.integers(1, unroll - tail)))
    kind = draw(st.sampled_from(["last", "null_padding", "drop"]))
    return dict(unroll_len=unroll, burnin=burnin, stride=stride, tail=tail, last_fn_type=kind)


def expected(rows, plan, columns):
    """By definition: the windows of every episode that ended, and of the open ones those with all slots there."""
    out = []
    for b in range(columns):
        start = 0
        for t in range(rows.length):
            if rows.end[t, b]:
                out += as_set(rows.whole(b, start, t + 1, **plan)) if plan["unroll_len"] > 1 or plan["burnin"] else []
                start = t + 1
        out += as_set(_open(rows, b, start, plan))
    return out


def _open(rows, b, start, plan):
    length, stride = rows.length - start, plan["stride"] or plan["unroll_len"] - plan["tail"]
    n = 0 if length < plan["unroll_len"] else (length - plan["unroll_len"]) // stride + 1
    if n == 0:
        return None
    fields = ArrayDict({k: v[start:, b] for k, v in rows.fields().items()})
    slots = np.arange(n)[:, None] * stride - plan["burnin"] + np.arange(plan["burnin"] + plan["unroll_len"])
    out = fields[np.clip(slots, 0, length - 1)]
    out["prev_state"] = out["prev_state"][:, :1]
    out["null"], out["mask"] = slots < 0, (slots >= 0).astype(np.float32)
    out["reward"][out["null"]], out["terminated"][out["null"]] = 0, True
    return out


flags = st.integers(1, 3).flatmap(
    lambda b: st.lists(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=b, max_size=b), min_size=1, max_size=30)
)


@given(flags, plans(), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_the_windows_are_those_of_whole_episodes_however_rows_come_in_blocks(flags, plan, sizes):
    if plan["unroll_len"] == 1 and plan["burnin"] == 0:
        return  # `get_train_sample` gives steps then, not windows
    rows = Rows(flags)
    stream = WindowStream(rows.columns, **plan)
    sizes = [*sizes, rows.length]
    got = [w for _, windows in streamed(rows, stream, sizes) for w in as_set(windows)]
    assert sorted(got) == sorted(expected(rows, plan, rows.columns))


@given(flags, plans())
def test_a_window_comes_with_the_row_that_completes_it(flags, plan):
    rows = Rows(flags)
    stream = WindowStream(rows.columns, **plan)
    for stop, windows in streamed(rows, stream, [1] * rows.length):
        for _, obs, *_ in as_set(windows):
            t = stop - 1
            newest = {float(rows.obs[t, b, 0]) for b in range(rows.columns)}
            newest |= {float(rows.next_obs[t, b, 0]) for b in range(rows.columns) if rows.end[t, b]}
            assert newest & set(obs), "it could have been given out before"


@given(flags, st.integers(0, 3), st.integers(1, 5), st.integers(0, 3))
def test_every_step_of_an_ended_episode_trains_exactly_once(flags, burnin, span, tail):
    rows = Rows(flags)
    stream = WindowStream(rows.columns, span + tail, burnin=burnin, tail=tail, last_fn_type="null_padding")
    trained = []
    for _, windows in streamed(rows, stream, [7] * 5):
        if windows is not None:
            part, mask = windows["obs"][..., 0], windows["mask"] > 0
            use = slice(burnin, burnin + span)
            trained += part[:, use][mask[:, use]].tolist()
    assert len(trained) == len(set(trained))
    for b in range(rows.columns):
        ended = np.flatnonzero(rows.end[:, b])
        if len(ended):
            assert set(rows.obs[: ended[-1] + 1, b, 0].tolist()) <= set(trained)


def test_what_stands_in_rows_that_are_no_transition_is_in_no_window():
    """Next-step reset: the row after an end is none; it shows the final observation."""
    n = np.nan
    obs = np.array([[0], [1], [9], [10], [11], [12]], np.float32)[:, None]  # 9 is final, 10 the first of the next one
    mask = np.array([[1], [1], [0], [1], [1], [1]], np.float32)
    done = np.array([[0], [1], [0], [0], [0], [0]], bool)
    reward = np.array([[1], [2], [n], [3], [4], [5]], np.float32)
    from ding_like.data import RowLink

    rows = np.concatenate([obs, [[[13]]]]).astype(np.float32)
    link = RowLink(rows, np.empty(0, np.int64), None, 1)
    fields = dict(obs=rows[:-1], reward=reward, mask=mask, done=done, terminated=done, truncated=done & False)
    windows = WindowStream(1, 3, tail=1).take(Block(fields, 6, link), 0)
    np.testing.assert_array_equal(windows["obs"][..., 0], [[0, 1, 9], [10, 11, 12]])
    np.testing.assert_array_equal(windows["reward"], [[1, 2, 0], [3, 4, 5]])
    np.testing.assert_array_equal(windows["mask"], [[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize("at", [3, 8, 11])
def test_it_goes_on_from_its_state(at):
    rows = Rows(np.random.default_rng(0).choice([0, 0, 0, 0, 1, 2], (40, 3)))
    plan = dict(unroll_len=5, burnin=3, tail=2, last_fn_type="last")
    one, other = WindowStream(3, **plan), WindowStream(3, **plan)
    parts = [as_set(w) for _, w in streamed(rows, one, [3] * 14)]
    stop, got = 0, []
    for k in range(14):
        start, new = max(0, stop - one.carry), min(stop + 3, 40)
        if k == at:
            fresh_one = WindowStream(3, **plan)
            fresh_one.load_state_dict(other.state_dict())
            other = fresh_one
        got.append(as_set(other.take(rows.block(start, new), stop - start)) if new > stop else [])
        stop = new
    assert got == parts + [[]] * (14 - len(parts))


def test_a_cut_ends_the_open_episodes_at_the_row_that_was_seen_last():
    rows = Rows(np.zeros((12, 2), int))
    stream = WindowStream(2, 6, tail=1)
    assert stream.take(rows.block(0, 4), 0) is None
    rows.flags[3], rows.end[3] = 2, True
    stream.cut()
    windows = stream.take(rows.block(0, 6), 4)
    np.testing.assert_array_equal(windows["mask"], [[1, 1, 1, 1, 0, 0]] * 2)
    assert windows["truncated"][0, 3] and not windows["terminated"][0, 3]


@given(flags, plans(), st.integers(1, 20), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_cut_anywhere_gives_the_windows_of_episodes_that_end_there(flags, plan, at, sizes):
    """Case B26, where envs start anew after a resume: no slot shows a row that a block no longer has."""
    if plan["unroll_len"] == 1 and plan["burnin"] == 0:
        return
    rows = Rows(flags)
    stream, stop, got, sizes = WindowStream(rows.columns, **plan), 0, [], [*sizes, rows.length]
    for size in sizes:
        cut = stop < at <= stop + size
        start, new = max(0, stop - stream.carry), min(at if cut else stop + size, rows.length)
        if new > stop:
            got += as_set(stream.take(rows.block(start, new), stop - start))
        stop = new
        if cut and at < rows.length:
            rows.flags[at - 1], rows.end[at - 1] = np.where(rows.end[at - 1], rows.flags[at - 1], 2), True
            rows.next_obs[at - 1] = -1 - rows.obs[at - 1]
            stream.cut()
    start = max(0, stop - stream.carry)
    if rows.length > stop:
        got += as_set(stream.take(rows.block(start, rows.length), stop - start))

    def shown(windows):  # a window given out before the cut cannot know that its last step was truncated
        return sorted(window[:5] + window[6:] for window in windows)

    assert shown(got) == shown(expected(rows, plan, rows.columns))


def test_windows_with_a_tail_want_the_observation_that_follows():
    """After a truncated end it is what values are bootstrapped from."""
    rows = Rows(np.array([[0], [0], [2], [0]]))
    fields = dict(dict.items(rows.block(0, 4)))
    with pytest.raises(ValueError, match=r"no field 'next_obs'.*store next_obs=timestep\.obs"):
        WindowStream(1, 4, tail=1).take(Block(fields, 4), 0)
    windows = WindowStream(1, 4).take(Block(fields, 4), 0)
    np.testing.assert_array_equal(windows["obs"][..., 0], [[0, 1, 2, 2]])


def test_another_number_of_columns_is_refused():
    with pytest.raises(ValueError, match="saved run has 2 env columns, this one 3"):
        WindowStream(3, 4).load_state_dict(WindowStream(2, 4).state_dict())


def test_a_cut_before_any_row_was_seen_loses_no_end():
    """A run resumed before its first block was full: the rows that wait are all new to the stream."""
    rows = Rows([[0], [2], [0], [2], [0], [0]])  # the last end is that of the cut
    stream = WindowStream(1, 4, tail=1)
    stream.cut()
    windows = stream.take(rows.block(0, 6), 0)
    np.testing.assert_array_equal(windows["mask"], [[1, 1, 0, 0], [1, 1, 0, 0]])
