"""Stacked MLPs against the same networks one by one."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from ding_like.torch_utils.network.stacked import StackedMLP

SIZES = [5, 7, 6, 3]


def alone(stacked, k, norm_type):
    """The k-th network as a sequence of torch's own layers."""
    layers = []
    for i, (size_in, size_out) in enumerate(pairwise(SIZES)):
        linear = nn.Linear(size_in, size_out).double()
        linear.weight.data, linear.bias.data = stacked.weights[i][k].detach(), stacked.biases[i][k, 0].detach()
        layers.append(linear)
        if i < len(SIZES) - 2:
            if norm_type:
                norm = nn.LayerNorm(size_out).double()
                norm.weight.data, norm.bias.data = stacked.scales[i].detach()[:, k, 0]
                layers.append(norm)
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


@pytest.mark.parametrize("norm_type", [None, "LN"])
@pytest.mark.parametrize("lead", [(4,), (3, 4)])
def test_each_network_of_the_stack_is_one_of_its_own(norm_type, lead):
    torch.manual_seed(0)
    stacked = StackedMLP(2, SIZES, "tanh", norm_type).double()
    for scale in stacked.scales:
        nn.init.normal_(scale)
    x = torch.randn(*lead, SIZES[0], dtype=torch.float64)
    wanted = torch.stack([alone(stacked, k, norm_type)(x) for k in range(2)])
    torch.testing.assert_close(stacked(x), wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(stacked(x, 1), stacked(x)[:1])


def test_weights_start_as_those_of_linear_layers():
    torch.manual_seed(0)
    stacked = StackedMLP(2, [400, 300, 1])
    for weight, bias, size in zip(stacked.weights, stacked.biases, (400, 300)):
        for part in (weight, bias):
            assert part.abs().max() <= size**-0.5
        assert weight.std().item() == pytest.approx((1 / (3 * size)) ** 0.5, rel=0.1)
    assert not torch.equal(stacked.weights[0][0], stacked.weights[0][1])


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm_type is 'BN'"):
        StackedMLP(2, SIZES, norm_type="BN")
