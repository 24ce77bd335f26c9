"""A step of a recurrent cell in NumPy against its step in torch: numbers, views of parameters, what goes to torch."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from ding_like.torch_utils import FlatOptimizer
from ding_like.torch_utils.network import recurrent
from ding_like.torch_utils.network.rnn import get_lstm

CELLS = [("pytorch", None), ("gru", None), ("normal", "LN"), ("normal", None), ("hpc", "LN"), ("hpc", None)]
B, SIZE, H = 5, 6, 8
every_cell = pytest.mark.parametrize(("kind", "norm"), CELLS)


def make(kind="pytorch", norm="LN", layers=1, **kwargs):
    torch.manual_seed(0)
    net = get_lstm(kind, SIZE, H, layers, norm_type=norm, **kwargs)
    for p in net.parameters():  # gates from closed to open
        nn.init.normal_(p, std=0.6)
    return net


def in_torch(net, xs, state=None):
    outputs = []
    with torch.no_grad():
        for x in xs:
            output, state = net.step(torch.as_tensor(x), state)
            outputs.append(output.numpy())
    return np.stack(outputs), {name: leaf.numpy() for name, leaf in state.items()}


def in_numpy(net, xs, state=None):
    outputs = []
    for x in xs:
        output, state = net.numpy_step(x, state)
        outputs.append(output)
    return np.stack(outputs), state


def inputs(steps, scale=2.0):
    return (scale * np.random.default_rng(0).normal(size=(steps, B, SIZE))).astype(np.float32)


def assert_equals_torch(net, steps=3, atol=1e-5):
    xs = inputs(steps)
    (got, state), (wanted, after) = in_numpy(net, xs), in_torch(net, xs)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)
    assert list(state) == list(after)
    for name, leaf in state.items():
        assert leaf.dtype == np.float32 and leaf.shape == after[name].shape
        np.testing.assert_allclose(leaf, after[name], rtol=0, atol=atol)
    return got


@pytest.mark.parametrize("layers", [1, 3])
@every_cell
def test_many_steps_equal_those_in_torch(kind, norm, layers):
    net = make(kind, norm, layers)
    assert net.numpy_ready()
    assert_equals_torch(net, 20)
    assert_equals_torch(net, 80, 5e-4)
    assert net._views is not None  # they ran in NumPy


@every_cell
def test_a_saturated_gate_and_a_large_input_are_finite(kind, norm):
    net, xs = make(kind, norm), inputs(3, 1e4)
    (got, _), (wanted, _) = in_numpy(net, xs), in_torch(net, xs)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@every_cell
def test_a_step_starts_at_a_given_state_and_leaves_it_and_the_input_alone(kind, norm):
    net = make(kind, norm, 2)
    x = inputs(1)[0]
    state = {n: np.random.default_rng(1).normal(size=(B, 2, H)).astype(np.float32) for n in net.state_names}
    before = copy.deepcopy((x, state))
    output, after = net.numpy_step(x, state)
    wanted, _ = in_torch(net, x[None], {n: torch.as_tensor(leaf) for n, leaf in state.items()})
    np.testing.assert_allclose(output, wanted[0], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(x, before[0])
    for name, leaf in state.items():
        np.testing.assert_array_equal(leaf, before[1][name])
        assert not np.shares_memory(leaf, after[name])


@every_cell
def test_the_initial_state_is_that_of_torch(kind, norm):
    net = make(kind, norm, 2)
    wanted = net.initial_state(3)
    got = net.numpy_initial_state(3)
    assert list(got) == list(wanted)
    for name, leaf in got.items():
        np.testing.assert_array_equal(leaf, wanted[name].numpy())


# ---------------------------------------------------------------- views of the parameters
@pytest.mark.parametrize("flat", [True, False])
@every_cell
def test_numpy_follows_an_optimiser(kind, norm, flat):
    net = make(kind, norm)
    before = assert_equals_torch(net)
    opt = FlatOptimizer(net.parameters(), lr=0.1) if flat else torch.optim.Adam(net.parameters(), 0.1)
    for _ in range(2):
        net.unroll(torch.as_tensor(inputs(3)))[0].square().sum().backward()
        opt.step()
    assert np.abs(assert_equals_torch(net) - before).max() > 1e-2


@every_cell
def test_numpy_follows_loaded_moved_and_replaced_parameters(kind, norm):
    net, other = make(kind, norm, 2), get_lstm(kind, SIZE, H, 2, norm_type=norm)
    first = assert_equals_torch(net)
    net.load_state_dict(other.state_dict())
    assert np.abs(assert_equals_torch(net) - first).max() > 1e-3
    for p in net.parameters():
        p.data = p.data * 2
    doubled = assert_equals_torch(net)
    net.load_state_dict(other.state_dict(), assign=True)
    assert np.abs(assert_equals_torch(net) - doubled).max() > 1e-3


@every_cell
def test_numpy_follows_a_replaced_layer(kind, norm):
    net, other = make(kind, norm), get_lstm(kind, SIZE, H, norm_type=norm)
    first = assert_equals_torch(net)
    if kind in ("normal", "hpc"):
        net.cells[0] = other.cells[0]
    else:
        net.core = other.core
    assert np.abs(assert_equals_torch(net) - first).max() > 1e-3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@every_cell
def test_a_copy_has_views_of_its_own(kind, norm, copied):
    net = make(kind, norm)
    wanted = assert_equals_torch(net)
    twin = copied(net)
    for p in net.parameters():
        p.data.zero_()
    np.testing.assert_array_equal(in_numpy(twin, inputs(3))[0], wanted)
    assert (in_numpy(net, inputs(3))[0] == 0).all()


# ---------------------------------------------------------------- what torch does
def assert_runs_in_torch(net):
    wanted, _ = in_torch(net, inputs(3))
    np.testing.assert_array_equal(in_numpy(net, inputs(3))[0], wanted)
    assert net._views is None


@every_cell
def test_a_large_product_stays_in_torch(kind, norm, monkeypatch):
    net = make(kind, norm)
    monkeypatch.setattr(recurrent, "LARGEST", B * H * H)
    assert_equals_torch(net)
    assert net._views is not None
    monkeypatch.setattr(recurrent, "LARGEST", B * H * H - 1)
    assert_runs_in_torch(make(kind, norm))


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@every_cell
def test_a_parametrized_weight_runs_in_torch(kind, norm):
    net = make(kind, norm)
    assert_equals_torch(net)
    owner, name = (net.cells[0], "weight_h") if kind in ("normal", "hpc") else (net.core, "weight_hh_l0")
    parametrize.register_parametrization(owner, name, Doubled())
    assert_runs_in_torch(net)


@pytest.mark.parametrize("kind", ["pytorch", "normal"])
def test_a_cell_of_ones_own_runs_in_torch(kind):
    net = make(kind)

    class Own(type(net)):
        def _cell(self, layer, x, hidden):
            return super()._cell(layer, x.cos(), hidden)

    plain = in_torch(net, inputs(3))[0]
    net.__class__ = Own
    assert_runs_in_torch(net)
    assert np.abs(in_numpy(net, inputs(3))[0] - plain).max() > 1e-3


def test_dropout_acts_while_training_alone():
    net, xs = make("pytorch", layers=2, dropout=0.5), inputs(3)
    assert np.abs(in_numpy(net, xs)[0] - in_numpy(net, xs)[0]).max() > 1e-3
    net.eval()
    assert_equals_torch(net)
    assert net._views is not None


def test_other_number_types_are_not_ready():
    net = make()
    assert_equals_torch(net)
    assert not net.double().numpy_ready() and net.float().numpy_ready()
    assert_equals_torch(net)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"h": np.zeros((B, 1, H), np.float32)}, r"the state of FusedRNN is \['h'\]; wanted a dictionary of"),
        (
            {name: np.zeros((1, 1, H), np.float32) for name in "hc"},
            r"state\['h'\] has shape \(1, 1, 8\); wanted \[B, layers, H\] = \(5, 1, 8\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_named(state, told):
    with pytest.raises(ValueError, match=told):
        make().numpy_step(inputs(1)[0], state)
