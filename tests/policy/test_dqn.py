"""The DQN loss against a plain-Python float64 sum, and what a gradient step touches."""

import copy

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.data import ArrayDict
from ding_like.model.template.q_learning import DQN
from tests.helpers import Constant, TableQ, fingerprint, make_policy

N, S, A = 12, 5, 3


def batch(seed=0, weight=False):
    rng = np.random.default_rng(seed)
    fields = dict(
        obs=torch.as_tensor(rng.integers(0, S, (N, 1)).astype(np.float32)),
        action=torch.as_tensor(rng.integers(0, A, N)),
        reward=torch.as_tensor(rng.normal(size=N) * 2),
        discount=torch.as_tensor(rng.choice([0.0, 0.9, 0.81], N)),
        next_obs=torch.as_tensor(rng.integers(0, S, (N, 1)).astype(np.float32)),
    )
    if weight:
        fields["weight"] = torch.as_tensor(rng.uniform(0, 2, N))
    return ArrayDict(fields)


def tables(seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(S, A)) * 2, rng.normal(size=(S, A)) * 2


def reference(data, online, target, double, huber):
    """Loss and td errors, item by item."""
    total, tds = 0.0, []
    for i in range(N):
        s, a, s2 = int(data["obs"][i]), int(data["action"][i]), int(data["next_obs"][i])
        best = int(np.argmax(online[s2])) if double else int(np.argmax(target[s2]))
        td = float(data["reward"][i]) + float(data["discount"][i]) * target[s2, best] - online[s, a]
        if not huber:
            loss = td * td
        else:
            loss = 0.5 * td * td if abs(td) <= 1 else abs(td) - 0.5
        tds.append(td)
        total += loss * (float(data["weight"][i]) if "weight" in data else 1.0)
    return total / N, tds


def policy_of(online, target, **over):
    policy = make_policy(model=TableQ(torch.as_tensor(online)), **over)
    policy._target_model.update(TableQ(torch.as_tensor(target)), direct=True)
    return policy


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("weight", [False, True])
def test_loss_equals_brute_force(double, loss, weight):
    online, target = tables()
    policy = policy_of(online, target, double=double, learn={"loss": loss})
    data = batch(weight=weight)
    info = policy.learn_mode.forward(data)
    wanted, tds = reference(data, online, target, double, loss == "huber")
    assert info["total_loss"].item() == pytest.approx(wanted, rel=1e-12)
    assert info["td_error"].tolist() == pytest.approx(tds, rel=1e-12)
    assert max(map(abs, tds)) > 1 > min(map(abs, tds))


@pytest.mark.parametrize("double", [False, True])
def test_priorities_are_the_absolute_td_errors_unweighted(double):
    online, target = tables()
    policy, data = policy_of(online, target, double=double, priority=True), batch(weight=True)
    info = policy.learn_mode.forward(data)
    wanted, tds = reference(data, online, target, double, huber=True)
    assert info["priority"].tolist() == pytest.approx(np.abs(tds).tolist(), rel=1e-12)
    assert info["total_loss"].item() == pytest.approx(wanted, rel=1e-12)
    assert not info["priority"].requires_grad
    assert "priority" not in policy_of(online, target).learn_mode.forward(data)


def test_gradient_equals_finite_differences():
    online, target = tables()
    data, step = batch(weight=True), 1e-6
    policy = policy_of(online, target, learn={"optimizer": "sgd", "learning_rate": 1.0})
    policy.learn_mode.forward(data)
    moved = policy.get_model().table.detach().numpy()
    for s, a in np.ndindex(S, A):
        near = online.copy()
        near[s, a] += step
        # the target's action is chosen by the online net, but no gradient flows through it
        slope = (frozen(data, near, online, target) - frozen(data, online, online, target)) / step
        assert online[s, a] - moved[s, a] == pytest.approx(slope, abs=1e-5)


def frozen(data, estimate, chooser, target):
    """The huber loss with the bootstrap action chosen by `chooser`."""
    total = 0.0
    for i in range(N):
        s, a, s2 = int(data["obs"][i]), int(data["action"][i]), int(data["next_obs"][i])
        bootstrap = target[s2, int(np.argmax(chooser[s2]))]
        td = float(data["reward"][i]) + float(data["discount"][i]) * bootstrap - estimate[s, a]
        total += float(data["weight"][i]) * (0.5 * td * td if abs(td) <= 1 else abs(td) - 0.5)
    return total / N


@pytest.mark.parametrize(("double", "wanted"), [(True, 2.0), (False, 10.0)])
def test_double_dqn_chooses_with_the_online_network_and_values_with_the_target(double, wanted):
    """Case B37: Q_online(s') = [1, 5], Q_target(s') = [10, 2]: double 2, plain 10."""
    online, target = np.array([[0.0, 0.0], [1.0, 5.0]]), np.array([[0.0, 0.0], [10.0, 2.0]])
    policy = policy_of(online, target, double=double)
    data = ArrayDict(
        obs=torch.zeros(1, 1),
        action=torch.zeros(1, dtype=torch.int64),
        reward=torch.zeros(1, dtype=torch.float64),
        discount=torch.ones(1, dtype=torch.float64),
        next_obs=torch.ones(1, 1),
    )
    assert policy.learn_mode.forward(data)["td_error"].item() == wanted


def float_batch(seed=0, obs=4, n=32):
    rng = np.random.default_rng(seed)
    return ArrayDict(
        obs=torch.as_tensor(rng.normal(size=(n, obs)).astype(np.float32)),
        action=torch.as_tensor(rng.integers(0, 2, n)),
        reward=torch.as_tensor(rng.normal(size=n).astype(np.float32)),
        discount=torch.full((n,), 0.9),
        next_obs=torch.as_tensor(rng.normal(size=(n, obs)).astype(np.float32)),
    )


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "sgd"])
def test_a_step_moves_every_parameter_and_no_target_parameter(dueling, optimizer):
    policy = make_policy(obs_shape=4, model=DQN(4, 2, [16], dueling=dueling), learn={"optimizer": optimizer})
    before = copy.deepcopy(policy.get_model().state_dict())
    info = policy.learn_mode.forward(float_batch())
    target = policy._target_model.state_dict()["model"]
    for name, p in policy.get_model().state_dict().items():
        assert not torch.equal(p, before[name]), name
        assert torch.equal(target[name], before[name]), name
    assert info["grad_norm"] > 0 and info["cur_lr"] == policy._cfg.learn.learning_rate
    assert info["q_value"].shape == (32,)


def test_target_follows_by_copy_at_every_freq_th_step_or_softly():
    hard = make_policy(obs_shape=4, learn={"target_update_freq": 3})
    for step in range(1, 7):
        hard.learn_mode.forward(float_batch(step))
        same = fingerprint(hard._target_model.state_dict()["model"]) == fingerprint(dict(hard.get_model().state_dict()))
        assert same == (step % 3 == 0)
    soft = make_policy(obs_shape=4, learn={"target_theta": 0.25})
    old = soft._target_model.state_dict()["model"]
    soft.learn_mode.forward(float_batch())
    new, online = soft._target_model.state_dict()["model"], soft.get_model().state_dict()
    for name in online:
        torch.testing.assert_close(new[name], 0.75 * old[name] + 0.25 * online[name])


def test_gradient_is_clipped_to_the_given_norm():
    free = make_policy(obs_shape=4, learn={"optimizer": "sgd", "learning_rate": 1.0})
    cut = make_policy(obs_shape=4, learn={"optimizer": "sgd", "learning_rate": 1.0, "grad_clip_norm": 1e-3})
    cut.get_model().load_state_dict(free.get_model().state_dict())
    cut._target_model.update(free.get_model(), direct=True)
    start = copy.deepcopy(cut.get_model().state_dict())
    norm = free.learn_mode.forward(float_batch())["grad_norm"]
    assert cut.learn_mode.forward(float_batch())["grad_norm"] == pytest.approx(norm.item())
    moved = sum((p - start[k]).square().sum().item() for k, p in cut.get_model().state_dict().items()) ** 0.5
    assert moved == pytest.approx(1e-3, rel=1e-2) and norm > 1e-2


def test_a_state_dict_does_not_change_later():
    policy = make_policy(obs_shape=4)
    state = policy.learn_mode.state_dict()
    before = fingerprint(state)
    for step in range(3):
        policy.learn_mode.forward(float_batch(step))
    assert fingerprint(state) == before


def test_collect_and_eval_share_the_learning_network():
    policy = make_policy(model=Constant(0.0, 1.0))
    obs = np.zeros((4, 1), np.float32)
    assert policy.eval_mode.forward(obs)["action"].tolist() == [1] * 4
    policy.get_model().q.data = torch.tensor([2.0, 1.0])
    assert policy.eval_mode.forward(obs)["action"].tolist() == [0] * 4
    assert policy.collect_mode.forward(obs, eps=0.0)["action"].tolist() == [0] * 4


def test_unknown_loss_is_named():
    with pytest.raises(ConfigError, match=r"policy.learn.loss is 'l1'; wanted 'huber' or 'mse'"):
        make_policy(learn={"loss": "l1"})
