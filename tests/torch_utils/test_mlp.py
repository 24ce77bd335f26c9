"""The NumPy forward of MLPs and Q-networks: the same numbers as torch, whatever was done to the parameters."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.q_learning import DQN
from ding_like.torch_utils import MLP, DiscreteHead, FlatOptimizer, VectorEncoder
from ding_like.torch_utils.network.mlp import make_activation

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def assert_numpy_equals_torch(model, x=X):
    with torch.no_grad():
        wanted = model(torch.as_tensor(x))
    got = model.numpy_forward(x)
    if isinstance(wanted, dict):
        wanted, got = wanted["logit"], got["logit"]
    np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-6, atol=1e-6)
    return got


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("last", [True, False])
def test_mlp_in_numpy_equals_torch(activation, last):
    mlp = MLP([4, 16, 8], activation, last_activation=last)
    assert mlp.numpy_ready() and mlp.output_size == 8
    assert_numpy_equals_torch(mlp)


def test_layer_norm_in_numpy_equals_torch_and_follows_its_parameters():
    mlp = MLP([4, 16, 8], norm_type="LN")
    assert mlp.numpy_ready()
    for scale in (1.0, 100.0):
        assert_numpy_equals_torch(mlp, scale * X)
    with torch.no_grad():
        for p in mlp.parameters():
            p.add_(torch.randn_like(p))
    before = assert_numpy_equals_torch(mlp)
    mlp[1].bias.data = mlp[1].bias.data + 1
    assert np.abs(assert_numpy_equals_torch(mlp) - before).max() > 0.1


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("norm", [None, "LN"])
def test_q_network_in_numpy_equals_torch(dueling, layers, norm):
    net = DQN(4, 3, [16, 8], dueling=dueling, head_layer_num=layers, norm_type=norm)
    assert net.numpy_ready() and assert_numpy_equals_torch(net).shape == (5, 3)


def test_the_input_is_left_as_it_is():
    x = X.copy()
    MLP([4, 4], "relu").numpy_forward(x)
    DQN(4, 3, [16]).numpy_forward(x)
    np.testing.assert_array_equal(x, X)


def test_normalised_q_network_in_numpy_equals_torch():
    net = NormalizedModel(DQN(4, 3, [16]), 4)
    net.update(np.random.default_rng(1).normal(3, 5, (100, 4)))
    assert net.numpy_ready()
    assert_numpy_equals_torch(net, 4 * X)
    before = net.numpy_forward(X)["logit"].copy()
    net.update(100 + X)
    assert np.abs(net.numpy_forward(X)["logit"] - before).max() > 1e-3
    assert_numpy_equals_torch(net, 4 * X)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
def test_vectors_of_other_dtypes_are_computed_in_float32(dtype):
    net = DQN(4, 3, [16])
    x = np.arange(20).reshape(5, 4).astype(dtype)
    assert assert_numpy_equals_torch(net, x.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(net.numpy_forward(x)["logit"], net.numpy_forward(x.astype(np.float32))["logit"])


@pytest.mark.parametrize("kind", ["flat", "plain"])
def test_numpy_follows_an_optimiser(kind):
    net = DQN(4, 3, [16])
    net.numpy_forward(X)  # views exist before the parameters move
    opt = FlatOptimizer(net.parameters(), lr=0.1) if kind == "flat" else torch.optim.Adam(net.parameters(), 0.1)
    before = assert_numpy_equals_torch(net)
    for _ in range(2):
        net(torch.as_tensor(X))["logit"].square().sum().backward()
        opt.step()
    assert np.abs(assert_numpy_equals_torch(net) - before).max() > 1e-2


def test_numpy_follows_load_state_dict_and_new_storage():
    net, other = DQN(4, 3, [16]), DQN(4, 3, [16])
    net.numpy_forward(X)
    net.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(assert_numpy_equals_torch(net), other.numpy_forward(X)["logit"])
    for p in net.parameters():
        p.data = p.data * 2
    assert_numpy_equals_torch(net)
    net.load_state_dict(other.state_dict(), assign=True)
    np.testing.assert_array_equal(assert_numpy_equals_torch(net), other.numpy_forward(X)["logit"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_has_views_of_its_own(copied):
    net = DQN(4, 3, [16])
    wanted = net.numpy_forward(X)["logit"].copy()
    twin = copied(net)
    for p in net.parameters():
        p.data.zero_()
    np.testing.assert_array_equal(twin.numpy_forward(X)["logit"], wanted)
    assert (net.numpy_forward(X)["logit"] == 0).all()
    assert_numpy_equals_torch(twin)


def test_numpy_is_not_ready_for_other_number_types():
    net = DQN(4, 3, [16])
    assert net.numpy_ready() and not net.double().numpy_ready() and net.float().numpy_ready()
    assert_numpy_equals_torch(net)


@pytest.mark.parametrize("net", [MLP([4, 8], "gelu"), DQN(4, 2, activation="elu")])
def test_numpy_is_not_ready_for_layers_it_does_not_know(net):
    assert not net.numpy_ready()


def test_numpy_is_not_ready_for_other_observations():
    assert not DQN([3, 4], 2).numpy_ready() and not DQN({"@one_hot": [5]}, 2).numpy_ready()
    assert not DQN([1, 8, 8], 2).numpy_ready() and not DQN({"a": 3}, 2).numpy_ready()


def test_layer_norm_stands_before_each_activation():
    mlp = MLP([4, 8, 2], norm_type="LN", last_activation=False)
    assert [type(m) for m in mlp] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear]


def test_activations_by_name_class_and_module():
    own = nn.Softplus()
    assert make_activation(own) is own
    assert isinstance(make_activation(nn.Sigmoid), nn.Sigmoid) and isinstance(make_activation("silu"), nn.SiLU)
    with pytest.raises(ValueError, match=r"activation is 'rellu'; wanted one of"):
        MLP([4, 2], "rellu")
    with pytest.raises(ValueError, match="norm_type is 'BN'"):
        MLP([4, 2], norm_type="BN")


def replaced_layer(net):
    net.encoder.main[0] = nn.Linear(4, 16)


def replaced_activation(net):
    net.encoder.main[1] = nn.Tanh()


def replaced_head(net):
    net.head = DiscreteHead(8, 3, layer_num=0)


def replaced_encoder(net):
    net.encoder = VectorEncoder(4, [8])


def added_layer(net):
    net.encoder.main.append(nn.Linear(8, 8))


def replaced_parameter(net):
    net.encoder.main[0].weight = nn.Parameter(torch.ones(16, 4))


def linear_head(net):
    net.head = nn.Linear(8, 3)


def plain_encoder(net):
    net.encoder.main = nn.Sequential(nn.Linear(4, 8), nn.GELU())


def spectral_norm(net):
    nn.utils.parametrizations.spectral_norm(net.encoder.main[0])


def weight_norm(net):
    nn.utils.parametrizations.weight_norm(net.head.Q[0])


def without_bias(net):
    net.encoder.main[0] = nn.Linear(4, 16, bias=False)


def bias_taken_away(net):
    net.encoder.main[0].bias = None


def layer_norm_without_scale(net):
    net.encoder.main.insert(1, nn.LayerNorm(16, elementwise_affine=False))


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def own_layer(net):
    net.encoder.main[0] = Doubling(4, 16)


STILL_NUMPY = [replaced_layer, replaced_activation, replaced_head, replaced_encoder, added_layer, replaced_parameter]
IN_TORCH = [linear_head, plain_encoder, spectral_norm, weight_norm, without_bias, bias_taken_away, own_layer]


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("change", [*STILL_NUMPY, *IN_TORCH, layer_norm_without_scale], ids=lambda f: f.__name__)
def test_numpy_follows_layers_that_are_replaced_after_construction(change, used):
    net = DQN(4, 3, [16, 8], dueling=False).eval()
    before = net.numpy_forward(X)["logit"] if used else None
    change(net)
    net.eval()
    assert net.numpy_ready() == (change in STILL_NUMPY)
    for _ in range(2):
        after = assert_numpy_equals_torch(net)
    assert before is None or change is weight_norm or np.abs(after - before).max() > 1e-4
    for p in net.parameters():
        p.data = p.data + 0.5
    assert np.abs(assert_numpy_equals_torch(net) - after).max() > 1e-4


def test_numpy_is_not_ready_for_a_subclass_with_a_forward_of_its_own():
    class Doubled(DQN):
        def forward(self, x):
            return {"logit": 2 * super().forward(x)["logit"]}

    assert not Doubled(4, 3, [16]).numpy_ready()


def test_a_mistake_inside_the_numpy_forward_is_not_hidden():
    class Broken(VectorEncoder):
        def numpy_forward(self, x):
            return x.no_such_attribute

    net = DQN(4, 3, [8])
    net.encoder = Broken(4, [8])
    with pytest.raises(AttributeError, match="no_such_attribute"):
        net.numpy_forward(X)
