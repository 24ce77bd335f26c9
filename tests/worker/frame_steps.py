"""Rows of known stacks of frames, and the n-step transitions of them by definition."""

import numpy as np
from hypothesis import strategies as st

from ding_like.config import CfgDict
from ding_like.data import ArrayDict, Block, RowLink, tree_map
from ding_like.worker import Replay
from tests.helpers import make_policy

GAMMA = 0.9
POLICIES = {n: make_policy(nstep=n, discount_factor=GAMMA, fields=["collect"]) for n in range(1, 5)}
FIRST = {  # what the wrapper shows at an episode's start: older frames, oldest first, before the newest one
    "repeat": lambda new, last, k: [new] * (k - 1),
    "zeros": lambda new, last, k: [0] * (k - 1),
    "own": lambda new, last, k: [-1000 * new - i for i in range(k - 1)],  # steps that the wrapper took on its own
    "goes_on": lambda new, last, k: last[1:] if last else [new] * (k - 1),  # a lost life above the stack
}


class FrameSteps:
    """Rows `[T, B]` of an env whose observations are stacks of k frames of C channels, every frame another number.

    Args:
        flags: `[T, B]`, 1 terminated, 2 truncated.
        cuts: rows after which the run crashed: open episodes end there and all envs start anew.
        first: name of what an episode begins with, see FIRST.
        masked: an env that resets in the step after an end.
    """

    def __init__(self, flags, k=4, channels=1, cuts=(), first="repeat", masked=False, nested=False):
        self.given = np.array(flags)
        self.length, self.columns = self.given.shape
        self.k, self.channels, self.masked, self.nested = k, channels, masked, nested
        self.cuts = set(cuts)
        shape = (self.columns, k * channels, 2)
        self.obs = np.zeros((self.length + 1, *shape), np.int32)
        self.next_obs = np.zeros((self.length, *shape), np.int32)
        self.idle = np.zeros((self.length, self.columns), bool)
        for b in range(self.columns):
            self._run(b, FIRST[first])
        self.flags = self.given.copy()
        self.flags[list(self.cuts)] = np.where(self.flags[list(self.cuts)] == 1, 1, 2)
        self.end = self.flags > 0
        self.reward = (1 + np.arange(self.length)[:, None] % 7 + np.arange(self.columns)).astype(np.float32)
        self.action = (np.arange(self.length * self.columns) % 3).reshape(self.length, self.columns)

    def _run(self, b, first):
        number = 100_000 * (b + 1)
        stack, over = [*first(number, [], self.k), number], False
        for t in range(self.length):
            self.obs[t, b] = self._show(stack)
            number += 1
            self.idle[t, b] = over and self.masked
            if self.idle[t, b]:  # the action was ignored
                self.given[t, b] = 0
                stack, over = [*first(number, stack, self.k), number], False
                self.next_obs[t, b] = self._show(stack)
            else:
                stack, over = [*stack[1:], number], self.given[t, b] > 0
                self.next_obs[t, b] = self._show(stack)
            if t in self.cuts or (over and not self.masked):
                number += 1
                stack, over = [*first(number, [] if t in self.cuts else stack, self.k), number], False
        self.obs[-1, b] = self._show(stack)

    def _show(self, stack):
        """`[k * C, 2]`: of every frame each channel and pixel its own number."""
        frames = np.repeat(np.array(stack), self.channels) * 8 + np.tile(np.arange(self.channels) * 2, self.k)
        return np.stack([frames, frames + 1], -1)

    def _as(self, x, lead):
        if not self.nested:
            return x
        row = x.reshape(*x.shape[:lead], -1)
        return ArrayDict(image=x, deep=ArrayDict(more=x[..., :1] * 3, vector=row[..., 0]))

    def block(self, start, stop, carry, crashed):
        """Rows `[start, stop)`, of which the last `carry` only wait for their future; `crashed`: the cuts so far."""
        flags = self.given[start:stop].copy()
        after = self.obs[start : stop + 1].copy()
        ends = (flags > 0) & (not self.masked)
        for row in self.cuts & set(range(start, stop)):
            if row in crashed:
                flags[row - start], ends[row - start] = self.flags[row], True
            elif row == stop - 1:  # what was to be acted on before the crash
                going = (self.given[row] == 0) | self.masked
                after[-1, going] = self.next_obs[row, going]
        rows, column = np.nonzero(ends)
        finals = self._as(self.next_obs[start + rows, column], 1) if len(rows) else None
        after = self._as(after, 2)
        fields = dict(
            obs=after[:-1] if not self.nested else tree_map(lambda x: x[:-1], after),
            action=self.action[start:stop],
            reward=self.reward[start:stop],
            terminated=flags == 1,
            truncated=flags == 2,
            done=flags > 0,
        )
        if self.masked:
            fields["mask"] = 1 - self.idle[start:stop].astype(np.float32)
        return Block(fields, stop - start - carry, RowLink(after, rows * self.columns + column, finals, self.columns))

    def feed(self, store, sizes, nstep, after=lambda pushed: None):
        """Push blocks that start `sizes` rows; the crashes come between two of them."""
        pushed, crashed = 0, set()
        for size in sizes:
            stop = pushed + size + nstep - 1
            store.push(POLICIES[nstep]._get_train_sample(self.block(pushed, stop, nstep - 1, crashed)))
            pushed += size
            if stop - 1 in self.cuts:
                crashed.add(stop - 1)
                store.cut()
            after(pushed)

    def item(self, t, b, nstep):
        """By definition: obs, reward, discount, next_obs of an n-step transition."""
        total, k = 0.0, 0
        while True:
            total += GAMMA**k * float(self.reward[t + k, b])
            k += 1
            if k == nstep or self.end[t + k - 1, b]:
                break
        last = t + k - 1
        return self.obs[t, b], total, 0.0 if self.flags[last, b] == 1 else GAMMA**k, self.next_obs[last, b]


@st.composite
def feeds(draw):
    columns, nstep, k = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=10))
    rows = sum(sizes) + nstep - 1
    flag = st.sampled_from(draw(st.sampled_from([[0], [0, 0, 0, 1, 2], [0, 1, 2]])))
    flags = draw(st.lists(flag, min_size=rows * columns, max_size=rows * columns))
    stops = np.cumsum(sizes) + nstep - 2
    cuts = [int(stop) for stop in stops[:-1] if draw(st.integers(0, 3)) == 0]
    steps = FrameSteps(
        np.reshape(flags, (rows, columns)),
        k,
        channels=draw(st.integers(1, 2)),
        cuts=cuts,
        first=draw(st.sampled_from(sorted(FIRST))),
        masked=draw(st.booleans()),
        nested=draw(st.booleans()),
    )
    return steps, nstep, sizes, draw(st.integers(max(sizes), max(sizes) + 12))


def store_of(stack, size=100, **cfg):
    return Replay(CfgDict(Replay.config, replay_buffer_size=size, frame_stack=stack, **cfg))
