"""Noisy layers, and whom the noise of a network is drawn for."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.torch_utils.network.noisy import NetworkNoise, NoisyLinear
from ding_like.torch_utils.network.q_heads import make_q_head

X = torch.randn(6, 5)


def test_noise_is_factorised_and_added_in_proportion_to_sigma():
    """Fortunato 2018, eq. 9 to 11, entry by entry."""
    layer = NoisyLinear(5, 3)
    with torch.no_grad():
        layer.weight_sigma.uniform_(), layer.bias_sigma.uniform_()
    normal = torch.randn(8)
    layer.redraw(normal)
    f = [math.copysign(math.sqrt(abs(e)), e) for e in normal.tolist()]
    weight = torch.tensor(
        [[layer.weight[o, i] + layer.weight_sigma[o, i] * f[5 + o] * f[i] for i in range(5)] for o in range(3)]
    )
    bias = torch.tensor([layer.bias[o] + layer.bias_sigma[o] * f[5 + o] for o in range(3)])
    torch.testing.assert_close(layer(X), X @ weight.T + bias)
    layer.quiet()
    torch.testing.assert_close(layer(X), X @ layer.weight.T + layer.bias)


def test_it_starts_in_the_ranges_of_the_paper_and_is_trained_whole():
    layer = NoisyLinear(100, 50)
    assert layer.weight.abs().max() <= 0.1 and layer.bias.abs().max() <= 0.1
    assert (layer.weight_sigma == 0.05).all() and (layer.bias_sigma == 0.05).all()
    layer.redraw(torch.randn(150))
    layer(torch.randn(4, 100)).square().sum().backward()
    assert all((p.grad != 0).any() for p in layer.parameters())


def test_the_noise_is_no_part_of_a_state():
    layer = NoisyLinear(5, 3)
    layer.redraw(torch.randn(8))
    assert sorted(layer.state_dict()) == ["bias", "bias_sigma", "weight", "weight_sigma"]


def networks():
    torch.manual_seed(0)
    net = nn.Sequential(NoisyLinear(5, 4), nn.ReLU(), NoisyLinear(4, 2))
    twin = nn.Sequential(NoisyLinear(5, 4), nn.ReLU(), NoisyLinear(4, 2))
    twin.load_state_dict(net.state_dict())
    return net, twin


def test_every_gradient_step_draws_anew_and_differently_for_each_network():
    net, target = networks()
    noise = NetworkNoise(0, net, target)
    noise.step()
    first = net(X), target(X)
    noise.step()
    second = net(X), target(X)
    outputs = [*first, *second]
    assert all(not torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])


def test_the_noise_of_a_block_depends_on_seed_and_key_alone():
    """So workers act alike, and a resumed run goes on as it was."""
    (net, _), (other, target) = networks(), networks()
    mine, theirs = NetworkNoise(3, net), NetworkNoise(3, other, target)
    mine.block(64)
    theirs.block(7), theirs.step(), theirs.off()
    before = torch.random.get_rng_state()
    theirs.block(64)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(net(X), other(X))
    wanted = net(X)
    mine.block(64)
    assert torch.equal(net(X), wanted)
    for changed in (NetworkNoise(4, net), mine):
        changed.block(64 if changed is not mine else 65)
        assert not torch.equal(net(X), wanted)


def test_an_evaluation_has_none_and_leaves_that_of_the_target_network():
    net, target = networks()
    noise = NetworkNoise(0, net, target)
    noise.step()
    seen = target(X)
    noise.off()
    plain = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    plain.load_state_dict({k: v for k, v in net.state_dict().items() if "sigma" not in k})
    assert torch.equal(net(X), plain(X)) and torch.equal(target(X), seen)


def test_probabilities_are_sampled_in_gradient_steps_alone():
    head = make_q_head("implicit", 5, 2, dueling=False, num_quantiles=4, layer_num=0, activation="relu", norm_type=None)
    noise = NetworkNoise(0, head)
    assert not noise.noisy
    noise.block(0)
    wanted = head(X)
    np.testing.assert_allclose(wanted["tau"][0], [0.125, 0.375, 0.625, 0.875])
    noise.step()
    drawn = head(X)["tau"]
    assert drawn.shape == (6, 4) and len(drawn.unique()) == 24
    noise.off()
    assert torch.equal(head(X)["logit"], wanted["logit"])


@pytest.mark.parametrize("call", ["step", "off"])
def test_a_plain_network_costs_no_random_number(call):
    before = torch.random.get_rng_state()
    net = nn.Linear(5, 2)
    after = torch.random.get_rng_state()
    noise = NetworkNoise(0, net)
    getattr(noise, call)(), noise.block(1)
    assert torch.equal(torch.random.get_rng_state(), after) and not torch.equal(before, after)
