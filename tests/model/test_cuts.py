"""A network that unrolls by itself and takes no notice of `cut` gives what stepping it with resets gives."""

import logging

import pytest
import torch
from torch import nn

import ding_like.utils.log as log
from ding_like.data import tree_leaves, tree_map
from ding_like.model import model_wrap
from ding_like.model.template.drqn import DRQN
from ding_like.model.template.vac import VAC
from tests.model.recurrent_cases import random_cut

STEPS, BATCH, H = 6, 4, 5


class Deaf(nn.Module):
    """A GRU over windows, as networks are that know nothing of episodes inside."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head, self.drop = nn.GRU(2, H), nn.Linear(H, 3), nn.Dropout(dropout)
        self.unrolled = 0

    def initial_state(self, n):
        return {"h": torch.zeros(n, 1, H)}

    def forward(self, x, inference=False):
        obs = x["obs"][None] if inference else x["obs"]
        self.unrolled += not inference
        out, h = self.rnn(self.drop(obs), x["prev_state"]["h"].transpose(0, 1).contiguous())
        logit = self.head(out)
        return {"logit": logit[0] if inference else logit, "next_state": {"h": h.transpose(0, 1)}}


class Late(Deaf):
    """Begins anew before the steps at which `cut` is 0: one step too early."""

    def forward(self, x, inference=False):
        if inference:
            return super().forward(x, True)
        state, logits = x["prev_state"], []
        for t, obs in enumerate(x["obs"]):
            if "cut" in x:
                state = {"h": state["h"] * x["cut"][t][:, None, None]}
            out = super().forward({"obs": obs, "prev_state": state}, True)
            logits, state = [*logits, out["logit"]], out["next_state"]
        return {"logit": torch.stack(logits), "next_state": state}


class Lists(Deaf):
    """States in DI-engine's form, a list of B."""

    def initial_state(self, n):
        return [{"h": torch.zeros(1, H)} for _ in range(n)]

    def forward(self, x, inference=False):
        out = super().forward({**x, "prev_state": {"h": torch.stack([row["h"] for row in x["prev_state"]])}}, inference)
        return {**out, "next_state": [{"h": h} for h in out["next_state"]["h"]]}


class NoInitial(Deaf):
    """Its state shows in its first output alone."""

    def __getattribute__(self, name):
        if name == "initial_state":
            raise AttributeError(name)
        return super().__getattribute__(name)

    def forward(self, x, inference=False):
        if x["prev_state"] is None:
            n = x["obs"].shape[0 if inference else 1]
            x = {**x, "prev_state": {"h": torch.zeros(n, 1, H)}}
        return super().forward(x, inference)


@pytest.fixture(autouse=True)
def _warns_again(monkeypatch):
    monkeypatch.setattr(log, "_warned", set())


def inputs(seed=3):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(STEPS, BATCH, 2, generator=g), random_cut(STEPS, BATCH)


def wanted(net, obs, cut, state):
    """By stepping the network itself; `state` [B, 1, H]."""
    logits = []
    for t in range(STEPS):
        out = Deaf.forward(net, {"obs": obs[t], "prev_state": {"h": state}}, True)
        logits.append(out["logit"])
        state = out["next_state"]["h"] * cut[t][:, None, None]
    return torch.stack(logits), state


def told(caplog):
    return [r.getMessage() for r in caplog.records if "takes no notice of its input 'cut'" in r.getMessage()]


@pytest.mark.parametrize("kind", [Deaf, Late, Lists, NoInitial])
def test_values_states_and_gradients_are_those_of_stepping_with_resets(kind, caplog):
    net, (obs, cut) = kind(), inputs()
    wrapped = model_wrap(net, wrapper_name="hidden_state")
    start = torch.full((BATCH, 1, H), 0.0 if kind is NoInitial else 0.3)
    if kind is not NoInitial:
        wrapped.reset(state=[{"h": h} for h in start] if kind is Lists else {"h": start})
    with caplog.at_level(logging.WARNING):
        found = wrapped.forward({"obs": obs, "cut": cut}, inference=False)["logit"]
    gradient = torch.autograd.grad(found.square().sum(), list(net.parameters()))
    logit, state = wanted(net, obs, cut, start)
    torch.testing.assert_close(found, logit)
    torch.testing.assert_close(wrapped.run_state_dict()["tree"]["h"], state.detach())
    for a, b in zip(gradient, torch.autograd.grad(logit.square().sum(), list(net.parameters())), strict=True):
        torch.testing.assert_close(a, b)
    (message,) = told(caplog)
    assert f"hidden_state: the network ({kind.__name__})" in message


def test_without_a_cut_it_unrolls_by_itself_and_the_question_is_asked_once(caplog):
    net, (obs, cut) = Deaf(), inputs()
    wrapped = model_wrap(net, wrapper_name="hidden_state")
    for asked, goes_on in enumerate([None, torch.ones_like(cut), cut, torch.ones_like(cut)], 1):
        wrapped.reset()
        data = {"obs": obs} if goes_on is None else {"obs": obs, "cut": goes_on}
        found = wrapped.forward(data, inference=False)["logit"]
        logit, _ = wanted(net, obs, torch.ones_like(cut) if goes_on is None else goes_on, torch.zeros(BATCH, 1, H))
        torch.testing.assert_close(found, logit)
        assert net.unrolled == {1: 1, 2: 3, 3: 3, 4: 4}[asked]  # the question is one unroll, a window with a cut none
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("kind", ["normal", "hpc", "pytorch", "gru"])
@pytest.mark.parametrize("training", [True, False])
def test_networks_of_ours_heed_it_in_every_mode_and_are_left_as_they_were(kind, training, caplog):
    torch.manual_seed(0)
    nets = [(DRQN(2, 3, [4], lstm_type=kind, num_layers=2), {})]
    for share in (True, False):
        net = VAC(2, 3, encoder_hidden_size_list=[4], lstm_type=kind, share_encoder=share)
        nets += [(net, {"mode": mode}) for mode in ("compute_actor", "compute_critic", "compute_actor_critic")]
    obs, cut = inputs()
    for net, kwargs in nets:
        net.train(training)
        rng = torch.random.get_rng_state()
        wrapped = model_wrap(net, wrapper_name="hidden_state")
        wrapped.forward({"obs": obs, "cut": cut}, inference=False, **kwargs)
        assert torch.equal(rng, torch.random.get_rng_state())
        assert all(module.training is training for module in net.modules())
    assert told(caplog) == []


def test_dropout_does_not_hide_the_answer(caplog):
    class Hears(Deaf):
        def forward(self, x, inference=False):
            if inference or "cut" not in x:
                return super().forward(x, inference)
            state, logits = x["prev_state"], []
            for obs, goes_on in zip(x["obs"], x["cut"]):
                out = super().forward({"obs": obs, "prev_state": state}, True)
                state = tree_map(lambda s, on=goes_on: s * on[:, None, None], out["next_state"])
                logits.append(out["logit"])
            return {"logit": torch.stack(logits), "next_state": state}

    obs, cut = inputs()
    for kind, count in ((Hears, 0), (Deaf, 1)):
        net = kind(dropout=0.5).train()
        wrapped = model_wrap(net, wrapper_name="hidden_state")
        output = wrapped.forward({"obs": obs, "cut": cut}, inference=False)
        assert net.training and all(torch.isfinite(leaf).all() for leaf in tree_leaves(output))
        assert len(told(caplog)) == count
