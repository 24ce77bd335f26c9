"""The `qac` model: shapes, who trains what, acting in NumPy, critics that remember, wrong inputs."""

import numpy as np
import pytest
import torch

from ding_like.data import tree_index, tree_leaves, tree_map
from ding_like.model import NormalizedModel, model_wrap
from ding_like.model.template.qac import QAC
from tests.model.recurrent_cases import KINDS, SPECS, assert_close, at, random_cut, random_state, stepwise

T, B, D = 9, 3, 2
SPACES = ("discrete", "continuous")
OBS = torch.rand(B, 4)


def make(spec=4, action_space="continuous", **kwargs):
    torch.manual_seed(0)
    kwargs = {"actor_head_hidden_size": 8, "critic_head_hidden_size": 8, **kwargs}
    return QAC(spec, D, action_space, **kwargs)


def actions(lead, action_space="continuous", dtype=torch.float32):
    return torch.randint(D, lead) if action_space == "discrete" else torch.rand(*lead, D, dtype=dtype) * 2 - 1


# ---------------------------------------------------------------- shapes and parts
@pytest.mark.parametrize("twin", [True, False])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("action_space", SPACES)
def test_every_kind_of_observation(spec, action_space, twin):
    net = make(SPECS[spec][0], action_space, twin_critic=twin, encoder_hidden_size_list=[6, 8])
    obs, action = SPECS[spec][1]((B,)), actions((B,), action_space)
    logit = net(obs)["logit"]
    q_value = net({"obs": obs, "action": action}, mode="compute_critic")["q_value"]
    if action_space == "discrete":
        assert logit.shape == (B, D) and q_value.shape == (1 + twin, B, D)
    else:
        assert logit["mu"].shape == logit["sigma"].shape == (B, D) and (logit["sigma"] > 0).all()
        assert q_value.shape == (1 + twin, B)
    first = net({"obs": obs, "action": action}, mode="compute_critic", critic_num=1)["q_value"]
    assert torch.equal(first, q_value[:1])


def test_a_regression_head_gives_bounded_actions():
    logit = make(actor_head_type="regression")(1e3 * torch.randn(50, 4))["logit"]
    assert list(logit) == ["mu"] and logit["mu"].abs().max() <= 1 and logit["mu"].abs().max() > 0.99


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("lstm_type", [None, "gru"])
def test_actor_and_critics_share_no_parameter_and_a_shared_encoder_is_the_critics(share, lstm_type):
    net = make(share_encoder=share, encoder_hidden_size_list=[6], lstm_type=lstm_type)
    actor, critic = (set(part.parameters()) for part in (net.actor, net.critic))
    assert not actor & critic and actor | critic == set(net.parameters())
    obs = torch.rand(T, B, 4)
    inputs = {"obs": obs, "prev_state": None} if lstm_type else obs
    logit = net(inputs)["logit"]
    (logit["mu"].sum() + logit["sigma"].sum()).backward()
    assert all(p.grad is not None for p in actor) and all(p.grad is None for p in critic)
    values = {"obs": obs, "action": actions((T, B)), **({"prev_state": None} if lstm_type else {})}
    net(values, mode="compute_critic")["q_value"].sum().backward()
    assert all(p.grad is not None for p in critic)


@pytest.mark.parametrize("wrapped", [False, True])
def test_critics_see_normalised_observations(wrapped):
    net = make({"obs": 4, "b": 2}, encoder_hidden_size_list=[6]) if wrapped else make()
    spec = {"obs": 4, "b": 2} if wrapped else 4
    normalised = NormalizedModel(net, spec)
    rows = {"obs": np.random.rand(50, 4) + 3, "b": np.random.rand(50, 2)} if wrapped else np.random.rand(50, 4) + 3
    normalised.update(rows)
    obs, action = tree_map(lambda x: torch.as_tensor(x[:B], dtype=torch.float32), rows), actions((B,))
    got = model_wrap(normalised).forward({"obs": obs, "action": action}, mode="compute_critic")["q_value"]
    wanted = net({"obs": normalised.normalize(obs), "action": action}, mode="compute_critic")["q_value"]
    assert torch.equal(got, wanted)


# ---------------------------------------------------------------- NumPy
@pytest.mark.parametrize("kwargs", [{}, {"actor_head_type": "regression"}, {"action_space": "discrete"}])
@pytest.mark.parametrize("widths", [None, [6]])
def test_acting_in_numpy_equals_torch(kwargs, widths):
    net = make(**kwargs, encoder_hidden_size_list=widths, norm_type="LN")
    obs = np.random.default_rng(0).normal(size=(B, 4)).astype(np.float32)
    assert net.numpy_ready()
    got, wanted = net.numpy_forward(obs)["logit"], net(torch.as_tensor(obs))["logit"]
    for a, b in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lstm_type", KINDS)
@pytest.mark.parametrize("action_space", SPACES)
def test_steps_in_numpy_equal_torch(lstm_type, action_space):
    net = make(action_space=action_space, lstm_type=lstm_type, encoder_hidden_size_list=[6])
    rng, state = np.random.default_rng(0), net.numpy_initial_state(B)
    torch_state = net.initial_state(B)
    assert net.numpy_ready()
    for _ in range(3):
        obs, action = rng.normal(size=(B, 4)).astype(np.float32), actions((B,), action_space)
        for mode in ("compute_actor", "compute_critic"):
            inputs = {"obs": obs, "action": action.numpy(), "prev_state": state}
            got = net.numpy_forward(inputs, mode=mode)
            inputs = {"obs": torch.as_tensor(obs), "action": action, "prev_state": torch_state}
            with torch.no_grad():
                wanted = net(inputs, mode=mode, inference=True)
            state, torch_state = got.pop("next_state"), wanted["next_state"]
            for a, b in zip(tree_leaves(state), tree_leaves(torch_state), strict=True):
                np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
        assert "q_value" not in got


# ---------------------------------------------------------------- recurrence
def recurrent_inputs(net, cut=True, action_space="continuous"):
    torch.manual_seed(1)
    data = {"obs": torch.rand(T, B, 4, dtype=torch.float64), "prev_state": random_state(net, B)}
    data["action"] = actions((T, B), action_space, torch.float64)
    return {**data, "cut": random_cut(T, B)} if cut else data


@pytest.mark.parametrize("lstm_type", KINDS)
@pytest.mark.parametrize("mode", ["compute_actor", "compute_critic"])
@pytest.mark.parametrize("action_space", SPACES)
def test_an_unroll_is_its_steps(lstm_type, mode, action_space):
    net = make(action_space=action_space, lstm_type=lstm_type).double()
    data = recurrent_inputs(net, action_space=action_space)
    with torch.no_grad():
        wanted, states = stepwise(net, data, mode=mode)
        got = net(data, mode=mode, saved_hidden_state_timesteps=[T, 0, 4])
    if "q_value" in wanted:
        wanted["q_value"] = wanted["q_value"].movedim(0, 1)  # critics first
    for key, value in wanted.items():
        assert_close(got[key], value, 1e-9)
    assert_close(got["next_state"], states[-1], 1e-9)
    assert_close(got["saved_state"], [states[k] for k in (T, 0, 4)], 1e-9)
    idle = "critic" if mode == "compute_actor" else "actor"
    untouched = data["cut"].bool().all(0)
    assert_close(*(tree_index(one[idle], untouched) for one in (got["next_state"], data["prev_state"])), 1e-12)


def test_a_candidate_is_valued_in_the_history_of_the_actions_taken():
    net = make(lstm_type="pytorch").double()
    data = recurrent_inputs(net, cut=False)
    candidate = actions((T, B), dtype=torch.float64)
    with torch.no_grad():
        got = net({**data, "candidate": candidate}, mode="compute_critic")
        taken = net(data, mode="compute_critic")
        state = data["prev_state"]
        for t in range(T):
            step = {**at({k: data[k] for k in ("obs", "action")}, t), "prev_state": state}
            other = net({**step, "action": candidate[t]}, mode="compute_critic", inference=True)
            assert_close(got["q_value"][:, t], other["q_value"], 1e-9)
            state = net(step, mode="compute_critic", inference=True)["next_state"]
    assert_close(got["next_state"], taken["next_state"], 1e-12)
    assert not torch.allclose(got["q_value"], taken["q_value"])


def test_critics_are_told_the_previous_reward_and_know_the_previous_action():
    net = make(lstm_type="gru", use_prev_action=True, use_prev_reward=True)
    data = {"obs": torch.rand(T, B, 4), "action": actions((T, B)), "prev_state": None}
    data |= {"prev_action": actions((T, B)), "prev_reward": torch.rand(T, B)}
    q_value = net(data, mode="compute_critic")["q_value"]
    other = net({**data, "prev_reward": data["prev_reward"] + 1}, mode="compute_critic")["q_value"]
    same = net({**data, "prev_action": data["prev_action"] + 1}, mode="compute_critic")["q_value"]
    assert not torch.allclose(q_value, other) and torch.equal(q_value, same)
    assert not torch.allclose(net(data)["logit"]["mu"], net({**data, "prev_action": 0 * data["action"]})["logit"]["mu"])


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        (dict(spec=[3, 12, 12]), r"encoder_hidden_size_list is None.*\[32, 64, 64, 256\]"),
        (dict(spec={"a": 3}), "encoder_hidden_size_list is None"),
        (dict(num_layers=2), "set lstm_type"),
        (dict(action_space="multi_discrete"), "action_space is 'multi_discrete'"),
        (dict(actor_head_type="gaussian"), "actor_head_type 'gaussian'"),
    ],
)
def test_arguments_that_do_not_fit(kwargs, told):
    with pytest.raises(ValueError, match=told):
        make(**kwargs)


@pytest.mark.parametrize(
    ("inputs", "mode", "told"),
    [
        (OBS, "compute_value", "mode is 'compute_value'"),
        (OBS, "compute_critic", "got a Tensor; wanted {'obs': ..., 'action': ...}"),
        ({"obs": OBS, "action": OBS[:, 0]}, "compute_critic", r"action has shape \(3,\); wanted \(3, 2\)"),
        ({"obs": OBS, "prev_state": None}, "compute_actor", "feed-forward"),
    ],
)
def test_inputs_that_do_not_fit(inputs, mode, told):
    with pytest.raises((ValueError, TypeError), match=told):
        make()(inputs, mode=mode)


def test_a_recurrent_critic_wants_the_actions_taken():
    with pytest.raises(TypeError, match=r"got a dictionary of \['obs', 'prev_state'\]; wanted {'obs'"):
        make(lstm_type="gru")({"obs": OBS[None], "prev_state": None}, mode="compute_critic")
