"""The flat optimiser equals torch's optimisers over separate parameters."""

import copy

import pytest
import torch
from torch import nn

from ding_like.torch_utils import FlatOptimizer

TORCH = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
KWARGS = [
    ("adam", {}),
    ("adam", {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("adamw", {"weight_decay": 0.1}),
    ("rmsprop", {"alpha": 0.9, "momentum": 0.5, "centered": True}),
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
]


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss(model, step=0, scale=1.0):
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    return scale * (model(x) - x[:, :2]).square().mean()


def assert_same(a, b, tolerance=1e-6):
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "kwargs"), KWARGS, ids=str)
def test_every_step_equals_torch(kind, kwargs):
    a, b = net(), net()
    flat, plain = FlatOptimizer(a.parameters(), kind, lr=0.01, **kwargs), TORCH[kind](b.parameters(), 0.01, **kwargs)
    for step in range(10):
        for model, opt in ((a, flat), (b, plain)):
            opt.zero_grad()
            loss(model, step).backward()
            opt.step()
        assert_same(a, b)
    assert (a[0].weight - net()[0].weight).abs().max() > 1e-3


@pytest.mark.parametrize("scale", [1e-3, 100.0])
def test_clipping_equals_clip_grad_norm(scale):
    a, b = net(), net()
    flat, plain = FlatOptimizer(a.parameters(), "sgd", 0.1, grad_clip_norm=0.5), torch.optim.SGD(b.parameters(), 0.1)
    for step in range(3):
        flat.zero_grad()
        loss(a, step, scale).backward()
        got = flat.step()
        plain.zero_grad()
        loss(b, step, scale).backward()
        wanted = nn.utils.clip_grad_norm_(b.parameters(), 0.5)
        plain.step()
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-7)
        assert_same(a, b)
    assert (wanted > 0.5) == (scale > 1)


def test_gradients_set_to_none_by_others_are_taken_up_again():
    a, b = net(), net()
    flat, plain = FlatOptimizer(a.parameters(), "adam", 0.01), torch.optim.Adam(b.parameters(), 0.01)
    for step in range(4):
        a.zero_grad(set_to_none=True)
        plain.zero_grad()
        for model, opt in ((a, flat), (b, plain)):
            loss(model, step).backward()
            opt.step()
        assert_same(a, b)


def test_a_parameter_without_gradient_does_not_keep_an_old_one():
    model = net()
    opt = FlatOptimizer(model.parameters(), "sgd", 0.1)
    loss(model).backward()
    opt.step()
    head = model[2].weight.detach().clone()
    model.zero_grad(set_to_none=True)
    model[0](torch.ones(1, 3)).sum().backward()  # the second layer takes no part
    opt.step()
    torch.testing.assert_close(model[2].weight, head, rtol=0, atol=0)


def test_zero_grad_keeps_the_gradient_tensors():
    model = net()
    opt = FlatOptimizer(model.parameters())
    grads = [p.grad for p in model.parameters()]
    loss(model).backward()
    opt.zero_grad()
    assert all(p.grad is g and (g == 0).all() for p, g in zip(model.parameters(), grads))


def test_parameters_keep_values_shapes_and_names():
    a, b = net(), net()
    FlatOptimizer(a.parameters())
    assert a.state_dict().keys() == b.state_dict().keys()
    assert_same(a, b, 0)


def test_state_dict_round_trip_goes_on_with_the_same_numbers():
    a = net()
    opt = FlatOptimizer(a.parameters(), "adam", 0.01)
    for step in range(3):
        opt.zero_grad()
        loss(a, step).backward()
        opt.step()
    state, weights = copy.deepcopy(opt.state_dict()), copy.deepcopy(a.state_dict())
    b = net(1)
    other = FlatOptimizer(b.parameters(), "adam", 0.5)
    b.load_state_dict(weights)
    other.load_state_dict(state)
    for model, o in ((a, opt), (b, other)):
        o.zero_grad()
        loss(model, 9).backward()
        o.step()
    assert_same(a, b, 0)


def test_state_of_another_network_is_a_named_error():
    a, b = net(), nn.Linear(3, 2)
    opt = FlatOptimizer(a.parameters())
    loss(a).backward()
    opt.step()
    with pytest.raises(ValueError, match="'exp_avg' holds 50 numbers; this model has 8 parameters"):
        FlatOptimizer(b.parameters()).load_state_dict(opt.state_dict())


def test_state_of_another_optimiser_is_a_named_error():
    a = net()
    opt = FlatOptimizer(a.parameters(), "rmsprop")
    loss(a).backward()
    opt.step()
    with pytest.raises(ValueError, match="optimiser"):
        FlatOptimizer(net().parameters(), "adam").load_state_dict(opt.state_dict())


def test_a_deep_copy_of_the_model_is_independent():
    a = net()
    opt = FlatOptimizer(a.parameters(), "sgd", 0.1)
    twin = copy.deepcopy(a)
    loss(a).backward()
    opt.step()
    assert_same(twin, net(), 0)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert all((p != 0).any() for p in a.parameters())


def test_frozen_and_repeated_parameters():
    model = net()
    model[0].bias.requires_grad_(False)
    frozen = model[0].bias.detach().clone()
    opt = FlatOptimizer([*model.parameters(), *model.parameters()], "sgd", 0.1)
    assert opt.param_groups[0]["params"][0].numel() == 24 + 16 + 2
    loss(model).backward()
    opt.step()
    torch.testing.assert_close(model[0].bias, frozen, rtol=0, atol=0)


def test_learning_rate_is_read_from_param_groups():
    model = net()
    opt = FlatOptimizer(model.parameters(), "sgd", 0.1)
    opt.param_groups[0]["lr"] = 0.0
    loss(model).backward()
    opt.step()
    assert_same(model, net(), 0)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"optimiser type is 'adamm'.*Did you mean 'adam'"):
        FlatOptimizer(net().parameters(), "adamm")
    with pytest.raises(ValueError, match="no parameter to train"):
        FlatOptimizer([])
    with pytest.raises(ValueError, match="several dtypes"):
        FlatOptimizer([*net().parameters(), *net().double().parameters()])
