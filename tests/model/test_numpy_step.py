"""Recurrent networks that act in NumPy: `drqn` and `vac` against their step in torch, alone and in `hidden_state`."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.data import numpify, torchify, tree_leaves, tree_map
from ding_like.model import NormalizedModel, model_wrap
from ding_like.model.template.drqn import DRQN
from ding_like.model.template.vac import VAC
from ding_like.torch_utils.packing import pack, unpack
from tests.model.recurrent_cases import KINDS

B, OBS = 4, 3
SPACES = {"discrete": 3, "multi_discrete": [3, 2], "continuous": 2}
MODES = ["compute_actor", "compute_critic", "compute_actor_critic"]
DRQNS = {
    "plain": dict(dueling=False, head_layer_num=0),
    "dueling": dict(),
    "norms, hidden layers": dict(norm_type="LN", head_layer_num=2),
    "link": dict(res_link=True),
    "layers": dict(num_layers=2, head_hidden_size=6, activation="tanh"),
}
VACS = {
    "shared": dict(),
    "apart": dict(share_encoder=False),
    "layers, norms": dict(num_layers=2, norm_type="LN", lstm_hidden_size=5, actor_head_layer_num=2),
    "bound, conditioned": dict(share_encoder=False, sigma_type="conditioned", bound_type="tanh", activation="tanh"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def loud(net):
    """The network with parameters so large that its parts matter."""
    torch.manual_seed(0)
    for p in net.parameters():
        nn.init.normal_(p, std=0.5)
    return net


def drqn(kind="pytorch", cls=DRQN, obs=OBS, **options):
    return loud(cls(obs, 3, **{"encoder_hidden_size_list": [8, 8], "lstm_type": kind, **options}))


def vac(kind="pytorch", space="discrete", cls=VAC, **options):
    sizes = dict(encoder_hidden_size_list=[8], orthogonal_init=False)
    return loud(cls(OBS, SPACES[space], space, lstm_type=kind, **{**sizes, **options}))


def observations(steps, batch=B):
    return np.random.default_rng(0).normal(size=(steps, batch, OBS)).astype(np.float32)


def assert_close(got, wanted, atol=1e-5):
    for a, b in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        assert isinstance(a, np.ndarray) and a.dtype == np.float32
        np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=atol)


def assert_equals_torch(net, steps=20, extra=None, **mode):
    """Steps that go on from one state to the next; those of NumPy and torch each from their own."""
    state, mine = None, None
    for obs in observations(steps):
        inputs = {"obs": obs, **(extra or {})}
        with torch.no_grad():
            wanted = net({**torchify(inputs), "prev_state": state}, inference=True, **mode)
        got = net.numpy_forward({**inputs, "prev_state": mine}, **mode)
        assert sorted(got) == sorted(wanted)
        for key, value in wanted.items():
            assert_close(got[key], value)
        state, mine = wanted["next_state"], got["next_state"]
    return got


@pytest.mark.parametrize("name", DRQNS)
@every_kind
def test_a_q_network_equals_its_step_in_torch(kind, name):
    net = drqn(kind, **DRQNS[name])
    assert net.numpy_ready()
    assert_equals_torch(net)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VACS)
@every_kind
def test_an_actor_critic_equals_its_step_in_torch_in_every_mode(kind, name, mode):
    net = vac(kind, "continuous", **VACS[name])
    assert net.numpy_ready()
    assert_equals_torch(net, mode=mode)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", SPACES)
def test_actors_of_every_space_equal_their_step_in_torch(space, share):
    assert_equals_torch(vac("gru", space, share_encoder=share))


@pytest.mark.parametrize("make", [drqn, vac])
def test_a_normalised_network_equals_its_step_in_torch(make):
    net = NormalizedModel(make(), OBS)
    net.update(np.random.default_rng(1).normal(3, 5, (100, OBS)))
    assert net.numpy_ready()
    assert_equals_torch(net)


@pytest.mark.parametrize("make", [drqn, vac])
def test_the_step_follows_the_parameters(make):
    net = make()
    first = assert_equals_torch(net)["logit"]
    for p in net.parameters():
        p.data *= 1.1
    second = assert_equals_torch(net)["logit"]
    assert np.abs(second - first).max() > 1e-3
    for p in net.parameters():
        p.data = p.data * 1.1
    assert np.abs(assert_equals_torch(net)["logit"] - second).max() > 1e-3


# ---------------------------------------------------------------- what has no NumPy form
class Twice(DRQN):
    def forward(self, inputs, **kwargs):
        return super().forward({**inputs, "obs": 2 * inputs["obs"]}, **kwargs)


class Learned(DRQN):
    def initial_state(self, batch):
        return tree_map(lambda x: x + 1, super().initial_state(batch))


class LearnedVAC(VAC):
    def _initial_state(self, batch):
        return tree_map(lambda x: x + 1, super()._initial_state(batch))


NOT_READY = {
    "image": lambda: drqn(obs=[3, 12, 12]),
    "dictionary": lambda: drqn(obs={"a": 3, "b": 2}),
    "activation": lambda: drqn(activation="gelu"),
    "the step before": lambda: drqn(use_prev_action=True),
    "float64": lambda: vac().double(),
    "forward of its own": lambda: drqn(cls=Twice),
    "initial state of its own": lambda: drqn(cls=Learned),
    "initial state of its own, vac": lambda: vac(cls=LearnedVAC),
}


@pytest.mark.parametrize("name", NOT_READY)
def test_a_network_without_a_numpy_form_says_so(name):
    assert not NOT_READY[name]().numpy_ready()


def test_a_part_without_a_numpy_form_runs_in_torch():
    assert_equals_torch(drqn(activation="gelu"))
    assert_equals_torch(vac(activation="elu", share_encoder=False))
    before = dict(prev_action=np.array([-1, 0, 1, 2]), prev_reward=np.ones(B, np.float32))
    assert_equals_torch(drqn(use_prev_action=True, use_prev_reward=True), extra=before)
    net = vac()
    net.actor_head = nn.Linear(8, 3)
    assert_equals_torch(net)


def test_an_observation_alone_is_refused():
    for net in (drqn(), vac()):
        with pytest.raises(TypeError, match="a recurrent network got a ndarray; wanted"):
            net.numpy_forward(observations(1)[0])


# ---------------------------------------------------------------- in hidden_state
def both(make, **kwargs):
    """The same network in a wrapper that steps in NumPy and in one that steps in torch, as functions of arrays."""
    net = make()
    one, other = (model_wrap(net, "hidden_state", save_prev_state=True, **kwargs) for _ in range(2))

    def call(obs, **kw):
        with torch.no_grad():
            wanted = other.forward({"obs": torch.as_tensor(obs)}, inference=True, **kw)
        got = one.forward({"obs": obs}, inference=True, **kw)
        assert sorted(got) == sorted(wanted)
        for key, value in wanted.items():
            assert_close(got[key], value)
        return got

    return one, other, call


MAKES = {
    "drqn": lambda: drqn("normal", num_layers=2),
    "drqn, one layer": drqn,
    "vac": lambda: vac("gru"),
    "vac apart": lambda: vac(share_encoder=False),
}
every_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@every_make
def test_columns_resets_and_given_states_are_those_of_torch(make):
    one, other, call = both(make)
    rng = np.random.default_rng(2)
    for t, obs in enumerate(observations(12, 6)):
        ids = None if t % 3 == 0 else np.sort(rng.choice(6, rng.integers(1, 7), replace=False))
        call(obs if ids is None else obs[ids], data_id=ids)
        ended = rng.choice(6, rng.integers(0, 4), replace=False)
        for wrapped in (one, other):
            wrapped.reset(data_id=ended)
    given = tree_map(lambda x: torch.rand(2, *x.shape[1:]), one._net.initial_state(1))
    for wrapped in (one, other):
        wrapped.reset(data_id=[4, 1], state=given)
    np.testing.assert_array_equal(tree_leaves(call(obs)["prev_state"])[0][[4, 1]], numpify(tree_leaves(given)[0]))
    for wrapped in (one, other):
        wrapped.reset(state=given)
    call(obs[:2])
    for wrapped in (one, other):
        wrapped.reset()
    assert all((leaf == 0).all() for leaf in tree_leaves(call(obs)["prev_state"]))


def test_an_initial_state_of_ones_own_is_kept():
    one = {name: torch.full((1, 8), value) for name, value in (("h", 0.5), ("c", -1.0))}
    first, _, call = both(drqn, init_fn=lambda: one)
    obs = observations(3)
    assert (call(obs[0])["prev_state"]["c"] == -1).all()
    first.reset(data_id=[2])
    state = first.forward({"obs": obs[1]}, inference=True)["prev_state"]
    assert (state["h"][2] == 0.5).all() and (state["h"][1] != 0.5).any()


@every_make
def test_states_handed_out_keep_their_values(make):
    wrapped, _, call = both(make)
    obs = observations(4)
    call(obs[0])
    given = call(obs[1])["prev_state"]
    kept = copy.deepcopy(given)
    wrapped.reset(data_id=[0, 2])
    call_state = wrapped.run_state_dict()["tree"]
    before = copy.deepcopy(numpify(call_state))
    for o in obs[2:]:
        wrapped.forward({"obs": o}, inference=True)
        wrapped.reset(data_id=[1])
    for now, then in ((given, kept), (numpify(call_state), before)):
        for a, b in zip(tree_leaves(now), tree_leaves(then), strict=True):
            np.testing.assert_array_equal(a, b)


@every_make
def test_steps_in_numpy_and_unrolls_in_torch_go_on_from_each_other(make):
    wrapped, other, call = both(make)
    obs = observations(9)
    for o in obs[:3]:
        call(o)
    window = {"obs": torch.as_tensor(obs[3:6])}
    got, wanted = (w.forward(window, inference=False)["logit"] for w in (wrapped, other))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)
    got.sum().backward()  # a state that came from NumPy takes no part
    for o in obs[6:]:
        call(o)
        for w in (wrapped, other):
            w.reset(data_id=[3])


@every_make
def test_a_saved_run_goes_on_bit_for_bit(make):
    net = make()
    wrapped, again = (model_wrap(net, "hidden_state", save_prev_state=True) for _ in range(2))
    obs = observations(6)
    for o in obs[:3]:
        wrapped.forward({"obs": o}, inference=True)
    wrapped.reset(data_id=[1])
    again.load_run_state_dict(unpack(pack(wrapped.run_state_dict())))
    for o in obs[3:]:
        a, b = (w.forward({"obs": o}, inference=True) for w in (wrapped, again))
        for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True):
            np.testing.assert_array_equal(x, y)
        for w in (wrapped, again):
            w.reset(data_id=[2, 3])


def test_a_wrong_number_of_rows_and_saved_states_of_a_step_are_refused():
    wrapped, _, call = both(drqn)
    obs = observations(1)[0]
    call(obs)
    with pytest.raises(ValueError, match="there are states of 4 columns, the observation has 3 rows"):
        wrapped.forward({"obs": obs[:3]}, inference=True)
    with pytest.raises(ValueError, match="data_id names 2 columns, the observation has 3 rows"):
        wrapped.forward({"obs": obs[:3]}, inference=True, data_id=[0, 1])
    with pytest.raises(ValueError, match="is given for one step; wanted an unroll"):
        wrapped.forward({"obs": obs}, inference=True, saved_hidden_state_timesteps=[1])


@pytest.mark.parametrize("name", ["initial state of its own", "forward of its own"])
def test_a_subclass_that_does_something_else_is_not_bypassed(name):
    net = NOT_READY[name]()
    obs = observations(1)[0]
    wrapped = model_wrap(net, "hidden_state", save_prev_state=True)
    with torch.no_grad():
        out = wrapped.forward({"obs": torch.as_tensor(obs)}, inference=True)
        wanted = net({"obs": torch.as_tensor(obs), "prev_state": net.initial_state(B)}, inference=True)
    torch.testing.assert_close(out["logit"], wanted["logit"])
    with pytest.raises((TypeError, AttributeError)):  # the network is asked itself, and takes no arrays
        wrapped.forward({"obs": obs}, inference=True)
