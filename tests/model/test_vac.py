"""The `vac` model: outputs of every action space and encoder, its NumPy forward, initial weights, wrong arguments."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, tree_leaves
from ding_like.model.build import make_model
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.vac import VAC
from ding_like.utils import MODEL_REGISTRY

MODES = ["compute_actor", "compute_critic", "compute_actor_critic"]
SPACES = {"discrete": 3, "multi_discrete": [3, 2, 4], "continuous": 2}
SPECS = {
    "vector": (4, lambda lead: torch.rand(*lead, 4)),
    "matrix": ([2, 3], lambda lead: torch.rand(*lead, 2, 3)),
    "image": ([3, 12, 12], lambda lead: torch.randint(255, (*lead, 3, 12, 12)).to(torch.uint8)),
    "dict": (
        {"pos": 4, "cam": [8, 8, 1], "kind": {"@one_hot": [5]}},
        lambda lead: ArrayDict(
            pos=torch.rand(*lead, 4), cam=torch.rand(*lead, 8, 8, 1), kind=torch.randint(5, lead, dtype=torch.int64)
        ),
    ),
}
X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def make(space="discrete", spec=4, widths=(16, 8), **kwargs):
    return VAC(spec, SPACES[space], space, encoder_hidden_size_list=list(widths), **kwargs)


def shapes_of(logit):
    if isinstance(logit, dict):
        assert list(logit) == ["mu", "sigma"]
    return [tuple(leaf.shape) for leaf in tree_leaves(logit)]


def random_parameters(net, scale=0.3):
    """Away from the initial weights, under which the policy's outputs are near 0."""
    with torch.no_grad():
        for p in net.parameters():
            p.add_(scale * torch.randn_like(p))
    return net


def assert_numpy_equals_torch(net, x=X, modes=MODES, atol=1e-6):
    for mode in modes:
        with torch.no_grad():
            wanted = net(torch.as_tensor(x), mode=mode)
        got = net.numpy_forward(x, mode=mode)
        assert list(got) == list(wanted)
        for a, b in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
            assert type(a) is np.ndarray and a.dtype == np.float32 and a.shape == tuple(b.shape)
            np.testing.assert_allclose(a, b.numpy(), rtol=2e-6, atol=atol)
    return net.numpy_forward(x)


def test_it_is_registered():
    assert MODEL_REGISTRY.get("vac") is VAC


@pytest.mark.parametrize(("kind", "widths", "convolutions"), [("conv", [16, 32], 2), ("residual", [16, 32, 32], 15)])
def test_the_networks_of_espeholt_2018_by_arguments(kind, widths, convolutions):
    """Figure 3: convolutions, 256 features, last action and reward beside them, an LSTM of 256, two linear heads."""
    previous = dict(use_prev_action=True, use_prev_reward=True)
    heads = dict(actor_head_layer_num=0, critic_head_layer_num=0)
    torch.manual_seed(0)
    net = make(spec=[3, 72, 96], widths=[*widths, 256], encoder_type=kind, lstm_type="pytorch", **previous, **heads)
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == convolutions
    assert net.memory.rnn.input_size == 256 + 3 + 1 and net.memory.rnn.hidden_size == 256
    assert net.actor_head(torch.zeros(1, 256)).shape == (1, 3) and len(list(net.critic_head.parameters())) == 2
    x = dict(obs=torch.zeros(2, 1, 3, 72, 96, dtype=torch.uint8), prev_state=None)
    assert 0.1 < net.encoder(torch.randint(0, 256, (4, 3, 72, 96), dtype=torch.uint8)).std() < 3, "at the start"
    out = net(x | dict(prev_action=torch.tensor([[-1], [2]]), prev_reward=torch.zeros(2, 1)))
    assert out["logit"].shape == (2, 1, 3) and out["value"].shape == (2, 1)


# ---------------------------------------------------------------- shapes
@pytest.mark.parametrize("lead", [(5,), (1,), (3, 2)])
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("space", SPACES)
def test_outputs_keep_the_leading_axes(space, kind, lead):
    spec, data = SPECS[kind]
    net = make(space, spec)
    out = net(data(lead))
    assert list(out) == ["logit", "value"] and out["value"].shape == lead
    wanted = {"discrete": [3], "multi_discrete": [3, 2, 4], "continuous": [2, 2]}[space]
    assert shapes_of(out["logit"]) == [(*lead, n) for n in wanted]
    if space == "multi_discrete":
        assert type(out["logit"]) is tuple


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", SPACES)
def test_a_mode_gives_its_part_of_all_outputs(space, share):
    net, x = make(space, share_encoder=share), torch.as_tensor(X)
    full, actor, critic = net(x), net(x, mode="compute_actor"), net(x, mode="compute_critic")
    assert list(actor) == ["logit"] and list(critic) == ["value"]
    assert torch.equal(critic["value"], full["value"])
    assert all(map(torch.equal, tree_leaves(actor["logit"]), tree_leaves(full["logit"])))


def test_an_unknown_mode_is_named():
    for call in (make().forward, make().numpy_forward):
        with pytest.raises(ValueError, match=r"mode is 'actor'; wanted one of \['compute_actor', .*actor_critic'\]"):
            call(X, mode="actor")


def test_the_mask_of_a_dict_observation_is_not_seen_by_the_network():
    net, x = make(spec={"pos": 4}), torch.as_tensor(X)
    both = ArrayDict(pos=x, action_mask=torch.ones(5, 3))
    assert torch.equal(net(both)["logit"], net({"pos": x})["logit"])
    normal = NormalizedModel(net, {"pos": 4})
    normal.update(ArrayDict(pos=3 + X, action_mask=np.ones((5, 3))))
    assert torch.equal(normal(both)["logit"], normal({"pos": x})["logit"])
    assert not torch.equal(normal(both)["value"], net(both)["value"])


def test_a_continuous_action_of_several_axes_is_flattened():
    assert VAC(4, [2, 3], "continuous")(torch.rand(5, 4))["logit"]["mu"].shape == (5, 6)


# ---------------------------------------------------------------- encoders
def test_a_shared_encoder_learns_from_both_and_separate_ones_from_their_own():
    shared, apart = make(), make(share_encoder=False)
    assert shared.actor[0] is shared.critic[0] is shared.encoder
    assert apart.actor[0] is apart.actor_encoder and apart.critic[0] is apart.critic_encoder
    apart(torch.as_tensor(X))["value"].sum().backward()
    assert all(p.grad is None for p in apart.actor.parameters())
    assert all(p.grad is not None for p in apart.critic.parameters())
    shared(torch.as_tensor(X))["value"].sum().backward()
    assert all(p.grad is not None for p in shared.encoder.parameters())


def test_every_parameter_is_saved_once_and_reached_once():
    for net in (make(), make(share_encoder=False)):
        assert len(net.state_dict()) == len(list(net.parameters())) == len(dict(net.named_parameters()))


def test_no_hidden_layer_in_the_heads_is_the_usual_two_networks():
    """64 x 64 tanh, apart: 2 * (4*64+64 + 64*64+64) + (64*2+2) + (64+1) parameters, Linear-tanh-Linear-tanh-Linear."""
    net = VAC(
        4,
        2,
        share_encoder=False,
        encoder_hidden_size_list=[64, 64],
        actor_head_layer_num=0,
        critic_head_layer_num=0,
        activation="tanh",
    )
    assert sum(p.numel() for p in net.parameters()) == 2 * (320 + 4160) + 130 + 65
    x = torch.as_tensor(X)
    for part, out in ((net.actor, net(x)["logit"]), (net.critic, net(x)["value"].unsqueeze(-1))):
        first, second, last = [m for m in part.modules() if isinstance(m, nn.Linear)]
        assert torch.equal(last(torch.tanh(second(torch.tanh(first(x))))), out)


def test_head_widths_follow_the_arguments():
    net = make(actor_head_hidden_size=12, actor_head_layer_num=2, critic_head_hidden_size=20, critic_head_layer_num=1)
    sizes = [[m.in_features for m in part[1].modules() if isinstance(m, nn.Linear)] for part in (net.actor, net.critic)]
    assert sizes == [[8, 12, 12], [8, 20]]


def test_norm_and_activation_reach_every_part():
    kinds = [type(m).__name__ for m in make(activation="tanh", norm_type="LN", share_encoder=False).modules()]
    assert kinds.count("LayerNorm") == kinds.count("Tanh") == 6 and "ReLU" not in kinds


# ---------------------------------------------------------------- initial weights
@pytest.mark.parametrize("space", SPACES)
def test_initial_weights_are_orthogonal_with_small_policy_outputs(space):
    net = make(space, widths=(32, 16), share_encoder=False, sigma_type="conditioned")
    outputs = {id(stream[-1]): 0.01 for stream in net.actor_head.children()} | {id(net.critic_head.V[-1]): 1.0}
    for m in net.modules():
        if isinstance(m, nn.Linear):
            assert not m.bias.any()
            w = m.weight.detach().double()
            w = w if w.shape[0] <= w.shape[1] else w.T  # rows orthonormal
            gain = outputs.get(id(m), math.sqrt(2))
            torch.testing.assert_close(w @ w.T, gain**2 * torch.eye(len(w)).double(), atol=1e-5, rtol=0)


def test_torch_weights_where_they_are_asked_for():
    assert any(m.bias.any() for m in make(orthogonal_init=False).modules() if isinstance(m, nn.Linear))


# ---------------------------------------------------------------- the deviation
@pytest.mark.parametrize("numpy", [False, True])
def test_sigma_starts_where_told_and_is_positive(numpy):
    for kind, sigma in (("independent", 0.5), ("conditioned", 0.5), ("fixed", 0.2)):
        net = make("continuous", sigma_type=kind, init_sigma=0.5, fixed_sigma_value=0.2)
        out = net.numpy_forward(X) if numpy else net(torch.as_tensor(X))
        got = np.asarray(out["logit"]["sigma"].tolist())
        np.testing.assert_allclose(got, np.full((5, 2), sigma), rtol=0.05 if kind == "conditioned" else 1e-6)


def test_only_a_conditioned_sigma_depends_on_the_state():
    for kind in ("independent", "conditioned", "fixed"):
        sigma = random_parameters(make("continuous", sigma_type=kind))(torch.as_tensor(X))["logit"]["sigma"]
        assert (sigma.std(0) > 0).all() == (kind == "conditioned") and (sigma > 0).all()


@pytest.mark.parametrize(("bias", "log_sigma"), [(100.0, 2.0), (-100.0, -20.0)])
def test_a_conditioned_sigma_stays_in_its_range(bias, log_sigma):
    net = make("continuous", sigma_type="conditioned")
    net.actor_head.sigma[-1].bias.data.fill_(bias)
    for sigma in (net(torch.as_tensor(X))["logit"]["sigma"].detach().numpy(), net.numpy_forward(X)["logit"]["sigma"]):
        np.testing.assert_allclose(np.log(sigma), np.full((5, 2), log_sigma), rtol=1e-6)


def test_an_independent_sigma_learns_and_a_fixed_one_has_no_parameter():
    net = make("continuous")
    net(torch.as_tensor(X))["logit"]["sigma"].sum().backward()
    assert net.actor_head.log_sigma.grad.tolist() == [5, 5]  # d exp(s) / ds at 0, summed over rows
    assert not any("sigma" in name for name in make("continuous", sigma_type="fixed").state_dict())


def test_tanh_bounds_mu():
    net = make("continuous", bound_type="tanh")
    free = make("continuous")
    for n in (net, free):
        n.actor_head.mu[-1].bias.data.fill_(3.0)
    assert (free(torch.as_tensor(X))["logit"]["mu"] > 2).all()
    for mu in (net(torch.as_tensor(X))["logit"]["mu"].detach().numpy(), net.numpy_forward(X)["logit"]["mu"]):
        assert (mu < 1).all() and (mu > 0.98).all()


# ---------------------------------------------------------------- NumPy
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("norm", [None, "LN"])
@pytest.mark.parametrize("space", SPACES)
def test_numpy_equals_torch(space, norm, layers, share):
    heads = dict(actor_head_layer_num=layers, critic_head_layer_num=layers)
    net = make(space, share_encoder=share, norm_type=norm, activation="tanh", **heads)
    assert net.numpy_ready()
    assert_numpy_equals_torch(random_parameters(net), atol=4e-6)


@pytest.mark.parametrize("kind", ["independent", "conditioned", "fixed"])
@pytest.mark.parametrize("bound", [None, "tanh"])
def test_numpy_gaussians_equal_torch(kind, bound):
    net = random_parameters(make("continuous", sigma_type=kind, bound_type=bound))
    assert net.numpy_ready() and assert_numpy_equals_torch(net, atol=4e-6)["logit"]["mu"].shape == (5, 2)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
def test_other_dtypes_are_computed_in_float32_and_left_as_they_are(dtype):
    x = np.arange(20).reshape(5, 4).astype(dtype)
    before, out = x.copy(), make().numpy_forward(x)
    assert out["value"].dtype == out["logit"].dtype == np.float32
    np.testing.assert_array_equal(x, before)


def test_an_observation_of_float32_is_left_as_it_is():
    x = X.copy()
    for space in SPACES:
        make(space).numpy_forward(x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("space", SPACES)
def test_numpy_views_follow_updates_copies_and_moved_storage(space):
    net = make(space, share_encoder=False)
    first = assert_numpy_equals_torch(net)["value"].copy()
    clone = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    out = net(torch.as_tensor(X))
    (out["value"].sum() + sum(leaf.sum() for leaf in tree_leaves(out["logit"]))).backward()
    optimizer.step()
    assert np.abs(assert_numpy_equals_torch(net)["value"] - first).max() > 1e-3
    np.testing.assert_array_equal(clone.numpy_forward(X)["value"], first)
    net.load_state_dict(clone.state_dict())
    np.testing.assert_array_equal(assert_numpy_equals_torch(net)["value"], first)
    for p in net.parameters():
        p.data = p.data + 0.1
    assert np.abs(assert_numpy_equals_torch(net)["value"] - first).max() > 1e-3


def test_what_has_no_numpy_form_says_so_and_runs_in_torch():
    assert not make(spec=[3, 12, 12]).numpy_ready()
    assert not make(activation="gelu").numpy_ready()
    assert not make().double().numpy_ready()
    net = make("multi_discrete")
    net.actor_head = nn.Linear(8, 3)
    assert not net.numpy_ready()
    assert_numpy_equals_torch(net)


def test_a_subclass_with_its_own_forward_is_not_bypassed():
    class Own(VAC):
        def forward(self, x, mode="compute_actor_critic"):
            return super().forward(2 * x, mode)

    assert not Own(4, 2).numpy_ready()


def test_a_normalised_network_passes_the_mode_on():
    net = NormalizedModel(random_parameters(make()), 4)
    net.update(np.random.default_rng(1).normal(3, 5, (100, 4)))
    assert net.numpy_ready()
    assert_numpy_equals_torch(net, 4 * X, atol=4e-6)


# ---------------------------------------------------------------- wrong arguments
@pytest.mark.parametrize(
    ("shape", "space", "says"),
    [
        ([2, 3], "discrete", r"action_shape is \[2, 3\]; wanted a number of actions, since action_space is 'discrete'"),
        (3, "multi_discrete", "action_shape is 3; wanted a list"),
        ([], "multi_discrete", r"action_shape is \[\]"),
        ([2, 0], "multi_discrete", r"action_shape is \[2, 0\]"),
        (0, "discrete", "action_shape is 0"),
        (-1, "continuous", "action_shape is -1; wanted the action's size or shape"),
        (2, "box", r"action_space is 'box'; wanted one of \['discrete', 'multi_discrete', 'continuous'\]"),
    ],
)
def test_a_shape_that_does_not_fit_the_space_is_named(shape, space, says):
    with pytest.raises(ValueError, match=says):
        VAC(4, shape, space)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        (dict(actor_head_hidden_size=8, actor_head_layer_num=0), "actor_head_hidden_size is 8, but the head has no"),
        (dict(critic_head_hidden_size=8, critic_head_layer_num=0), "critic_head_hidden_size is 8"),
        (dict(action_space="continuous", sigma_type="free"), "sigma_type is 'free'"),
        (dict(action_space="continuous", bound_type="clip"), "bound_type is 'clip'; wanted None or 'tanh'"),
        (dict(encoder_hidden_size_list=[]), "encoder_hidden_size_list is empty"),
    ],
)
def test_wrong_arguments_are_named(kwargs, says):
    with pytest.raises(ValueError, match=says):
        VAC(4, 2, **kwargs)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("action_space", "box"),
        ("encoder_hidden_size_list", [0]),
        ("actor_head_hidden_size", 0),
        ("critic_head_layer_num", -1),
        ("activation", "rely"),
        ("norm_type", "BN"),
        ("sigma_type", "free"),
        ("fixed_sigma_value", 0.0),
        ("init_sigma", -1.0),
        ("bound_type", "clip"),
    ],
)
def test_a_config_with_a_wrong_model_argument_names_its_path(key, value):
    shapes = {"obs_shape": 4, "action_shape": 2}
    with pytest.raises(ConfigError, match=rf"policy\.model\.{key}"):
        make_model({key: value}, lambda: ("vac", []), shapes)
    assert isinstance(make_model({}, lambda: ("vac", []), shapes), VAC)
