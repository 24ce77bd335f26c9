"""DDPG, TD3 and SAC on transitions: losses against the networks' own numbers, who is updated when, states, acting."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.data import ArrayDict, torchify
from ding_like.model.template.qac import QAC
from ding_like.model.template.vac import VAC
from ding_like.policy.ddpg import DDPGPolicy
from ding_like.policy.q_value_gradient import QValueGradientPolicy
from ding_like.policy.sac import SACPolicy
from ding_like.policy.td3 import TD3Policy
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.rl_utils.distribution import Categorical, SquashedGaussian, mask_logit
from tests.envs.toys import Count
from tests.helpers import fingerprint, make_collector, make_policy, policy_config

CLASSES = {"ddpg": DDPGPolicy, "td3": TD3Policy, "sac": SACPolicy, "sac discrete": SACPolicy}
every = pytest.mark.parametrize("kind", CLASSES)
N, S, D = 12, 3, 2


def make(kind, double=True, seed=0, **over):
    """A policy over observations of 3 numbers and 2 actions or action dimensions; in float64 where `double`."""
    torch.manual_seed(seed)
    shapes = {"obs_shape": S, "action_shape": D, "action_space": "discrete" if "discrete" in kind else "continuous"}
    if shapes["action_space"] == "continuous":
        shapes["action_scale"] = ActionScale(np.float32([-1, 0]), np.float32([1, 6]))
    sizes = dict(actor_head_hidden_size=8, critic_head_hidden_size=8, activation="tanh")
    cfg = policy_config(CLASSES[kind], **{"model": sizes, **over})
    model = CLASSES[kind](cfg, shapes=shapes).get_model()
    return CLASSES[kind](cfg, copy.deepcopy(model).double() if double else model, shapes=shapes)


def batch(kind, seed=0, weight=False):
    rng = np.random.default_rng(seed)
    discrete = "discrete" in kind
    fields = dict(
        obs=rng.normal(size=(N, S)),
        action=rng.integers(0, D, N) if discrete else rng.uniform(-1, 1, (N, D)),
        reward=rng.normal(size=N),
        discount=rng.choice([0.0, 0.9, 0.81], N),
        next_obs=rng.normal(size=(N, S)),
    )
    if weight:
        fields["weight"] = rng.uniform(0, 2, N)
    return ArrayDict({name: torch.as_tensor(value) for name, value in fields.items()})


def q_of(net, obs, action):
    return net({"obs": obs, "action": action}, mode="compute_critic")["q_value"]


def temperature(policy):
    return float(policy._alpha) if isinstance(policy, SACPolicy) else None


def wanted_values(kind, policy, net, data):
    """Targets [N], by the networks as they were (online and target are one) and the definitions of the papers."""
    logit, alpha = net(data["next_obs"])["logit"], temperature(policy)
    if kind == "sac discrete":
        probs = torch.softmax(logit, -1)
        least = q_of(net, data["next_obs"], data["action"]).amin(0)
        value = (probs * (least - alpha * probs.log())).sum(-1)
    elif kind == "sac":
        action = torch.tanh(logit["mu"] + logit["sigma"] * torch.randn_like(logit["mu"]))
        log_prob = SquashedGaussian(logit["mu"], logit["sigma"]).log_prob(action)
        value = q_of(net, data["next_obs"], action).amin(0) - alpha * log_prob
    else:
        action = logit["mu"]
        if kind == "td3":
            action = (action + (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)).clamp(-1, 1)
        value = q_of(net, data["next_obs"], action).amin(0)
    return data["reward"] + data["discount"] * value


@every
@pytest.mark.parametrize("weight", [True, False])
def test_the_critics_loss_and_priorities_equal_the_sums_written_out(kind, weight):
    policy, data = make(kind, priority=True), batch(kind, weight=weight)
    net = copy.deepcopy(policy.get_model())
    torch.manual_seed(7)
    with torch.no_grad():
        wanted = wanted_values(kind, policy, net, data)
        taken = q_of(net, data["obs"], data["action"])
        if kind == "sac discrete":
            taken = torch.stack([taken[:, i, data["action"][i]] for i in range(N)], 1)
    torch.manual_seed(7)
    info = policy.learn_mode.forward(data)
    critics = 1 if kind == "ddpg" else 2
    assert taken.shape == (critics, N)
    share = data["weight"] if weight else torch.ones(N)
    total = sum(float(share[i]) * 0.5 * float(wanted[i] - taken[k, i]) ** 2 for i in range(N) for k in range(critics))
    assert info["total_loss"].item() == pytest.approx(total / N, rel=1e-9)
    sizes = [np.mean([abs(float(wanted[i] - taken[k, i])) for k in range(critics)]) for i in range(N)]
    assert info["priority"].tolist() == pytest.approx(sizes, rel=1e-9)
    assert "priority" not in make(kind).learn_mode.forward(data)


@every
def test_the_actors_gradient_is_that_of_the_updated_critics_value(kind):
    policy, data = make(kind, learn=dict(optimizer="sgd", learning_rate=0.1, actor_update_freq=1)), batch(kind)
    before, alpha = copy.deepcopy(policy.get_model()), temperature(policy)
    torch.manual_seed(7)
    info = policy.learn_mode.forward(data)
    now, learned = policy.get_model(), copy.deepcopy(policy.get_model())
    learned.actor.load_state_dict(before.actor.state_dict())  # the critics after their step, the actor before its own
    torch.manual_seed(7)
    if kind in ("td3", "sac"):
        torch.randn(N, D, dtype=torch.float64)  # of the target
    logit = learned(data["obs"])["logit"]
    if kind == "sac discrete":
        probs, least = torch.softmax(logit, -1), q_of(learned, data["obs"], data["action"]).amin(0).detach()
        loss = (probs * (alpha * probs.log() - least)).sum(-1).mean()
    elif kind == "sac":
        action = torch.tanh(logit["mu"] + logit["sigma"] * torch.randn_like(logit["mu"]))
        log_prob = SquashedGaussian(logit["mu"], logit["sigma"]).log_prob(action)
        loss = (alpha * log_prob - q_of(learned, data["obs"], action).amin(0)).mean()
    else:
        loss = -q_of(learned, data["obs"], logit["mu"])[0].mean()
    assert info["policy_loss"].item() == pytest.approx(loss.item(), rel=1e-7)
    parameters = list(learned.actor.parameters())
    for old, new, grad in zip(parameters, now.actor.parameters(), torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(new, old - 0.1 * grad, rtol=1e-6, atol=1e-9)
    assert all(p.requires_grad for p in now.critic.parameters())


@every
def test_actor_and_targets_move_at_every_third_step_of_the_critics(kind):
    policy, theta = make(kind, learn=dict(actor_update_freq=3, target_theta=0.1)), 0.1
    net = policy.get_model()
    for step in range(1, 7):
        actor, critic = (copy.deepcopy(part.state_dict()) for part in (net.actor, net.critic))
        target = policy._target_model.state_dict()["model"]
        info = policy.learn_mode.forward(batch(kind, seed=step))
        moves = step % 3 == 0
        assert ("policy_loss" in info) == moves
        assert all(torch.equal(p, actor[n]) != moves for n, p in net.actor.named_parameters())
        assert not any(torch.equal(p, critic[n]) for n, p in net.critic.named_parameters())
        for name, p in net.state_dict().items():
            after = target[name] + moves * theta * (p - target[name])
            torch.testing.assert_close(policy._target_model.state_dict()["model"][name], after, rtol=1e-12, atol=1e-12)


def test_td3_takes_the_smaller_target_critic_and_ddpg_has_one():
    policy = make("td3", learn=dict(noise_sigma=0.0))
    head = policy._target_model._network().critic_head
    for weight, bias in zip(head.weights, head.biases):
        weight.data.zero_(), bias.data.zero_()
    head.biases[-1].data[:, 0, 0] = torch.tensor([5.0, -3.0])
    data = batch("td3")
    with torch.no_grad():
        taken = q_of(policy.get_model(), data["obs"], data["action"]).mean()
    td = policy.learn_mode.forward(data)["td_error"] + taken
    assert td.item() == pytest.approx((data["reward"] - 3 * data["discount"]).mean().item())
    assert len(make("ddpg").get_model().critic_head.weights[0]) == 1


# ---------------------------------------------------------------- temperature
@pytest.mark.parametrize("kind", ["sac", "sac discrete"])
def test_the_temperature_follows_the_entropy_and_stays_above_zero(kind, monkeypatch):
    """Case B40."""
    policy = make(kind, learn=dict(learning_rate_alpha=3e-2))
    default = policy._target_entropy
    assert default == -D if kind == "sac" else 0 < default < math.log(D)
    improve, entropy = QValueGradientPolicy._improve, {}
    monkeypatch.setattr(QValueGradientPolicy, "_improve", lambda self, steps: {**improve(self, steps), **entropy})
    alphas = [float(policy._alpha)]
    for step in range(100):
        entropy["entropy"] = torch.tensor(default + (-1.0 if step < 50 else 1.0))
        alphas.append(float(policy.learn_mode.forward(batch(kind, seed=step))["alpha"]))
    assert alphas[50] > alphas[0] and alphas[100] < alphas[50] and min(alphas) > 0


def test_the_default_target_entropy_is_one_that_allowed_actions_can_have():
    logit = mask_logit(torch.zeros(4, D), torch.tensor([[1, 1], [1, 1], [1, 0], [0, 1]]))
    steps = SimpleNamespace(logit=lambda: logit, q=lambda action: torch.zeros(2, 4, D), mask=None)
    _, told = make("sac discrete")._policy_loss(steps)
    assert told["target_entropy"].item() == pytest.approx(0.98 * math.log(2) / 2)
    assert told["entropy"].item() > told["target_entropy"].item()
    assert "target_entropy" not in make("sac discrete", learn=dict(target_entropy=0.3))._policy_loss(steps)[1]


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_a_fixed_temperature_stays(alpha):
    policy = make("sac", learn=dict(auto_alpha=False, alpha=alpha))
    for step in range(3):
        assert policy.learn_mode.forward(batch("sac", seed=step))["alpha"] == alpha
    assert {"temperature", "optimizer_alpha"}.isdisjoint(policy.learn_mode.state_dict())


# ---------------------------------------------------------------- settings, states
@every
def test_learning_rates_of_their_own_follow_the_schedule(kind):
    rates = dict(learning_rate=1e-2, learning_rate_actor=1e-3)
    if "sac" in kind:
        rates["learning_rate_alpha"] = 1e-4
    policy = make(kind, learn=dict(actor_update_freq=1, lr_schedule=dict(type="linear", decay=100), **rates))
    policy._envstep = 25
    policy.learn_mode.forward(batch(kind))
    parts = [policy._optimizer, policy._optimizer_actor, getattr(policy, "_optimizer_alpha", None)]
    got = [part.param_groups[0]["lr"] for part in parts if part is not None]
    assert got == pytest.approx([0.75 * rate for rate in rates.values()])


@every
@pytest.mark.parametrize("steps", [1, 2])
def test_a_state_loaded_goes_on_as_the_one_saved(kind, steps):
    one, other = make(kind), make(kind, seed=1)
    for step in range(steps):
        one.learn_mode.forward(batch(kind, seed=step))
    other.learn_mode.load_state_dict(one.learn_mode.state_dict())
    for policy in (one, other):
        torch.manual_seed(3)
        for step in range(3):
            policy.learn_mode.forward(batch(kind, seed=10 + step))
    assert fingerprint(one.learn_mode.state_dict()) == fingerprint(other.learn_mode.state_dict())


@every
def test_networks_and_settings_that_do_not_fit_are_told(kind):
    cls = CLASSES[kind]
    told = cls.network_mistakes(make(kind)._cfg, False, QAC)
    assert told == []
    cfg = make(kind, learn_unroll_len=4, nstep=4)._cfg
    assert "learn_unroll_len is 4" in cls.network_mistakes(cfg, True, QAC)[0]
    unfit = {"td3": dict(noise_range=dict(min=0.5, max=0.1)), "sac": dict(alpha=0.0), "sac discrete": dict(alpha=0.0)}
    if kind in unfit:
        with pytest.raises(
            ConfigError, match=r"policy\.learn\.(noise_range: got min 0\.5 and max 0\.1|alpha: got 0), wanted"
        ):
            make(kind, learn=unfit[kind])
    with pytest.raises(ConfigError, match=r"policy\.burnin_step is 3 .* feed-forward"):
        make(kind, burnin_step=3)
    with pytest.raises(ConfigError, match=r"takes no 'mode'; wanted one such as policy\.model\.type='qac'"):
        make_policy(cls, S, D, model=torch.nn.Linear(3, 2))
    assert "values states, no actions" in cls.network_mistakes(make(kind)._cfg, False, VAC)[0]
    with pytest.raises(ConfigError, match=r"\(Modes\) has no module `actor` and no `critic`"):
        make_policy(cls, S, D, model=Modes())


class Modes(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 1)

    def forward(self, x, mode="compute_actor"):
        return {}


# ---------------------------------------------------------------- acting
@every
def test_exploring_actions_vary_evaluation_repeats_itself_and_the_env_gets_its_own_units(kind):
    policy, obs = make(kind, double=False), np.random.default_rng(0).normal(size=(500, S)).astype(np.float32)
    first, second = (policy.collect_mode.forward(obs) for _ in range(2))
    assert not np.array_equal(first["action"], second["action"])
    best = [policy.eval_mode.forward(obs)["action"] for _ in range(2)]
    assert np.array_equal(*best)
    with torch.no_grad():
        logit = policy.get_model()(torch.as_tensor(obs))["logit"]
    if kind == "sac discrete":
        assert np.array_equal(best[0], logit.argmax(-1))
        assert Categorical(logit).probs.min() > 0.01
        return
    raw = torch.tanh(logit["mu"]) if kind == "sac" else logit["mu"]
    np.testing.assert_allclose(best[0], raw.numpy() * [1, 3] + [0, 3], rtol=1e-4, atol=1e-5)
    assert np.abs(first["raw_action"]).max() <= 1
    np.testing.assert_allclose(first["action"], first["raw_action"] * [1, 3] + [0, 3], rtol=1e-5, atol=1e-5)
    drawn = policy.collect_mode.forward_random(obs)
    assert drawn["raw_action"].min() < -0.9 and drawn["raw_action"].max() > 0.9


@pytest.mark.parametrize(
    ("trunc", "wanted"), [(True, [0.25, 0.25, 0.25, 0.5]), (False, [0.25, 0.25, 0.0, 0.0])], ids=["truncated", "ended"]
)
def test_items_bootstrap_over_their_true_distance_but_not_past_a_terminal(trunc, wanted):
    policy = make_policy(SACPolicy, shapes={"action_space": "discrete"}, nstep=2, discount_factor=0.5)
    items = make_collector(policy, Count(4, trunc=trunc), n_sample=4).collect()
    assert items["discount"][:4].tolist() == wanted
    assert items["reward"][:4].tolist() == [1.5, 1.5, 1.5, 1.0]
    assert items["next_obs"][:4, 0].tolist() == [2, 3, 4, 4]
    assert math.isfinite(policy.learn_mode.forward(torchify(items))["total_loss"])
