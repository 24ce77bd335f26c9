"""The Q-learning family: what every algorithm on its base does, and the loss of each against one written out."""

import copy
import math

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError, deep_merge_defaults
from ding_like.data import ArrayDict
from ding_like.entry.build import full_config
from ding_like.model.template.q_learning import DQN
from ding_like.policy.c51 import C51Policy
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.iqn import IQNPolicy
from ding_like.policy.qrdqn import QRDQNPolicy
from ding_like.policy.rainbow import RainbowPolicy
from ding_like.policy.sqn import SQNPolicy
from ding_like.rl_utils.distribution import mask_logit
from ding_like.rl_utils.distributional import c51_loss
from ding_like.rl_utils.quantile import quantile_td_loss
from ding_like.utils import MODEL_REGISTRY
from tests.helpers import fingerprint, policy_config, single, tiny_config

FAMILY = [DQNPolicy, C51Policy, QRDQNPolicy, IQNPolicy, RainbowPolicy, SQNPolicy]
OBS, A, N = 4, 3, 16
every = pytest.mark.parametrize("cls", FAMILY, ids=lambda cls: cls.__name__)
both = pytest.mark.parametrize("recurrent", [False, True], ids=["steps", "windows"])
SIZES = dict(burnin_step=2, learn_unroll_len=5, nstep=2)
EPS = dict(other=dict(eps=dict(decay=100)))


def policy_of(cls, recurrent=False, seed=0, **over):
    torch.manual_seed(seed)
    model = dict(encoder_hidden_size_list=[8], **(dict(type="drqn", lstm_type="gru") if recurrent else {}))
    over = deep_merge_defaults(dict(model=model, priority=True), SIZES if recurrent else {}, over)
    return cls(policy_config(cls, **over), seed=seed, shapes=dict(obs_shape=OBS, action_shape=A))


def transitions(seed=0, n=N, obs=lambda x: x):
    rng = np.random.default_rng(seed)
    see = [torch.as_tensor(rng.normal(size=(n, OBS)).astype(np.float32)) for _ in "ab"]
    return ArrayDict(
        obs=obs(see[0]),
        action=torch.as_tensor(rng.integers(0, A, n)),
        reward=torch.as_tensor(rng.normal(size=n).astype(np.float32)),
        discount=torch.as_tensor(rng.choice([0.0, 0.9], n).astype(np.float32)),
        next_obs=obs(see[1]),
    )


def windows(seed=0, n=6, burnin=2, steps=5):
    """Windows `[U, n]`: the first begins an episode; the second ends a terminated one, the third a truncated one."""
    rng, width = np.random.default_rng(seed), burnin + steps
    data = ArrayDict(
        obs=torch.as_tensor(rng.normal(size=(width, n, OBS)).astype(np.float32)),
        action=torch.as_tensor(rng.integers(0, A, (width, n))),
        reward=torch.as_tensor(rng.normal(size=(width, n)).astype(np.float32)),
        terminated=torch.zeros(width, n, dtype=torch.bool),
        done=torch.zeros(width, n, dtype=torch.bool),
        null=torch.zeros(width, n, dtype=torch.bool),
        prev_state={"h": torch.as_tensor(rng.normal(size=(1, n, 1, 8)).astype(np.float32))},
    )
    data["null"][:burnin, 0] = True
    data["prev_state"]["h"][:, 0] = 0
    data["null"][-3:, 1:3] = True
    data["done"][-4, 1:3] = True
    data["terminated"][-4, 1] = True
    data["reward"][data["null"]] = 0
    data["mask"] = (~data["null"]).float()
    return data


def batch_of(recurrent, seed=0):
    return windows(seed) if recurrent else transitions(seed)


# ---------------------------------------------------------------- what they have in common
@every
@both
def test_a_step_trains_the_network_and_gives_priorities_back(cls, recurrent):
    policy = policy_of(cls, recurrent)
    before = copy.deepcopy(policy.get_model().state_dict())
    info = policy.learn_mode.forward(batch_of(recurrent))
    assert all(not torch.equal(p, before[name]) for name, p in policy.get_model().named_parameters())
    assert torch.isfinite(info["total_loss"]) and info["grad_norm"] > 0
    assert info["priority"].shape == (6 if recurrent else N,) and not info["priority"].requires_grad
    assert torch.isfinite(info["priority"]).all() and (info["priority"] >= 0).all() and info["priority"].std() > 0
    assert "priority" not in policy_of(cls, recurrent, priority=False).learn_mode.forward(batch_of(recurrent))


@every
def test_nan_in_null_steps_changes_nothing(cls):
    """Case B30."""
    found = []
    for spoilt in (False, True):
        policy, data = policy_of(cls, recurrent=True), windows()
        if spoilt:
            shows_final = torch.zeros_like(data["null"])
            shows_final[-3, 2] = True  # of the truncated episode
            data["obs"][data["null"] & ~shows_final] = math.nan
            data["reward"][data["null"]] = math.nan
        torch.manual_seed(3)
        info = policy.learn_mode.forward(data)
        found.append([info["total_loss"], info["priority"], policy.get_model().state_dict()])
    assert fingerprint(found[0]) == fingerprint(found[1])


@every
def test_weights_are_those_of_the_loss(cls):
    """By linearity: the loss is the weighted sum of those of its parts."""

    def loss(weight):
        policy, data = policy_of(cls), transitions()
        data["weight"] = torch.as_tensor(weight, dtype=torch.float32)
        torch.manual_seed(0)
        return policy.learn_mode.forward(data)["total_loss"].item()

    part = np.arange(N) < 3
    whole = loss(np.where(part, 0.25, 0.75))
    assert whole == pytest.approx(0.25 * loss(part) + 0.75 * loss(~part), rel=1e-4)


# ---------------------------------------------------------------- the loss of each
def losses(policy, data):
    """What a step returned, and the outputs of both networks before it."""
    online, target = policy._model(data["obs"]), policy._target_model.forward(data["next_obs"])
    target = {name: value.detach() for name, value in target.items()}
    chosen = policy._model(data["next_obs"])["logit"].argmax(-1)
    return policy.learn_mode.forward(data), online, target, chosen


def different_target(policy):
    """A target network unlike the online one, so that it matters which is asked."""
    with torch.no_grad():
        for p in policy._target_model._network().parameters():
            p.add_(0.3 * torch.randn_like(p))
    return policy


@pytest.mark.parametrize("double", [True, False])
def test_c51_and_qrdqn_bootstrap_as_double_says(double):
    data = transitions()
    fields = data["action"], data["reward"], data["discount"]
    policy = different_target(policy_of(C51Policy, double=double, model=dict(n_atom=5, v_min=-2.0, v_max=2.0)))
    info, online, target, chosen = losses(policy, data)
    best = chosen if double else target["logit"].argmax(-1)
    assert (chosen != target["logit"].argmax(-1)).any()
    loss, kl = c51_loss(online["atom_logit"], *fields, target["distribution"], best, torch.linspace(-2, 2, 5))
    torch.testing.assert_close((info["total_loss"], info["priority"]), (loss.mean().detach(), kl))

    policy = different_target(policy_of(QRDQNPolicy, double=double, learn=dict(kappa=0.5)))
    info, online, target, chosen = losses(policy, data)
    best = chosen if double else target["logit"].argmax(-1)
    loss, error = quantile_td_loss(online["q"], online["tau"], *fields, target["q"], best, 0.5)
    torch.testing.assert_close((info["total_loss"], info["priority"]), (loss.mean().detach(), error))


def test_rainbow_is_c51_with_its_parts_on_and_each_can_be_left_out():
    made = RainbowPolicy.default_config()
    assert (made.priority, made.nstep, made.double) == (True, 3, True)
    assert (made.model.head_type, made.model.dueling, made.model.noisy) == ("distribution", True, True)
    off = dict(nstep=1, model=dict(noisy=False, dueling=False))
    found = []
    for cls in (RainbowPolicy, C51Policy):
        policy = policy_of(cls, **off)
        found.append([policy.learn_mode.forward(transitions()), policy.get_model().state_dict()])
    assert fingerprint(found[0]) == fingerprint(found[1])


def test_with_noisy_layers_the_noise_explores_and_without_them_epsilon():
    noisy, quiet = policy_of(RainbowPolicy), policy_of(RainbowPolicy, model=dict(noisy=False), **EPS)
    assert noisy.collect_mode.get_setting(50) == {"noise_key": 50}
    assert quiet.collect_mode.get_setting(0) == {"eps": 0.95}
    obs = np.random.default_rng(0).normal(size=(30, OBS)).astype(np.float32)
    seen = [noisy.collect_mode.forward(obs, noise_key=key)["logit"] for key in (0, 8, 8)]
    assert not np.array_equal(seen[0], seen[1]) and np.array_equal(seen[1], seen[2])
    assert not np.array_equal(noisy.eval_mode.forward(obs)["logit"], seen[2])


def test_iqn_draws_new_probabilities_for_every_update():
    values = []
    for seed in (0, 0, 1):
        policy = policy_of(IQNPolicy)
        torch.manual_seed(seed)
        values.append(policy.learn_mode.forward(transitions())["total_loss"].item())
    assert values[0] == values[1] != values[2]


# ---------------------------------------------------------------- the temperature
def test_the_temperature_moves_the_entropy_towards_its_target():
    """Case B40, for Q-learning: below the target alpha grows, above it shrinks, and it stays positive."""
    for wanted, grows in ((1.0, True), (0.0, False)):
        policy = policy_of(SQNPolicy, learn=dict(target_entropy=wanted, learning_rate=1e-8, alpha=0.05))
        infos = [policy.learn_mode.forward(transitions(step)) for step in range(30)]
        assert 0 < infos[0]["entropy"] < 1
        assert (infos[-1]["alpha"] > infos[0]["alpha"]) == grows and infos[-1]["alpha"] > 0
        assert policy.collect_mode.get_setting(0) == {"alpha": pytest.approx(infos[-1]["alpha"].item(), rel=1e-2)}
    default, allowed = policy_of(SQNPolicy)._target_entropy, torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0]])
    assert 0 < default(torch.zeros(2, 4)).item() < math.log(4)
    assert default(mask_logit(torch.zeros(2, 4), allowed)).item() == pytest.approx(default(torch.zeros(2, 4)) / 2)
    fixed = policy_of(SQNPolicy, learn=dict(auto_alpha=False, alpha=0.3))
    for step in range(3):
        info = fixed.learn_mode.forward(transitions(step))
    assert info["alpha"].item() == pytest.approx(0.3)


def test_the_soft_policy_acts_by_its_softmax():
    policy = policy_of(SQNPolicy, learn=dict(alpha=0.5))
    obs = np.tile(np.random.default_rng(0).normal(size=OBS).astype(np.float32), (4000, 1))
    out = policy.collect_mode.forward(obs, **policy.collect_mode.get_setting(0))
    p = np.exp(out["logit"][0] / 0.5)
    np.testing.assert_allclose(np.bincount(out["action"], minlength=A) / 4000, p / p.sum(), atol=0.03)
    uniform = policy_of(SQNPolicy, recurrent=True)
    counts = np.bincount(uniform.collect_mode.forward_random(obs)["action"], minlength=A)
    np.testing.assert_allclose(counts / 4000, 1 / A, atol=0.03)


# ---------------------------------------------------------------- configs
def test_a_network_of_ones_own_gets_the_arguments_that_it_takes():
    class Own(torch.nn.Module):
        def __init__(self, obs_shape, action_shape, n_atom=3):
            super().__init__()
            self.n_atom = n_atom

    MODEL_REGISTRY.register("own_atoms", Own)
    made = single(tiny_config("run"))
    made["policy"].update(type="c51", model=dict(type="own_atoms"))
    assert full_config(made).policy.model == dict(type="own_atoms", n_atom=51)
    made["policy"]["model"] = dict(v_max=5.0)
    model = full_config(made).policy.model
    assert (model.head_type, model.v_max, model.n_atom) == ("distribution", 5.0, 51)


@pytest.mark.parametrize(("cls", "told"), [(RainbowPolicy, "atom_logit and distribution"), (IQNPolicy, "q and tau")])
def test_a_network_that_gives_too_little_is_told(cls, told):
    policy = cls(policy_config(cls, nstep=1), DQN(OBS, A), shapes=dict(obs_shape=OBS, action_shape=A))
    with pytest.raises(ConfigError, match=rf"network \(DQN\) gives logit; {cls.__name__} wants {told} too"):
        policy.learn_mode.forward(transitions())


@pytest.mark.parametrize(
    ("policy_type", "over", "told"),
    [
        ("qrdqn", dict(learn=dict(kappa=-1.0)), r"policy.learn.kappa: got -1.0, wanted a number of at least 0"),
        ("c51", dict(model=dict(n_atoms=5)), r"policy.model.n_atoms: model 'dqn' has no such argument.*'n_atom'"),
        ("c51", dict(model=dict(head_type="q")), r"policy.model.head_type: got 'q', wanted 'distribution'"),
        ("qrdqn", dict(model=dict(head_type="implicit")), r"policy.model.head_type: got 'implicit', wanted 'quantile'"),
        ("c51", dict(learn=dict(loss="mse")), r"policy.learn.loss: unknown key; it is a key of policy 'dqn'"),
        ("sqn", dict(double=True), r"policy.double: got True, wanted False"),
        ("sqn", dict(other=dict(eps=dict(start=1.0))), r"policy.other.eps: got .*, wanted None"),
        ("sqn", dict(learn=dict(alpha=0.0)), r"policy.learn.alpha: got 0.0, wanted a number above 0"),
    ],
)
def test_settings_that_do_not_fit_are_named(policy_type, over, told):
    made = single(tiny_config("run"))
    del made["policy"]["other"]["eps"]
    made["policy"] = deep_merge_defaults(made["policy"], dict(type=policy_type), over)
    with pytest.raises(ConfigError, match=told):
        full_config(made)
