"""Heads of Q-networks: what they compute, in torch and NumPy, alone and in the templates."""

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.model.build import make_model
from ding_like.model.template.drqn import DRQN
from ding_like.model.template.q_learning import DQN
from ding_like.torch_utils.network.noisy import NetworkNoise
from ding_like.torch_utils.network.q_heads import make_q_head

H, A = 8, 3
X = torch.as_tensor(np.random.default_rng(0).normal(size=(2, 5, H)).astype(np.float32))
KINDS = ["distribution", "quantile", "implicit"]
EXTRA = {"q": set(), "distribution": {"distribution", "atom_logit"}, "quantile": {"q", "tau"}, "implicit": {"q", "tau"}}


def head(kind, dueling=True, noisy=False, layer_num=1, **kwargs):
    torch.manual_seed(0)
    how = dict(layer_num=layer_num, activation="relu", norm_type=None, noisy=noisy)
    return make_q_head(kind, H, A, dueling, **how, **kwargs)


@pytest.mark.parametrize("dueling", [True, False])
def test_the_values_are_expectations_of_the_distributions(dueling):
    net = head("distribution", dueling, n_atom=7, v_min=-3.0, v_max=6.0)
    out = net(X)
    assert out["distribution"].shape == out["atom_logit"].shape == (2, 5, A, 7)
    torch.testing.assert_close(out["distribution"].sum(-1), torch.ones(2, 5, A))
    atoms = torch.tensor([-3.0, -1.5, 0, 1.5, 3, 4.5, 6])
    torch.testing.assert_close(out["logit"], (out["distribution"] * atoms).sum(-1))
    torch.testing.assert_close(out["atom_logit"].softmax(-1), out["distribution"])


@pytest.mark.parametrize("kind", ["quantile", "implicit"])
def test_the_values_are_means_of_the_quantiles(kind):
    out = head(kind, num_quantiles=5)(X)
    assert out["q"].shape == (2, 5, A, 5) and out["tau"].shape == (2, 5, 5)
    torch.testing.assert_close(out["logit"], out["q"].mean(-1))
    torch.testing.assert_close(out["tau"][1, 3], torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]))


@pytest.mark.parametrize("kind", ["distribution", "quantile"])
def test_each_number_is_dueling_by_itself(kind):
    """Wang 2016, eq. 9."""
    net = head(kind, num_quantiles=4, n_atom=4)
    out = net(X)["atom_logit" if kind == "distribution" else "q"]
    torch.testing.assert_close(out.mean(-2), net.streams.V(X))
    a = net.streams.A(X).reshape(2, 5, A, 4)
    torch.testing.assert_close(out[..., 0, :] - out[..., 1, :], a[..., 0, :] - a[..., 1, :])


def test_an_implicit_quantile_is_a_function_of_its_probability():
    """Dabney 2018b, eq. 4, written out for one item and one probability."""
    net = head("implicit", dueling=False, layer_num=0, num_quantiles=3, quantile_embedding_size=5)
    net.sampling = True
    out = net(X)
    x, tau = X[1, 2], out["tau"][1, 2, 0]
    weight, bias = net.phi[0].weight, net.phi[0].bias
    phi = torch.relu(sum(torch.cos(torch.pi * i * tau) * weight[:, i] for i in range(5)) + bias)
    torch.testing.assert_close(out["q"][1, 2, :, 0], net.streams.A(x * phi), rtol=1e-4, atol=1e-5)
    assert len(out["tau"].unique()) == 30


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_gives_the_values_of_torch(kind, dueling):
    net = head(kind, dueling, num_quantiles=6)
    assert net.numpy_ready()
    np.testing.assert_allclose(net.numpy_forward(X[0].numpy()), net(X[0])["logit"].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["q", *KINDS])
def test_a_noisy_head_has_no_plain_layer_in_its_streams_and_acts_in_torch(kind):
    net = head(kind, noisy=True)
    assert not any(type(m) is torch.nn.Linear for name, m in net.named_modules() if not name.startswith("phi"))
    assert not net.numpy_ready()


# ---------------------------------------------------------------- in the templates
@pytest.mark.parametrize("kind", EXTRA)
def test_both_templates_take_every_head(kind):
    sizes = dict(encoder_hidden_size_list=[H], head_type=kind)
    out = DQN(4, A, **sizes)(torch.rand(5, 4))
    assert set(out) == {"logit", *EXTRA[kind]} and out["logit"].shape == (5, A)
    net = DRQN(4, A, **sizes, lstm_type="gru")
    out = net({"obs": torch.rand(6, 5, 4)})
    assert set(out) == {"logit", "next_state", *EXTRA[kind]} and out["logit"].shape == (6, 5, A)
    assert all(value.shape[:2] == (6, 5) for name, value in out.items() if name != "next_state")


@pytest.mark.parametrize("cls", [DQN, DRQN])
@pytest.mark.parametrize("kind", KINDS)
def test_templates_act_in_numpy(cls, kind):
    net, obs = cls(4, A, [H], head_type=kind), np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert net.numpy_ready()
    if cls is DQN:
        got, wanted = net.numpy_forward(obs), net(torch.as_tensor(obs))
    else:
        got = net.numpy_forward({"obs": obs, "prev_state": None})
        wanted = net({"obs": torch.as_tensor(obs), "prev_state": None}, inference=True)
    np.testing.assert_allclose(got["logit"], wanted["logit"].detach(), rtol=1e-4, atol=1e-5)


def test_the_encoder_of_images_is_chosen_by_name():
    kinds = [type(DQN([4, 16, 16], A, [4, 8], encoder_type=kind).encoder).__name__ for kind in ("conv", "residual")]
    assert kinds == ["ConvEncoder", "ResidualEncoder"]


def test_every_parameter_is_trained_by_what_its_head_gives():
    for kind, name in {"distribution": "atom_logit", "quantile": "q", "implicit": "q"}.items():
        net = DQN(4, A, [H], head_type=kind, noisy=True)
        NetworkNoise(0, net).step()
        net(torch.rand(64, 4))[name].square().sum().backward()
        assert all(p.grad is not None and (p.grad != 0).any() for p in net.parameters()), kind


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            dict(head_type="distributions"),
            r"head_type: got .distributions., wanted one of .q., .*did you mean .distribution..",
        ),
        (dict(n_atom=1), "policy.model.n_atom: got 1, wanted an integer of at least 2"),
        (
            dict(head_type="distribution", v_min=3.0, v_max=3.0),
            r"v_min is 3.0 and v_max is 3.0; wanted a v_max above v_min",
        ),
        (dict(num_quantiles=0), "policy.model.num_quantiles: got 0"),
    ],
)
def test_wrong_sizes_are_named(section, told):
    with pytest.raises(ConfigError, match=told):
        make_model(section, lambda: ("dqn", []), dict(obs_shape=4, action_shape=2))
