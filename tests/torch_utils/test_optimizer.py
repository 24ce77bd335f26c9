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


def test_step_hooks_of_torch_are_told_of_every_step_and_change_nothing():
    """Adam steps by its functional form unless somebody listens."""
    torch.manual_seed(0)
    heard, nets = [], [nn.Linear(3, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [FlatOptimizer(net.parameters(), "adam", 0.1) for net in nets]
    optimizers[1].torch_optimizer.register_step_post_hook(lambda *_: heard.append(1))
    for _ in range(4):
        x = torch.randn(5, 3)
        for net, optimizer in zip(nets, optimizers):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    assert len(heard) == 4
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert optimizers[0].state_dict()["state"][0]["step"] == 4


def train(model, opt, steps=1):
    for step in range(steps):
        opt.zero_grad()
        loss(model, step).backward()
        opt.step()


def double(model):
    model.double().float()


def other_memory(model):
    model[2].bias.data = model[2].bias.data.clone()


def assigned(model):
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (double, "given other memory"),
        (other_memory, "given other memory"),
        (assigned, r"load_state_dict\(assign=True\)"),
    ],
)
def test_a_step_that_would_not_move_the_model_is_a_named_error(change, says):
    model = net()
    opt = FlatOptimizer(model.parameters())
    train(model, opt, 2)
    change(model)
    with pytest.raises(RuntimeError, match=f"would not move the model: .*{says}.*make a new FlatOptimizer"):
        train(model, opt)
    opt = FlatOptimizer(model.parameters())
    before = copy.deepcopy(model)
    train(model, opt)
    assert (model[0].weight != before[0].weight).any()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.to("cpu"),
        lambda m: m.float(),
        lambda m: m.share_memory(),
        lambda m: m.load_state_dict(net(3).state_dict()),
        lambda m: m.zero_grad(set_to_none=True),
    ],
)
def test_what_leaves_the_parameters_in_place_is_no_error(change):
    model = net()
    opt = FlatOptimizer(model.parameters())
    train(model, opt)
    change(model)
    before = copy.deepcopy(model)
    train(model, opt)
    assert (model[0].weight != before[0].weight).any()


@pytest.mark.parametrize("model_first", [True, False])
def test_a_deep_copy_with_the_model_trains_that_copy_and_with_the_same_numbers(model_first):
    model = net()
    opt = FlatOptimizer(model.parameters(), "adam", 0.01, grad_clip_norm=0.5, betas=(0.5, 0.9))
    train(model, opt, 3)
    opt.param_groups[0]["lr"] = 0.02
    pair = copy.deepcopy((model, opt) if model_first else (opt, model))
    twin, twin_opt = pair if model_first else pair[::-1]
    frozen = copy.deepcopy(model)
    train(twin, twin_opt, 2)
    assert_same(model, frozen, 0)
    assert (twin[0].weight != model[0].weight).any()
    train(model, opt, 2)
    assert_same(model, twin, 0)


@pytest.mark.parametrize(("kind", "other"), [("adam", "adamw"), ("adamw", "adam"), ("sgd", "rmsprop")])
def test_state_of_another_type_of_optimiser_is_refused_by_name(kind, other):
    state = FlatOptimizer(net().parameters(), kind).state_dict()
    with pytest.raises(ValueError, match=f"state is of type '{kind}', this optimiser of type '{other}'"):
        FlatOptimizer(net().parameters(), other).load_state_dict(state)
    with pytest.raises(ValueError, match="state is of type None"):
        FlatOptimizer(net().parameters(), kind).load_state_dict({"state": {}, "param_groups": []})


def test_training_leaves_a_state_that_was_loaded_as_it_was():
    model = nn.Linear(3, 2)
    optimizer = FlatOptimizer(model.parameters(), "adam", 0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(state)
    optimizer.load_state_dict(state)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for key, value in before["state"][0].items():
        assert torch.equal(value, state["state"][0][key]), key
