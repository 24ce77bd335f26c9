"""Phasic policy gradient: PPO's step in a policy phase, the auxiliary loss by hand, what holds the policy."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.config import ConfigError
from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.policy.ppg import PPGPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.worker.replay_buffer import PhasicRollout
from tests.helpers import make_collector, make_policy, policy_config
from tests.policy.test_ppo import minibatch
from tests.worker.test_sample_collector import Diary

N = 10
SHAPES = {"discrete": 4, "multi_discrete": [2, 3], "continuous": 2}


def policy(kind="discrete", cls=PPGPolicy, seed=0, **over):
    torch.manual_seed(seed)
    shapes = {"obs_shape": 3, "action_shape": SHAPES[kind], "action_space": kind}
    over.setdefault("model", {"encoder_hidden_size_list": [8], "orthogonal_init": False, "sigma_type": "conditioned"})
    return cls(policy_config(cls, **over), seed=seed, shapes=shapes)


def auxiliary(seed=0, unit=1.0):
    rng = np.random.default_rng(seed)
    data = dict(obs=rng.normal(size=(N, 3)), return_=rng.normal(size=N), unit=np.full(N, unit))
    data = {name: torch.as_tensor(value.astype(np.float32)) for name, value in data.items()}
    return ArrayDict(auxiliary=torch.ones(N, dtype=torch.bool), **data)


def kl(old, new):
    """KL(old || new) of one observation by definition, float64."""
    if isinstance(old, dict):
        total = 0.0
        for m, s, n, r in zip(*(x.tolist() for x in (old["mu"], old["sigma"], new["mu"], new["sigma"]))):
            total += math.log(r / s) + (s * s + (m - n) ** 2) / (2 * r * r) - 0.5
        return total
    if isinstance(old, tuple):
        return sum(map(kl, old, new))
    p, q = (np.exp(z.numpy()) / np.exp(z.numpy()).sum() for z in (old, new))
    return float((p * np.log(p / q)).sum())


def double(output, i):
    return tree_map(lambda x: x[i].double(), output)


@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_auxiliary_loss_equals_brute_force(kind, beta):
    pi, data = policy(kind, learn=dict(beta_clone=beta, value_norm=False, learning_rate=0.05)), auxiliary(unit=3.0)
    with torch.no_grad():
        old = pi.get_model()(data["obs"])["logit"]
    for _ in range(4):  # the phase begins; its first step is not yet away from the old policy
        pi.learn_mode.forward(copy.copy(data))
    with torch.no_grad():
        new = pi.get_model()(data["obs"])
    wanted = {"aux_value_loss": 0.0, "value_loss": 0.0, "aux_kl": 0.0}
    for i in range(N):
        target = 3.0 * float(data["return_"][i])
        wanted["aux_value_loss"] += 0.5 * (float(new["aux_value"][i]) - target) ** 2 / N
        wanted["value_loss"] += 0.5 * (float(new["value"][i]) - target) ** 2 / N
        wanted["aux_kl"] += kl(double(old, i), double(new["logit"], i)) / N
    info = pi.learn_mode.forward(copy.copy(data))
    for name, value in wanted.items():
        assert float(info[name]) == pytest.approx(value, abs=1e-5), name
    total = wanted["aux_value_loss"] + wanted["value_loss"] + beta * wanted["aux_kl"]
    assert float(info["total_loss"]) == pytest.approx(total, abs=1e-4)
    assert wanted["aux_kl"] > 1e-3


def test_targets_are_in_the_unit_of_the_network_whenever_they_were_made():
    pi = policy()  # with value_norm
    pi._value_norm.update(np.full((5, 1), 4.0, np.float32))
    here, there = auxiliary(unit=4.0), auxiliary(unit=2.0)
    there["return_"] *= 2
    losses = [float(copy.deepcopy(pi).learn_mode.forward(data)["value_loss"]) for data in (here, there)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_old_policy_is_that_of_the_phase_s_beginning():
    pi, data = policy(learn=dict(learning_rate=0.05)), auxiliary()
    kls = [float(pi.learn_mode.forward(copy.copy(data))["aux_kl"]) for _ in range(5)]
    assert kls[0] == pytest.approx(0, abs=1e-7) and kls[-1] > 1e-4
    pi.learn_mode.forward(minibatch())  # a policy phase between two auxiliary ones
    assert float(pi.learn_mode.forward(copy.copy(data))["aux_kl"]) == pytest.approx(0, abs=1e-7)


def test_a_step_of_a_policy_phase_is_ppo_s():
    learn = dict(value_norm=False, learning_rate=1e-3, value_clip=0.1)
    mine, its = policy(learn=learn), policy(cls=PPOPolicy, model=dict(PPO_MODEL), learn=learn)
    its.get_model().load_state_dict(mine.get_model().state_dict())
    for step in range(3):
        a, b = (pi.learn_mode.forward(minibatch(step)) for pi in (mine, its))
        assert {k: float(v) for k, v in a.items()} == {k: float(v) for k, v in b.items()}


PPO_MODEL = {"encoder_hidden_size_list": [8], "share_encoder": False, "aux_value_head": True}


def _as_learner(batch, major):
    data = ArrayDict({k: tree_map(torchify, v) for k, v in batch.items()})
    flat = ("index", "auxiliary")
    return ArrayDict(
        {k: v if k in flat or not major else tree_map(lambda x: x.transpose(0, 1), v) for k, v in data.items()}
    )


@pytest.mark.parametrize("lstm", [None, "gru"])
def test_whole_phases_over_a_collector(lstm):
    """The returns of an auxiliary minibatch are those that its rollouts had, and KL starts from 0 in each phase."""
    torch.manual_seed(0)
    model = {"encoder_hidden_size_list": [8], "lstm_type": lstm}
    pi = policy(model=model, learn_unroll_len=4, norm_obs=dict(use_norm=True))
    collector = make_collector(pi, Diary(0, [3, 5, 9]), Diary(1, [40]), n_sample=8)
    store = PhasicRollout(pi_store(phases=2, epochs=2))
    seen, first, kls = [], [], []
    for _ in range(4):
        collector.collect(store.push)
        for batch in store.batches(1, 4):
            (first if "auxiliary" in batch else seen).append(batch["return_"] * batch["unit"])
            info = pi.learn_mode.forward(_as_learner(batch, lstm is not None))
            assert math.isfinite(float(info["total_loss"]))
            if "auxiliary" in batch:
                kls.append(float(info["aux_kl"]))
    assert sorted(np.concatenate(first).ravel()) == pytest.approx(sorted(2 * list(np.concatenate(seen).ravel())))
    assert len(kls) == 8 and kls[0] == pytest.approx(0, abs=1e-6) and kls[4] == pytest.approx(0, abs=1e-6)


def pi_store(phases, epochs):
    cfg = make_policy(PPGPolicy)._cfg.other
    cfg.update(policy_phases=phases, aux_epochs=epochs, aux_batch_size=8)
    return cfg


class NoAux(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return {"logit": self.w.expand(len(x), 4), "value": self.w.expand(len(x))}


def test_a_network_without_the_second_value_is_named():
    pi = make_policy(PPGPolicy, obs_shape=3, action_shape=4, model=NoAux())
    with pytest.raises(ConfigError, match=r"network \(NoAux\) gives logit, value; .* wants `aux_value` too"):
        pi.learn_mode.forward(auxiliary())
    with pytest.raises(ConfigError, match="wants `aux_value` too"):  # not after a phase of rollouts
        pi.learn_mode.forward(ArrayDict(obs=auxiliary()["obs"]))
