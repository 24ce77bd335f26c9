"""DDPG, TD3 and SAC over RNNs: windows against whole episodes stepped one by one, states while collecting, padding."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces

from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.policy.ddpg import DDPGPolicy
from ding_like.policy.sac import SACPolicy
from ding_like.policy.td3 import TD3Policy
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.rl_utils.adder import get_train_sample
from tests.helpers import make_collector, policy_config

S, D, GAMMA, NSTEP, BURNIN, UNROLL = 3, 2, 0.9, 2, 2, 6
CLASSES = {"ddpg": DDPGPolicy, "td3": TD3Policy, "sac": SACPolicy, "sac discrete": SACPolicy}
every = pytest.mark.parametrize("kind", CLASSES)


def make(kind="ddpg", lstm_type="pytorch", double=True, seed=0, **over):
    torch.manual_seed(seed)
    shapes = {"obs_shape": S, "action_shape": D, "action_space": "discrete" if "discrete" in kind else "continuous"}
    if shapes["action_space"] == "continuous":
        shapes["action_scale"] = ActionScale(-np.ones(D), np.ones(D))
    model = dict(actor_head_hidden_size=8, critic_head_hidden_size=8, lstm_type=lstm_type, lstm_hidden_size=6)
    slots = dict(nstep=NSTEP, burnin_step=BURNIN, learn_unroll_len=UNROLL, discount_factor=GAMMA)
    cfg = policy_config(CLASSES[kind], model=model, **{**slots, **over})
    net = CLASSES[kind](cfg, shapes=shapes).get_model()
    return CLASSES[kind](cfg, copy.deepcopy(net).double() if double else net, shapes=shapes)


class Episode:
    """Random steps with the states of a network that was stepped through them, and what it says at every one."""

    def __init__(self, net, length, truncated, seed, number):
        rng = np.random.default_rng(seed)
        self.length, self.truncated = length, truncated
        self.obs = torch.as_tensor(rng.normal(size=(length + 1, 1, S)))
        self.obs[:, 0, 0] = number + torch.arange(length + 1)  # names the step
        self.action = torch.as_tensor(rng.uniform(-1, 1, (length + 1, 1, D)))
        self.reward = rng.normal(size=length)
        self.states, self.mu, self.taken, self.at_mu = [net.initial_state(1)], [], [], []
        with torch.no_grad():
            for obs, action in zip(self.obs, self.action):
                step = {"obs": obs, "action": action, "prev_state": self.states[-1]}
                acted = net(step, inference=True)
                self.mu.append(acted["logit"]["mu"])
                self.at_mu.append(self.value(net, {**step, "action": self.mu[-1]}))
                self.taken.append(self.value(net, step))
                after = net({**step, "prev_state": acted["next_state"]}, mode="compute_critic", inference=True)
                self.states.append(after["next_state"])

    @staticmethod
    def value(net, step):
        return net(step, mode="compute_critic", inference=True)["q_value"][:, 0]

    def wanted(self, t):
        """Discounted rewards of the steps there are, and the value of the actor's action where they end."""
        k = min(NSTEP, self.length - t)
        total = sum(GAMMA**i * self.reward[t + i] for i in range(k))
        ended = t + k == self.length and not self.truncated
        return total + (0 if ended else GAMMA**k * float(self.at_mu[t + k].amin()))

    def fields(self):
        last = np.arange(self.length) == self.length - 1
        states = [tree_map(lambda x: x.numpy(), state) for state in self.states[: self.length]]
        return dict(
            obs=self.obs[:-1, 0].numpy(),
            next_obs=self.obs[1:, 0].numpy(),
            action=self.action[:-1, 0].numpy(),
            reward=self.reward,
            terminated=last & (not self.truncated),
            done=last,
            prev_state=tree_map(lambda *xs: np.concatenate(xs), *states),
        )


def windows_of(episodes):
    """As the learner gets them: fields `[U, N, ...]`."""
    rows = tree_map(lambda *xs: np.concatenate(xs), *[ArrayDict(one.fields()) for one in episodes])
    made = get_train_sample(rows, UNROLL, burnin=BURNIN, stride=UNROLL - NSTEP, tail=NSTEP)
    return tree_map(lambda x: torch.as_tensor(np.ascontiguousarray(np.swapaxes(x, 0, 1))), made)


ENDS = [(1, True), (3, False), (9, True), (11, False), (6, True)]


def episodes_of(net):
    return [Episode(net, n, trunc, seed, 100 * seed) for seed, (n, trunc) in enumerate(ENDS)]


@pytest.mark.parametrize("lstm_type", ["pytorch", "gru", "normal"])
def test_values_and_targets_of_windows_are_those_of_whole_episodes_stepped_one_by_one(lstm_type):
    policy = make(lstm_type=lstm_type)
    episodes = episodes_of(policy.get_model())
    data = windows_of(episodes)
    steps = policy._steps(data)
    with torch.no_grad():
        wanted = steps.reward + steps.discount * steps.bootstrap(policy._next_value(steps))
        taken, mu = steps.taken(), steps.logit()["mu"]
        at_mu = steps.q(mu)
    trained = data["obs"][BURNIN : BURNIN + UNROLL - NSTEP]
    seen = {}
    for s, n in torch.nonzero(steps.mask).tolist():
        number, t = divmod(int(trained[s, n, 0]), 100)
        one = episodes[number]
        seen[number, t] = seen.get((number, t), 0) + 1
        torch.testing.assert_close(taken[:, s, n], one.taken[t], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(mu[s, n], one.mu[t][0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(at_mu[:, s, n], one.at_mu[t], rtol=1e-9, atol=1e-9)
        assert wanted[s, n].item() == pytest.approx(one.wanted(t), abs=1e-9)
    assert set(seen) == {(i, t) for i, (n, _) in enumerate(ENDS) for t in range(n)}


def test_no_gradient_reaches_the_burn_in():
    policy = make()
    data = windows_of(episodes_of(policy.get_model()))
    data["obs"].requires_grad_()
    steps = policy._steps(data)
    for value in (steps.taken(), steps.logit()["mu"], steps.q(steps.logit()["mu"])):
        grad = torch.autograd.grad(value.sum(), data["obs"], retain_graph=True)[0]
        assert (grad[:BURNIN] == 0).all() and grad[BURNIN:].abs().sum() > 0


@every
def test_whatever_stands_in_null_slots_changes_nothing(kind):
    results = []
    for fill in (0.0, np.nan, 1e6):
        policy = make(kind, priority=True)
        data = windows_of(episodes_of(make().get_model()))
        if "discrete" in kind:
            data["action"] = (data["action"][..., 0] > 0).long()
        null = data["null"].clone()
        ends = (data["done"] != 0) & (data["terminated"] == 0) & ~null
        null[1:] &= ~ends[:-1]  # the slot that shows a final observation is read
        data["obs"][null] = fill
        data["reward"][data["null"]] = fill
        if "discrete" not in kind:
            data["action"][data["null"]] = fill
        torch.manual_seed(5)
        info = [policy.learn_mode.forward(data) for _ in range(2)][-1]
        results.append([info["total_loss"], info["policy_loss"], *info["priority"], *policy.get_model().parameters()])
    assert data["null"].any() and len(results[0][2:]) > 0
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


class Drifts(Env):
    """Random observations; an episode has seven steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (S,), np.float32)

    def __init__(self, seed, discrete):
        self.action_space = spaces.Discrete(D) if discrete else spaces.Box(-1, 1, (D,), np.float32)
        self.rng, self.t = np.random.default_rng(seed), 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.rng.normal(size=S).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        return self.rng.normal(size=S).astype(np.float32), 1.0, self.t == 7, False, {}


@every
@pytest.mark.parametrize("random", [True, False])
def test_states_stored_while_collecting_are_those_of_the_actions_taken(kind, random):
    policy = make(kind, "gru", double=False, burnin_step=0, learn_unroll_len=4, nstep=1)
    discrete, net = "discrete" in kind, policy.get_model()
    collector = make_collector(policy, Drifts(0, discrete), Drifts(1, discrete), n_sample=12)
    items = collector.collect(random=random)
    checked = 0
    for n in range(len(items["reward"])):
        one = tree_map(torch.as_tensor, items[n])
        if one["null"].any():
            continue
        state, seen = tree_map(lambda x: x.float(), one["prev_state"]), 0
        for m in range(len(items["reward"])):  # the window that goes on where this one's trained steps end
            if np.array_equal(items["obs"][m][0], one["obs"][3].numpy()):
                for t in range(3):
                    step = {"obs": one["obs"][t : t + 1], "action": one["action"][t : t + 1], "prev_state": state}
                    with torch.no_grad():
                        state = net(step, inference=True)["next_state"]
                        state = net({**step, "prev_state": state}, mode="compute_critic", inference=True)["next_state"]
                found = tree_map(torch.as_tensor, items["prev_state"][m])
                for part in ("actor", "critic"):
                    torch.testing.assert_close(found[part]["h"], state[part]["h"], rtol=1e-4, atol=1e-5)
                    assert found[part]["h"].abs().sum() > 0
                seen = 1
        checked += seen
    assert checked >= 2


@every
def test_a_run_of_updates_on_collected_windows(kind):
    policy = make(kind, "gru", double=False, norm_obs=dict(use_norm=True))
    discrete = "discrete" in kind
    items = make_collector(policy, Drifts(0, discrete), Drifts(1, discrete), n_sample=6).collect()
    data = tree_map(lambda x: torchify(x).transpose(0, 1), items)
    before = copy.deepcopy(policy.get_model().state_dict())
    infos = [policy.learn_mode.forward(data) for _ in range(2)]
    assert all(torch.isfinite(info["total_loss"]) for info in infos) and "policy_loss" in infos[1]
    for name, p in policy.get_model().named_parameters():
        assert not torch.equal(p, before[name]), name
