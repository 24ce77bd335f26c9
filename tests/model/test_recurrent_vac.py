"""The recurrent `vac`: an unroll against single steps in every mode, its states, and what stays feed-forward."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch

from ding_like.config.paths import ConfigError
from ding_like.data import tree_index, tree_leaves, tree_map
from ding_like.model import NormalizedModel, model_wrap
from ding_like.model.build import make_model
from ding_like.model.template.vac import VAC
from tests.model.recurrent_cases import (
    KINDS,
    SPECS,
    TOLERANCE,
    assert_close,
    assert_unroll_is_stepwise,
    at,
    in_type,
    observations,
    random_cut,
    random_state,
)

T, B = 12, 3
MODES = ["compute_actor", "compute_critic", "compute_actor_critic"]
SPACES = {"discrete": 3, "multi_discrete": [3, 2, 4], "continuous": 2}
every_kind = pytest.mark.parametrize("lstm_type", KINDS)
every_share = pytest.mark.parametrize("share", [True, False])


def make(space="discrete", spec=4, lstm_type="pytorch", share=True, **kwargs):
    torch.manual_seed(0)
    kwargs = {"encoder_hidden_size_list": [12, 8], "orthogonal_init": False, **kwargs}
    return VAC(spec, SPACES[space], space, share_encoder=share, lstm_type=lstm_type, **kwargs)


def inputs(net, spec="vector", steps=T):
    torch.manual_seed(1)
    return {
        "obs": observations(net, spec, (steps, B)),
        "prev_state": random_state(net, B),
        "cut": random_cut(steps, B),
    }


# ---------------------------------------------------------------- one unroll is as many steps
@pytest.mark.parametrize("dtype", TOLERANCE)
@every_share
@every_kind
def test_an_unroll_is_its_single_steps_in_every_mode(lstm_type, share, dtype, monkeypatch):
    net = in_type(make(lstm_type=lstm_type, share=share, lstm_hidden_size=6), dtype, monkeypatch)
    data = inputs(net)
    for mode in MODES:
        assert_unroll_is_stepwise(net, data, TOLERANCE[dtype], mode=mode)
    assert_unroll_is_stepwise(net, {"obs": data["obs"], "prev_state": None}, TOLERANCE[dtype])


@pytest.mark.parametrize(("space", "spec"), list(itertools.product(SPACES, SPECS)))
def test_an_unroll_is_its_single_steps_for_every_action_and_observation(space, spec, monkeypatch):
    for share in (True, False):
        net = make(space, SPECS[spec][0], share=share, num_layers=2, sigma_type="conditioned")
        net = in_type(net, torch.float64, monkeypatch)
        assert_unroll_is_stepwise(net, inputs(net, spec, steps=5), 1e-9)


@every_share
@pytest.mark.parametrize("space", SPACES)
def test_an_unroll_is_its_single_steps_with_the_last_action_and_reward(space, share, monkeypatch):
    net = make(space, share=share, use_prev_action=True, use_prev_reward=True)
    data = inputs(in_type(net, torch.float64, monkeypatch))
    action = {
        "discrete": torch.randint(-1, 3, (T, B)),
        "multi_discrete": torch.randint(-1, 2, (T, B, 3)),
        "continuous": torch.randn(T, B, 2),
    }[space]
    assert_unroll_is_stepwise(net, {**data, "prev_action": action, "prev_reward": torch.rand(T, B)}, 1e-9)


def test_several_actions_are_one_hot_each():
    net = make("multi_discrete", use_prev_action=True)
    action = torch.tensor([[2, 0, 3], [-1, -1, -1]])
    features = net.memory.previous(torch.zeros(2, 1), {"prev_action": action})
    assert features[:, 1:].tolist() == [[0, 0, 1, 1, 0, 0, 0, 0, 1], [0] * 9]
    free = make("continuous", use_prev_action=True).memory.previous
    assert free(torch.zeros(1, 1), {"prev_action": torch.tensor([[0.5, -1]])}).tolist() == [[0, 0.5, -1]]


# ---------------------------------------------------------------- modes and states
@every_share
@pytest.mark.parametrize("inference", [True, False])
def test_a_mode_gives_its_part_and_leaves_the_other_memory_as_it_was(inference, share):
    net = make(share=share)
    data = inputs(net)
    del data["cut"]
    kwargs = {"saved_hidden_state_timesteps": [0, 4]}
    if inference:
        data, kwargs = {"obs": data["obs"][0], "prev_state": data["prev_state"]}, {"inference": True}
    whole = net(data, **kwargs)
    for mode, key, part, other in (
        ("compute_actor", "logit", "actor", "critic"),
        ("compute_critic", "value", "critic", "actor"),
    ):
        out = net(data, mode=mode, **kwargs)
        assert set(out) == set(whole) - ({"logit", "value"} - {key}) and torch.equal(out[key], whole[key])
        states = [(out["next_state"], whole["next_state"])]
        states += zip(out.get("saved_state", []), whole.get("saved_state", []))
        for got, wanted in states:
            if share:
                assert_close(got, wanted, 0)
            else:
                assert list(got) == ["actor", "critic"]
                assert_close(got[part], wanted[part], 0)
                assert_close(got[other], data["prev_state"][other], 0)


def test_without_a_state_an_unasked_memory_gives_its_initial_one():
    net = make(share=False)
    out = net({"obs": torch.rand(B, 4), "prev_state": None}, mode="compute_actor", inference=True)
    assert_close(out["next_state"]["critic"], net.initial_state(B)["critic"], 0)
    assert out["next_state"]["actor"]["h"].abs().sum() > 0


@every_share
def test_the_value_of_a_final_observation_follows_from_the_state_reached(share, monkeypatch):
    """As the guide's windows and the bootstrap of a truncated episode need it."""
    net = in_type(make(share=share), torch.float64, monkeypatch)
    data = inputs(net)
    del data["cut"]
    with torch.no_grad():
        whole = net(data)
        part = net({"obs": data["obs"][:-1], "prev_state": data["prev_state"]})
        last = {"obs": data["obs"][-1], "prev_state": part["next_state"]}
        out = net(last, mode="compute_critic", inference=True)
    assert_close(out["value"], whole["value"][-1], 1e-9)


@every_share
def test_the_state_may_be_a_list_of_rows(share):
    net = make(share=share)
    data = inputs(net)
    rows = [tree_index(data["prev_state"], b) for b in range(B)]
    assert torch.equal(net({**data, "prev_state": rows})["logit"], net(data)["logit"])
    rows[1] = None
    data["prev_state"] = tree_map(lambda x: x.index_fill(0, torch.tensor([1]), 0.0), data["prev_state"])
    got, wanted = net({**data, "prev_state": rows}), net(data)
    assert_close([got["value"]], [wanted["value"]], 0)
    assert_close(got["next_state"], wanted["next_state"], 0)


@every_share
@every_kind
def test_gradients_reach_the_parts_that_were_asked(lstm_type, share):
    net = make(lstm_type=lstm_type, share=share)
    out = net(inputs(net))
    parts = {"logit": net.actor, "value": net.critic}
    for key, part in parts.items():
        net.zero_grad()
        out[key].square().sum().backward(retain_graph=True)
        touched = {name for name, p in net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        own = {id(p) for p in part.parameters()}
        assert touched == {name for name, p in net.named_parameters() if id(p) in own}


def test_actor_and_critic_hold_their_memories():
    shared, apart = make(), make(share=False)
    assert shared.actor[1] is shared.critic[1] is shared.memory
    assert apart.actor[1] is apart.actor_memory and apart.critic[1] is apart.critic_memory
    for net in (shared, apart):
        own = {id(p) for part in (net.actor, net.critic) for p in part.parameters()}
        assert own == {id(p) for p in net.parameters()}


# ---------------------------------------------------------------- around it
@every_share
@pytest.mark.parametrize("names", [("hidden_state", "multinomial_sample"), ("multinomial_sample", "hidden_state")])
@every_kind
def test_acting_through_wrappers_is_one_unroll_with_the_same_resets(lstm_type, names, share, monkeypatch):
    net = in_type(make(lstm_type=lstm_type, share=share), torch.float64, monkeypatch)
    data, acting = inputs(net), net
    for name in names:
        acting = model_wrap(acting, name, **({"state_num": B} if name == "hidden_state" else {}))
    rows, noise = [], np.random.default_rng(0).random((T, B, acting.noise_width))
    for t in range(T):
        with torch.inference_mode():
            obs = at(data["obs"], t)
            rows.append(acting.forward(obs, inference=True, mode="compute_actor_critic", noise=noise[t]))
        acting.reset(data_id=np.flatnonzero(data["cut"][t] == 0).tolist())
    with torch.no_grad():
        out = model_wrap(net, "hidden_state").forward({"obs": data["obs"], "cut": data["cut"]})
    for key in ("logit", "value"):
        assert_close(out[key], torch.stack([row[key] for row in rows]), 1e-9)


@pytest.mark.parametrize("space", ["discrete", "multi_discrete"])
def test_masks_and_the_normaliser_reach_an_unroll(space):
    net = make(space, {"pos": 4})
    normal = NormalizedModel(net, {"pos": 4})
    normal.update({"pos": 5 + np.random.default_rng(0).normal(size=(20, 4))})
    sizes = np.atleast_1d(SPACES[space]).tolist()
    mask = torch.ones(T, B, sum(sizes))
    mask[..., 1] = 0
    pos = 5 + torch.rand(T, B, 4)
    out = model_wrap(normal, "hidden_state").forward({"obs": {"pos": pos, "action_mask": mask}})
    plain = net({"obs": normal.normalize({"pos": pos})})
    first, wanted = tree_leaves(out["logit"])[0], tree_leaves(plain["logit"])[0]
    assert (first[..., 1] == torch.finfo(torch.float32).min).all() and torch.equal(first[..., 0], wanted[..., 0])
    assert torch.equal(out["value"], plain["value"])


def test_copies_and_pickles_give_the_same():
    net = make(share=False, use_prev_action=True)
    data = {**inputs(net), "prev_action": torch.zeros(T, B, dtype=torch.int64)}
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(data)["value"], net(data)["value"])
        assert other.initial_state.__self__ is other


# ---------------------------------------------------------------- feed-forward
def test_a_feed_forward_network_has_no_state_and_is_as_before():
    net = make(lstm_type=None)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert not hasattr(net, "initial_state") and hasattr(make(), "initial_state")
    assert net.numpy_ready() and list(net(torch.as_tensor(x))) == ["logit", "value"]
    np.testing.assert_allclose(net.numpy_forward(x)["value"], net(torch.as_tensor(x))["value"].detach(), atol=1e-6)
    assert not any("memory" in name for name, _ in net.named_parameters())


def test_the_first_weights_of_encoder_and_heads_do_not_depend_on_what_is_left_out():
    one, other = (VAC(4, 3, encoder_hidden_size_list=[8], **more) for more in ({}, {"lstm_type": None}))
    assert [n for n, _ in one.named_parameters()] == [n for n, _ in other.named_parameters()]


# ---------------------------------------------------------------- wrong input
@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"h": torch.zeros(B, 1, 8), "c": torch.zeros(B, 1, 8)}, r"prev_state holds \['c', 'h'\]; wanted .*'actor'"),
        ([{"h": torch.zeros(1, 8)}] * B, r"prev_state holds \['h'\]; wanted a dictionary of \['actor', 'critic'\]"),
        ({"actor": {"h": torch.zeros(B, 1, 8)}, "critic": None}, r"the state of FusedRNN is \['h'\]"),
        (torch.zeros(B, 1, 8), "prev_state holds Tensor; wanted a dictionary"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_state_of_another_structure_is_named(mode, state, told):
    net = make(share=False)
    with pytest.raises(ValueError, match=told):
        net({"obs": torch.rand(B, 4), "prev_state": state}, mode=mode, inference=True)


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match=r"mode is 'actor'; wanted one of"):
        make()({"obs": torch.rand(B, 4)}, mode="actor", inference=True)


@pytest.mark.parametrize("option", [{"lstm_hidden_size": 8}, {"num_layers": 2}, {"use_prev_reward": True}])
def test_recurrent_options_of_a_feed_forward_network_are_named(option):
    with pytest.raises(ConfigError, match="are for a recurrent network; set lstm_type to one of"):
        make_model({"type": "vac", **option}, lambda: ("vac", []), {"obs_shape": 4, "action_shape": 2})


def test_a_feed_forward_network_under_hidden_state_is_named():
    wrapped = model_wrap(make(lstm_type=None), "hidden_state", state_num=B)
    with pytest.raises(ValueError, match=r"hidden_state: the network is feed-forward.*policy.model.lstm_type"):
        wrapped.forward(torch.rand(B, 4), inference=True, mode="compute_actor")
