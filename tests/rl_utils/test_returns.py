"""n-step and lambda returns against their definitions, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.rl_utils.gae import gae_advantage
from ding_like.rl_utils.returns import lambda_return, nstep_return
from tests.rl_utils.blocks import each_row, nstep_sum, random_block, sizes


def inputs(block):
    return {k: v for k, v in block.items() if k != "value"}


@given(sizes, st.integers(1, 15))
def test_nstep_equals_the_direct_sum(size, nstep):
    block = random_block(*size)
    wanted = each_row(block, lambda column, t, stop: nstep_sum(column, t, stop, nstep))
    np.testing.assert_allclose(nstep_return(**inputs(block), nstep=nstep), wanted, atol=1e-12)


@given(sizes, st.floats(0, 1))
def test_lambda_mixes_the_nstep_returns(size, lam):
    """(1 - lambda) sum of lambda^(n-1) G^(n), and what is left of the weight on the longest."""
    block = random_block(*size)

    def one(column, t, stop):
        longest = stop - t
        short = sum((1 - lam) * lam ** (n - 1) * nstep_sum(column, t, stop, n) for n in range(1, longest))
        return short + lam ** (longest - 1) * nstep_sum(column, t, stop, longest)

    np.testing.assert_allclose(lambda_return(**inputs(block), lambda_=lam), each_row(block, one), atol=1e-12)


@given(sizes, st.integers(1, 11), st.integers(1, 6))
def test_a_cut_splits_a_block_in_two(size, at, nstep):
    block = inputs(random_block(*size))
    block["cut"][min(at, size[0]) - 1] = 0
    halves = [{k: v[part] for k, v in block.items()} for part in (slice(at), slice(at, None))]
    for function, arg in ((nstep_return, nstep), (lambda_return, 0.7)):
        apart = np.concatenate([function(**half, **{NAMES[function]: arg}) for half in halves])
        np.testing.assert_array_equal(function(**block, **{NAMES[function]: arg}), apart)


NAMES = {nstep_return: "nstep", lambda_return: "lambda_"}


def test_lambda_return_less_the_value_is_the_advantage_where_values_chain():
    """Where v' is the next row's value inside an episode, GAE plus v is the lambda return (Schulman 2016)."""
    block = random_block(10, 3, 4, masked=False)
    inside = block["cut"][:-1] == 1
    block["next_value"][:-1][inside] = block["value"][1:][inside]
    out = lambda_return(**inputs(block), lambda_=0.8)
    np.testing.assert_allclose(out, gae_advantage(**block, lambda_=0.8) + block["value"], atol=1e-12)


def test_kinds_and_shapes():
    block = {k: torch.from_numpy(v).float() for k, v in inputs(random_block(6, 2, 0)).items()}
    for out in (nstep_return(**block, nstep=3), lambda_return(**block, lambda_=0.9)):
        assert out.dtype == torch.float32 and out.shape == (6, 2)
        assert torch.isfinite(out).all()
    assert nstep_return(*np.ones((4, 5)), nstep=2).shape == (5,)
    with pytest.raises(ValueError, match="nstep is 0"):
        nstep_return(**block, nstep=0)
    with pytest.raises(ValueError, match="cut has shape"):
        lambda_return(**{**block, "cut": block["cut"][:, :1]}, lambda_=0.9)
