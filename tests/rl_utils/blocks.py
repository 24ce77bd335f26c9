"""Random `[T, B]` blocks with every kind of episode end, and returns of them straight from their definitions."""

import numpy as np
from hypothesis import strategies as st

from ding_like.rl_utils.adder import make_masks

GAMMA = 0.9
sizes = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10_000))  # T, B, seed


def random_block(rows, columns, seed, masked=True):
    """A dict of float64 arrays: terminated, truncated, both at once, and rows of NaN that are no transition."""
    rng = np.random.default_rng(seed)
    shape = (rows, columns)
    terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.2
    mask = np.ones(shape)
    if masked:
        for t, b in np.argwhere((terminated | truncated)[:-1]):
            if mask[t, b] and rng.random() < 0.5:
                mask[t + 1, b], terminated[t + 1, b], truncated[t + 1, b] = 0, False, rng.random() < 0.5
    reward, value, next_value = rng.normal(size=(3, *shape))
    discount, cut = make_masks({"reward": reward, "terminated": terminated, "done": terminated | truncated}, GAMMA)
    for array in (reward, value, next_value):
        array[mask == 0] = np.nan
    return dict(reward=reward, discount=discount, cut=cut, value=value, next_value=next_value, mask=mask)


def each_row(block, one):
    """`one(column, t, stop)` of every real row, where `stop` is one past the last row of the row's episode here."""
    out = np.zeros(block["reward"].shape)
    for t, b in np.argwhere(block["mask"] > 0):
        column = {k: v[:, b] for k, v in block.items()}
        stop = next((i + 1 for i in range(t, len(out)) if column["cut"][i] == 0), len(out))
        out[t, b] = one(column, t, stop)
    return out


def nstep_sum(column, t, stop, n):
    """Rewards of at most n steps and the value after the last of them."""
    steps = range(t, min(t + n, stop))
    weight = [np.prod(column["discount"][t:i]) for i in steps]
    rewards = sum(w * column["reward"][i] for w, i in zip(weight, steps))
    return rewards + np.prod(column["discount"][t : steps[-1] + 1]) * column["next_value"][steps[-1]]
