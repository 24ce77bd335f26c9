"""The `drqn` model: an unroll against single steps, saved states, wrappers and masks around it, wrong input."""

import itertools

import numpy as np
import pytest
import torch

from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, tree_index, tree_map
from ding_like.model import NormalizedModel, model_wrap
from ding_like.model.build import make_model
from ding_like.model.template import q_learning
from ding_like.model.template.drqn import DRQN
from ding_like.model.template.q_learning import DQN
from ding_like.utils import MODEL_REGISTRY
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

T, B, A = 16, 3, 3
every_kind = pytest.mark.parametrize("lstm_type", KINDS)


def make(spec=4, widths=(12, 8), **kwargs):
    torch.manual_seed(0)
    return DRQN(spec, A, list(widths), **kwargs)


def inputs(net, spec="vector", steps=T, cut=True, state=True):
    torch.manual_seed(1)
    data = {"obs": observations(net, spec, (steps, B)), "prev_state": random_state(net, B) if state else None}
    if cut:
        data["cut"] = random_cut(steps, B)
    return data


def test_it_is_the_class_that_the_guide_names():
    assert MODEL_REGISTRY.get("drqn", ["ding_like.model.template.q_learning"]) is q_learning.DRQN is DRQN
    section = {"type": "drqn", "import_names": ["ding_like.model.template.q_learning"], "lstm_type": "gru"}
    net = make_model(section, lambda: ("dqn", []), {"obs_shape": 4, "action_shape": 2, "action_space": "discrete"})
    assert type(net) is DRQN and net(inputs(net))["logit"].shape == (T, B, 2)


# ---------------------------------------------------------------- one unroll is as many steps
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("dueling", "res_link"), list(itertools.product([True, False], repeat=2)))
@every_kind
def test_an_unroll_is_its_single_steps(lstm_type, dueling, res_link, dtype, monkeypatch):
    net = in_type(make(lstm_type=lstm_type, dueling=dueling, res_link=res_link), dtype, monkeypatch)
    for cut, state in itertools.product([True, False], repeat=2):
        assert_unroll_is_stepwise(net, inputs(net, cut=cut, state=state), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("spec", SPECS)
def test_an_unroll_is_its_single_steps_for_every_observation(spec, dtype, monkeypatch):
    net = in_type(make(SPECS[spec][0], lstm_type="pytorch", num_layers=2, norm_type="LN"), dtype, monkeypatch)
    assert_unroll_is_stepwise(net, inputs(net, spec, steps=6), TOLERANCE[dtype])


@every_kind
def test_an_unroll_is_its_single_steps_with_the_last_action_and_reward(lstm_type, monkeypatch):
    net = make(lstm_type=lstm_type, use_prev_action=True, use_prev_reward=True, head_hidden_size=5)
    data = inputs(in_type(net, torch.float64, monkeypatch))
    data |= {"prev_action": torch.randint(-1, A, (T, B)), "prev_reward": torch.rand(T, B)}
    assert_unroll_is_stepwise(net, data, 1e-9)


def test_a_single_step_is_encoder_cell_and_head_in_turn():
    net = make(lstm_type="gru", res_link=True)
    data = inputs(net)
    features = net.encoder(data["obs"][0])
    hidden = torch.gru_cell(features, data["prev_state"]["h"][:, 0], *net.memory.rnn.core.all_weights[0])
    out = net({"obs": data["obs"][0], "prev_state": data["prev_state"]}, inference=True)
    assert list(out) == ["logit", "next_state"] and out["logit"].shape == (B, A)
    torch.testing.assert_close(out["logit"], net.head(features + hidden))
    torch.testing.assert_close(out["next_state"]["h"], hidden[:, None])


def test_encoder_and_head_are_called_once_an_unroll():
    net, calls = make(), []
    net.encoder.register_forward_hook(lambda *_: calls.append("encoder"))
    net.head.register_forward_hook(lambda *_: calls.append("head"))
    net(inputs(net))
    assert calls == ["encoder", "head"]


# ---------------------------------------------------------------- inputs
def test_the_inputs_stay_as_they_are_and_others_are_ignored():
    net = make()
    data = inputs(net)
    keys, wanted = list(data), net(data)["logit"]
    assert list(data) == keys
    assert torch.equal(net({**data, "enable_fast_timestep": True, "burnin": None})["logit"], wanted)
    assert torch.equal(net(ArrayDict({**data, "cut": data["cut"].numpy()}))["logit"], wanted)


def test_the_state_may_be_a_list_of_rows_in_which_none_is_the_initial_one():
    net = make(num_layers=2)
    data = inputs(net)
    tree = tree_map(lambda x: x.index_fill(0, torch.tensor([1]), 0.0), data["prev_state"])
    wanted = net({**data, "prev_state": tree})
    for row_of in (lambda leaf, b: leaf[b], lambda leaf, b: leaf[b].unsqueeze(1)):  # [layers, H], [layers, 1, H]
        rows = [{k: row_of(leaf, b) for k, leaf in tree.items()} for b in range(B)]
        rows[1] = None
        got = net({**data, "prev_state": rows})
        assert torch.equal(got["logit"], wanted["logit"])
        assert_close(got["next_state"], wanted["next_state"], 0)


def test_the_last_action_is_one_hot_and_none_is_zeros():
    net = make(use_prev_action=True, use_prev_reward=True)
    action, reward = torch.tensor([2, -1, 0]), torch.tensor([0.5, 0.0, -1.0], dtype=torch.float64)
    features = net.memory.previous(torch.zeros(B, 2), {"prev_action": action, "prev_reward": reward})
    assert features.dtype == torch.float32
    assert features[:, 2:].tolist() == [[0, 0, 1, 0.5], [0, 0, 0, 0], [1, 0, 0, -1]]
    assert "memory.previous.choice" not in net.state_dict()


def test_batch_sizes_may_change_from_call_to_call():
    net, torch_state = make(), None
    for n in (1, 5, 2):
        assert net({"obs": torch.rand(4, n, 4), "prev_state": torch_state})["next_state"]["h"].shape == (n, 1, 8)
        assert net({"obs": torch.rand(n, 4)}, inference=True)["logit"].shape == (n, A)


# ---------------------------------------------------------------- states and gradients
@every_kind
def test_a_saved_state_goes_on_where_the_unroll_was(lstm_type, monkeypatch):
    net = in_type(make(lstm_type=lstm_type), torch.float64, monkeypatch)
    data = inputs(net)
    with torch.no_grad():
        whole = net(data, saved_state_timesteps=[5])
        rest = {key: data[key][5:] for key in ("obs", "cut")}
        part = net({**rest, "prev_state": whole["saved_hidden_state"][0]})
    assert_close(part["logit"], whole["logit"][5:], 1e-9)
    assert_close(part["next_state"], whole["next_state"], 1e-9)


@every_kind
def test_gradients_reach_every_parameter_and_stop_at_a_cut(lstm_type):
    net = make(lstm_type=lstm_type, dueling=True)
    data = inputs(net, cut=False)
    data["cut"] = torch.ones(T, B)
    data["cut"][7, 0] = 0
    data["obs"].requires_grad_()
    leaves = tree_map(torch.Tensor.requires_grad_, data["prev_state"])
    net(data)["logit"][9].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    past = data["obs"].grad[:8].abs().sum((0, 2))
    assert past[0] == 0 and (past[1:] > 0).all() and (data["obs"].grad[8, 0] != 0).any()
    assert all(leaf.grad[0].abs().sum() == 0 for leaf in leaves.values()) and leaves["h"].grad[1:].abs().sum() > 0


@every_kind
def test_nan_in_a_slot_between_cuts_changes_no_other_slot(lstm_type):
    net = make(lstm_type=lstm_type)
    data = inputs(net, cut=False)
    data["cut"] = torch.ones(T, B)
    data["cut"][6:9, 1] = 0  # slots 7 and 8 of column 1 belong to no episode
    real = torch.ones(T, B, dtype=torch.bool)
    real[7:9, 1] = False
    wanted = net(data)
    data["obs"][~real] = torch.nan
    got = net(data)
    assert torch.equal(got["logit"][real], wanted["logit"][real])
    assert_close(got["next_state"], wanted["next_state"], 0)


# ---------------------------------------------------------------- around it
@pytest.mark.parametrize("names", [("hidden_state", "argmax_sample"), ("argmax_sample", "hidden_state")])
@every_kind
def test_acting_through_wrappers_is_one_unroll_with_the_same_resets(lstm_type, names, monkeypatch):
    """The recomputed Q of what was collected, whatever the order of the wrappers."""
    net = in_type(make(lstm_type=lstm_type), torch.float64, monkeypatch)
    data, acting, learning = inputs(net, state=False), net, net
    for name in names:
        acting = model_wrap(acting, name, **({"state_num": B, "save_prev_state": True} if "h" in name[:1] else {}))
        learning = model_wrap(learning, name)
    rows = []
    for t in range(T):
        with torch.inference_mode():
            rows.append(acting.forward(at(data["obs"], t), inference=True))
        ended = np.flatnonzero(data["cut"][t] == 0)
        acting.reset(data_id=ended.tolist())
    with torch.no_grad():
        learning.reset(state=rows[0]["prev_state"])
        out = learning.forward({k: data[k] for k in ("obs", "cut")}, saved_hidden_state_timesteps=[4, 0])
    assert_close(out["logit"], torch.stack([row["logit"] for row in rows]), 1e-9)
    assert torch.equal(out["action"], torch.stack([row["action"] for row in rows]))
    assert_close(out["saved_hidden_state"], [rows[4]["prev_state"], rows[0]["prev_state"]], 1e-9)


def test_the_action_mask_of_steps_and_unrolls_reaches_the_logits():
    net = make({"pos": 4})
    mask = (torch.rand(T, B, A) < 0.6).float()
    mask[..., 0] = 1
    obs, wrapped = {"pos": torch.rand(T, B, 4), "action_mask": mask}, model_wrap(net, "hidden_state", state_num=B)
    logit = wrapped.forward({"obs": obs})["logit"]
    plain = net({"obs": {"pos": obs["pos"]}})["logit"]
    assert torch.equal(logit == torch.finfo(torch.float32).min, mask == 0)
    assert torch.equal(logit[mask == 1], plain[mask == 1])
    wrapped.reset()
    step = wrapped.forward(tree_index(obs, 0), inference=True)["logit"]
    torch.testing.assert_close(step, logit[0])


def test_a_normaliser_normalises_the_observation_alone(monkeypatch):
    net = make({"pos": 4, "obs": [3, 12, 12]}, use_prev_reward=True)
    normal = in_type(NormalizedModel(net, {"pos": 4, "obs": [3, 12, 12]}), torch.float64, monkeypatch)
    rows = 5 + 3 * np.random.default_rng(0).normal(size=(50, 4))
    image = SPECS["image"][1]((T, B))
    normal.update({"pos": rows, "obs": image.numpy()})
    pos = torch.as_tensor(rows[: T * B]).reshape(T, B, 4)
    data = {"prev_state": random_state(net, B), "prev_reward": 9 * torch.rand(T, B), "cut": random_cut(T, B)}
    wanted = torch.as_tensor((pos.numpy() - rows.mean(0)) / rows.std(0))
    with torch.no_grad():
        got = normal({**data, "obs": {"pos": pos, "obs": image}})
        assert_close(got, net({**data, "obs": {"pos": wanted, "obs": image}}), 1e-6)
    wrapped = model_wrap(normal, "hidden_state", state_num=B)
    wrapped.reset(state=data.pop("prev_state"))
    assert_close(wrapped.forward({**data, "obs": {"pos": pos, "obs": image}})["logit"], got["logit"], 1e-12)


def test_a_normaliser_knows_the_inputs_of_a_recurrent_network_without_a_state():
    net = make()
    normal = NormalizedModel(net, 4)
    normal.update(3 + np.random.default_rng(0).normal(size=(9, 4)))
    obs = torch.rand(T, B, 4)
    assert torch.equal(normal({"obs": obs})["logit"], net({"obs": normal.normalize(obs)})["logit"])
    assert not torch.equal(normal({"obs": obs})["logit"], net({"obs": obs})["logit"])


# ---------------------------------------------------------------- wrong input
@pytest.mark.parametrize(
    ("change", "kwargs", "error", "told"),
    [
        ({"obs": None}, {}, TypeError, r"got a dictionary of \['prev_state'\]; wanted \{'obs'"),
        ({"cut": torch.ones(B)}, {"inference": True}, ValueError, "cut is given for one step"),
        ({}, {"inference": True, "saved_state_timesteps": [0]}, ValueError, "saved_hidden_state_timesteps is given"),
        ({"obs": torch.rand(2, B, 4)}, {"inference": True}, ValueError, r"leading axes \[2, 3\]; wanted \[B, ...\]"),
        ({}, {}, ValueError, r"leading axes \[3\]; wanted \[T, B, ...\] for an unroll"),
        ({"prev_state": {"h": torch.rand(B, 1, 8)}}, {"inference": True}, ValueError, r"state of NormLSTM is \['h'\]"),
        (
            {"prev_state": dict.fromkeys("hc", torch.rand(1, B, 1, 8))},
            {"inference": True},
            ValueError,
            r"state\['h'\] has shape \(1, 3, 1, 8\); wanted \[B, layers, H\]",
        ),
        ({"prev_state": [None] * 2}, {"inference": True}, ValueError, "a list of 2; wanted one entry for each of 3"),
    ],
)
def test_wrong_inputs_are_named(change, kwargs, error, told):
    data = {"obs": torch.rand(B, 4), "prev_state": None, **change}
    if data["obs"] is None:
        del data["obs"]
    with pytest.raises(error, match=told):
        make()(data, **kwargs)


def test_saved_states_outside_of_the_unroll_are_named():
    with pytest.raises(ValueError, match=r"saved_hidden_state_timesteps is \[0, 5\]; wanted .* from 0 to 4"):
        make()({"obs": torch.rand(4, B, 4)}, saved_hidden_state_timesteps=[0, 5])


def test_missing_and_odd_previous_steps_are_named():
    net, obs = make(use_prev_action=True), torch.rand(B, 4)
    with pytest.raises(KeyError, match=r"use_prev_action is set and its inputs .* lack 'prev_action'"):
        net({"obs": obs}, inference=True)
    with pytest.raises(ValueError, match=r"prev_action has shape \[3, 1\]; wanted \[3\]"):
        net({"obs": obs, "prev_action": torch.zeros(B, 1, dtype=torch.int64)}, inference=True)


def test_options_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"head_hidden_size is 5, the encoder's last width 8; .* res_link"):
        make(res_link=True, head_hidden_size=5)
    shapes = {"obs_shape": 4, "action_shape": 2}
    for section, told in (
        ({"type": "dqn", "lstm_type": "gru"}, "policy.model.lstm_type: model 'dqn' has no such argument"),
        ({"type": "drqn", "lstm_type": "rnn"}, "policy.model.lstm_type"),
        ({"type": "drqn", "num_layers": 0}, "policy.model.num_layers"),
    ):
        with pytest.raises(ConfigError, match=told):
            make_model(section, lambda: ("drqn", []), shapes)


def test_a_feed_forward_network_under_hidden_state_is_named():
    wrapped = model_wrap(DQN(4, A, [8]), "hidden_state", state_num=B)
    with pytest.raises(ValueError, match=r"hidden_state: the network is feed-forward.*policy.model.type='drqn'"):
        wrapped.forward(torch.rand(B, 4), inference=True)
