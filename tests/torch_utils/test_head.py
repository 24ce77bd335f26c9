"""Heads: what they compute from features, in torch and NumPy."""

import numpy as np
import pytest
import torch

from ding_like.torch_utils.network.head import DiscreteHead, MultiDiscreteHead, ReparameterizationHead, ValueHead

X = torch.as_tensor(np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32))


def test_several_discrete_actions_are_parts_of_one_output():
    head = MultiDiscreteHead(8, [3, 1, 4])
    logits = head(X)
    assert [part.shape for part in logits] == [(5, 3), (5, 1), (5, 4)]
    torch.testing.assert_close(torch.cat(logits, -1), head.logits(X))
    np.testing.assert_allclose(
        np.concatenate(head.numpy_forward(X.numpy()), -1), head.logits(X).detach(), rtol=2e-6, atol=1e-6
    )


def test_a_value_has_no_axis_of_its_own():
    head = ValueHead(8)
    assert head(X).shape == (5,) and head(X.reshape(5, 1, 8)).shape == (5, 1)
    torch.testing.assert_close(head(X), head.V(X)[:, 0])


@pytest.mark.parametrize("make", [lambda **k: DiscreteHead(8, 3, **k).Q, lambda **k: ValueHead(8, **k).V])
def test_the_width_is_that_of_the_hidden_layers(make):
    def widths(stream):
        return [m.in_features for m in stream if isinstance(m, torch.nn.Linear)]

    assert widths(make(layer_num=2, width=5)) == [8, 5, 5] and widths(make(layer_num=1)) == [8, 8]
    assert widths(make(layer_num=0)) == [8]


def test_sigma_is_the_exponential_of_the_stream_around_its_start():
    head = ReparameterizationHead(8, 2, sigma_type="conditioned", init_sigma=0.5)
    torch.testing.assert_close(head(X)["sigma"], 0.5 * head.sigma(X).exp())


def test_gradients_reach_mu_and_sigma():
    head = ReparameterizationHead(8, 2, sigma_type="conditioned")
    head(X)["sigma"].sum().backward()
    assert all(p.grad is not None for p in head.sigma.parameters())
    assert all(p.grad is None for p in head.mu.parameters())
