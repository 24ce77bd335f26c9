"""Segments of endless columns: every row trains once, and every slot shows what the one before it led to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data import ArrayDict, Block, RowLink
from ding_like.rl_utils.segment_stream import SegmentStream
from tests.helpers import fingerprint


class Timeline:
    """T rows of B columns with every number distinct. `marks [T, B]`: 0 a step, 1 terminated, 2 truncated.

    Args:
        kind: how the observation after an end is known: 'beside' (a table), 'field' (`next_obs` is stored) or 'row'
            (the rows after an end are no transition, as many as `idle`, and the first of them shows it).
    """

    def __init__(self, marks, kind, idle=1):
        marks = np.array(marks)
        self.length, self.columns = marks.shape
        self.kind, self.mask = kind, np.ones(marks.shape, bool)
        self.age = np.zeros(marks.shape, np.float32)
        at = np.arange(self.length + 1)[:, None] + 1000 * np.arange(self.columns)
        self.obs = at[..., None].astype(np.float32)  # [T + 1, B, 1]
        self.after = self.obs[1:].copy()
        for b in range(self.columns):
            left, age = 0, 0
            for t in range(self.length):
                self.age[t, b] = age
                if left:
                    left, marks[t, b], self.mask[t, b], age = left - 1, 0, False, 0
                elif marks[t, b]:
                    if kind == "row":
                        left, age = idle, age + 1
                    else:
                        self.after[t, b], age = -self.obs[t, b] - 1, 0
                else:
                    age += 1
        self.terminated, self.truncated = marks == 1, marks == 2

    def block(self, start, stop):
        """Rows [start, stop) as a collector shows them."""
        part = slice(start, stop)
        fields = dict(
            obs=self.obs[start:stop], age=self.age[part], reward=self.obs[part, :, 0] % 7, nothing=None,
            terminated=self.terminated[part], truncated=self.truncated[part], prev_state=self.age[part, :, None],
        )  # fmt: skip
        if self.kind == "row":
            fields["mask"] = self.mask[part].astype(np.float32)
        if self.kind == "field":
            fields["obs"] = fields["obs"].copy()
            return Block({**fields, "next_obs": self.after[part]})
        rows, ends = self.obs[start : stop + 1], np.empty(0, np.int64)
        if self.kind == "beside":
            ends = np.flatnonzero((self.terminated | self.truncated)[part])
        finals = self.after[part].reshape(-1, 1)[ends] if len(ends) else None
        return Block({**fields, "obs": rows[:-1]}, stop - start, RowLink(rows, ends, finals, self.columns))

    def stream(self, stream, sizes, start=0, stop=None):
        """The segments, one by one, of blocks of these sizes and of the rest, with the rows seen by then."""
        last = self.length if stop is None else stop
        for size in [*sizes, last]:
            stop = min(start + size, last)
            if start < stop:
                found = stream.take(self.block(start, stop), 0)
                start = stop
                yield from () if found is None else [(stop, found[n]) for n in range(len(found["reward"]))]


@st.composite
def timelines(draw):
    columns, length = draw(st.integers(1, 3)), draw(st.integers(1, 30))
    marks = st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=columns, max_size=columns)
    kind = draw(st.sampled_from(["beside", "field", "row"]))
    return Timeline(draw(st.lists(marks, min_size=length, max_size=length)), kind, draw(st.integers(1, 4)))


lengths, sizes = st.integers(1, 7), st.lists(st.integers(1, 9), max_size=8)


def row_of(obs):
    """Row and column that show this observation."""
    column, row = divmod(int(obs), 1000)
    return row, column


@settings(max_examples=50)
@given(timelines(), lengths, sizes)
def test_every_transition_trains_once_in_order_and_what_waits_is_less_than_a_segment(rows, unroll, sizes):
    trained = [[] for _ in range(rows.columns)]
    for stop, one in rows.stream(SegmentStream(rows.columns, unroll), sizes):
        assert one["mask"].shape == (unroll + 1,) and one["mask"].dtype == np.float32
        assert one["mask"][0] == 1 and one["mask"][-1] == 0 and "nothing" not in one
        for obs, reward in zip(one["obs"][one["mask"] > 0, 0], one["reward"][one["mask"] > 0]):
            row, column = row_of(obs)
            assert row < stop and reward == obs % 7
            trained[column].append(row)
    for b, found in enumerate(trained):
        wanted = np.flatnonzero(rows.mask[:, b]).tolist()
        assert found == wanted[: len(found)]
        assert len(wanted) - len(found) < unroll


@settings(max_examples=50)
@given(timelines(), lengths, sizes)
def test_every_slot_shows_the_true_next_observation_of_the_one_before(rows, unroll, sizes):
    for _, one in rows.stream(SegmentStream(rows.columns, unroll), sizes):
        for u in range(unroll):
            if one["mask"][u] and not one["terminated"][u]:
                assert one["obs"][u + 1] == rows.after[row_of(one["obs"][u, 0])]


@settings(max_examples=50)
@given(timelines(), lengths, sizes)
def test_a_state_that_begins_anew_as_told_is_that_of_every_row(rows, unroll, sizes):
    for _, one in rows.stream(SegmentStream(rows.columns, unroll), sizes):
        age = float(one["prev_state"][0, 0])
        assert one["prev_state"].shape == (1, 1)
        for u in range(unroll):
            if one["mask"][u]:
                assert one["age"][u] == age
            age = 0 if one["terminated"][u] or not one["mask"][u] else age + 1


@settings(max_examples=50)
@given(timelines(), lengths, sizes, st.integers(0, 8))
def test_blocks_and_a_resume_change_nothing_but_when_a_segment_comes(rows, unroll, sizes, broken):
    def contents(found):
        return sorted(fingerprint(dict(one)) for _, one in found)

    whole = list(rows.stream(SegmentStream(rows.columns, unroll), []))
    first, second = SegmentStream(rows.columns, unroll), SegmentStream(rows.columns, unroll)
    before = sizes[:broken]
    stop = min(sum(before), rows.length)
    parts = list(rows.stream(first, before, stop=stop))
    state = first.state_dict()
    second.load_state_dict(state)
    assert fingerprint(second.state_dict()) == fingerprint(state)
    parts += rows.stream(second, sizes[broken:], start=stop)
    assert contents(parts) == contents(whole)


@settings(max_examples=50)
@given(timelines(), lengths, sizes)
def test_a_segment_comes_with_the_row_that_completes_it(rows, unroll, sizes):
    for stop, one in rows.stream(SegmentStream(rows.columns, unroll), [1] * rows.length):
        _, column = row_of(one["obs"][0, 0])
        assert one["obs"][-1, 0] == rows.after[stop - 1, column]


@settings(max_examples=50)
@given(lengths, st.integers(1, 5), st.integers(1, 20), st.lists(st.integers(1, 9), max_size=4))
def test_rows_for_names_the_fewest_rows_that_complete_so_many(unroll, columns, samples, sizes):
    marks = np.zeros((400, columns), int)
    marks[np.arange(columns), np.arange(columns)] = 2  # so that columns are out of step
    rows, stream = Timeline(marks, "beside"), SegmentStream(columns, unroll)
    stop = columns
    stream.take(rows.block(0, stop), 0)
    for size in sizes:
        stream.take(rows.block(stop, stop + size), 0)
        stop += size
    state, n = stream.state_dict(), stream.rows_for(samples)
    for more, enough in ((0, True), (-1, False)):
        one = SegmentStream(columns, unroll)
        one.load_state_dict(state)
        found = one.take(rows.block(stop, stop + n + more), 0) if n + more else None
        assert (0 if found is None else len(found["reward"])) >= samples or not enough
        assert enough or found is None or len(found["reward"]) < samples


@pytest.mark.parametrize("kind", ["beside", "field"])
@pytest.mark.parametrize("columns", [None, [1]])
def test_a_cut_ends_the_open_episode_with_what_its_last_row_led_to(kind, columns):
    rows = Timeline([[0, 0]] * 8, kind)
    stream = SegmentStream(2, 4)
    assert stream.take(rows.block(0, 2), 0) is None
    stream.cut(columns)
    others = Timeline([[0, 0]] * 12, kind)
    others.obs, others.after = others.obs + 100, others.after + 100
    found = stream.take(others.block(2, 6), 0)
    obs, b = found["obs"][..., 0] % 1000, 1
    assert obs[b].tolist() == [0, 1, 2, 102, 103] and found["mask"][b].tolist() == [1, 1, 0, 1, 0]
    assert found["truncated"][b, :2].tolist() == [False, True]
    assert obs[0].tolist() == ([0, 1, 2, 102, 103] if columns is None else [0, 1, 102, 103, 104])


def test_a_cut_of_rows_that_have_trained_changes_nothing():
    rows, stream = Timeline([[0]] * 8, "beside"), SegmentStream(1, 2)
    assert len(stream.take(rows.block(0, 4), 0)["reward"]) == 2
    stream.cut()
    assert stream.take(rows.block(4, 6), 0)["obs"][0, :, 0].tolist() == [4, 5, 6]


def test_mistakes_are_named():
    rows = Timeline([[0]] * 4, "field")
    block = rows.block(0, 4)
    del block["next_obs"]
    with pytest.raises(ValueError, match="no field 'next_obs'"):
        SegmentStream(1, 2).take(block, 0)
    with pytest.raises(ValueError, match="3 env columns, this one 2"):
        SegmentStream(2, 2).load_state_dict(SegmentStream(3, 2).state_dict())


def test_a_tree_of_observations_passes_unopened():
    rows = Timeline([[0], [2], [0], [0]], "beside")
    block = rows.block(0, 4)
    link = block.link
    deep = RowLink({"a": link.rows, "b": (link.rows * 2,)}, link.ends, {"a": link.finals, "b": (link.finals * 2,)}, 1)
    block = Block(
        {**dict(dict.items(block)), "obs": {"a": deep.rows["a"][:-1], "b": (deep.rows["b"][0][:-1],)}}, 4, deep
    )
    found = SegmentStream(1, 3).take(block, 0)
    assert found["obs"]["a"][0, :, 0].tolist() == [0, 1, -2, -2]
    assert found["obs"]["b"][0][0, :, 0].tolist() == [0, 2, -4, -4]
    assert isinstance(found, ArrayDict)
