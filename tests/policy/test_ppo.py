"""PPO's and A2C's losses against plain sums, ratios before an update, and what ends the updates of a rollout."""

import math

import numpy as np
import pytest
import torch

from ding_like.data import ArrayDict, torchify
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy, with_log_prob
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.worker import Rollout
from tests.helpers import make_collector, make_policy, metrics, result
from tests.policy.test_actor_critic import Box, shapes_of
from tests.worker.test_sample_collector import Diary

N = 10


def minibatch(seed=0, weight=False):
    rng = np.random.default_rng(seed)
    data = ArrayDict(
        obs=torch.as_tensor(rng.normal(size=(N, 3)).astype(np.float32)),
        action=torch.as_tensor(rng.integers(0, 4, N)),
        log_prob=torch.as_tensor(rng.uniform(-2, -0.5, N).astype(np.float32)),
        adv=torch.as_tensor(rng.normal(size=N).astype(np.float32)),
        return_=torch.as_tensor(rng.normal(size=N).astype(np.float32)),
        value=torch.as_tensor(rng.normal(size=N).astype(np.float32)),
    )
    if weight:
        data["weight"] = torch.as_tensor(rng.uniform(0, 2, N).astype(np.float32))
    return data


def reference(policy, data, clip=0.2, value_clip=None, entropy_weight=0.01, surrogate=True):
    with torch.no_grad():
        out = policy.get_model()(data["obs"])
    logit, value = out["logit"].double().numpy(), out["value"].double().numpy()
    adv = data["adv"].double().numpy()
    adv = (adv - adv.mean()) / adv.std(ddof=1)
    total = 0.0
    for i in range(N):
        p = np.exp(logit[i] - logit[i].max())
        p /= p.sum()
        log_prob = math.log(p[data["action"][i]])
        if surrogate:
            ratio = math.exp(log_prob - float(data["log_prob"][i]))
            actor = -min(ratio * adv[i], min(max(ratio, 1 - clip), 1 + clip) * adv[i])
        else:
            actor = -log_prob * adv[i]
        target, old = float(data["return_"][i]), float(data["value"][i])
        error = 0.5 * (value[i] - target) ** 2
        if value_clip is not None:
            moved = old + min(max(value[i] - old, -value_clip), value_clip)
            error = max(error, 0.5 * (moved - target) ** 2)
        entropy = -(p * np.log(p)).sum()
        total += (float(data["weight"][i]) if "weight" in data else 1.0) * (
            actor + 0.5 * error - entropy_weight * entropy
        )
    return total / N


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("value_clip", [None, 0.1])
def test_the_loss_equals_brute_force(value_clip, weight):
    policy = make_policy(PPOPolicy, obs_shape=3, action_shape=4, learn=dict(value_clip=value_clip))
    data = minibatch(weight=weight)
    wanted = reference(policy, data, value_clip=value_clip)
    assert float(policy.learn_mode.forward(data)["total_loss"]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("weight", [False, True])
def test_the_loss_of_a2c_equals_brute_force(weight):
    policy = make_policy(A2CPolicy, obs_shape=3, action_shape=4)
    data = minibatch(weight=weight)
    wanted = reference(policy, data, surrogate=False)
    assert float(policy.learn_mode.forward(data)["total_loss"]) == pytest.approx(wanted, abs=1e-5)


def policies():
    torch.manual_seed(0)  # how far float32 rounds depends on the weights
    box = Box()
    yield "discrete", make_policy(PPOPolicy, obs_shape=3, action_shape=3), [Diary(0, [3, 5]), Diary(1, [40])]
    yield "box", make_policy(PPOPolicy, obs_shape=3, shapes=shapes_of(box)), [box, Box()]
    norm = make_policy(
        PPOPolicy, obs_shape=3, action_shape=3, norm_obs=dict(use_norm=True), learn=dict(value_norm=True)
    )
    yield "normalised", norm, [Diary(0, [3, 5]), Diary(1, [40])]


@pytest.mark.parametrize(("policy", "envs"), [case[1:] for case in policies()], ids=[case[0] for case in policies()])
def test_the_ratio_before_the_first_update_of_a_rollout_is_one(policy, envs):
    collector, store = make_collector(policy, *envs, n_sample=64), Rollout()
    for _ in range(4):
        collector.collect(store.push)
        batches = list(store.batches(2, 16))
        for batch in batches:
            data = ArrayDict({k: torchify(v) for k, v in batch.items()})
            with torch.no_grad():
                out = policy._learn_model.forward(data["obs"])["logit"]
                if isinstance(out, dict):
                    chosen = torch.distributions.Normal(out["mu"], out["sigma"]).log_prob(data["action"]).sum(-1)
                else:
                    chosen = torch.log_softmax(out, -1).gather(-1, data["action"][:, None])[:, 0]
            ratio = (chosen - data["log_prob"]).exp()
            np.testing.assert_allclose(ratio.numpy(), 1.0, atol=1e-6)
        for batch in batches:
            policy.learn_mode.forward(ArrayDict({k: torchify(v) for k, v in batch.items()}))


class Beside(torch.nn.Module):
    """A Gaussian with the mean 0.9 and the deviation 1 wherever it is."""

    def __init__(self):
        super().__init__()
        self.mu = torch.nn.Parameter(torch.tensor([0.9]))

    def forward(self, x):
        mu = self.mu.expand(len(x), 1)
        return {"logit": {"mu": mu, "sigma": torch.ones_like(mu)}, "value": x[:, 0]}


def test_what_is_cut_for_the_env_is_stored_as_it_was_drawn():
    """Case B39."""
    scale = ActionScale(np.float32([-1]), np.float32([1]))
    shapes = dict(action_shape=1, action_space="continuous", action_scale=scale)
    policy = make_policy(PPOPolicy, model=Beside(), shapes=shapes)
    output = policy.collect_mode.forward(np.zeros((10_000, 1), np.float32))
    raw = output["raw_action"]
    assert np.mean(np.abs(raw) > 1) == pytest.approx(0.489, abs=0.02)
    np.testing.assert_array_equal(output["action"], raw.clip(-1, 1))
    stored = with_log_prob(ArrayDict(action=raw, logit=output["logit"]), "continuous")
    wanted = -0.5 * (raw.astype(np.float64) - np.float32(0.9)) ** 2 - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(stored["log_prob"], wanted[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("cls", [A2CPolicy, PPOPolicy])
def test_a_minibatch_of_one_trains_without_nan(cls):
    policy = make_policy(cls, obs_shape=3, action_shape=4)
    info = policy.learn_mode.forward(minibatch()[:1])
    assert all(torch.isfinite(v).all() for v in info.values() if torch.is_tensor(v))
    assert all(torch.isfinite(p).all() for p in policy.get_model().parameters())


def test_the_advantages_of_a_minibatch_are_left_alone_where_the_config_says_so():
    policy = make_policy(PPOPolicy, obs_shape=3, action_shape=4, learn=dict(adv_norm=False))
    data = minibatch()
    assert policy._advantage(data) is data["adv"]


# ---------------------------------------------------------------- runs
def config(exp_name, kind="ppo", **learn):
    main = dict(
        exp_name=str(exp_name),
        env=dict(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            model=dict(encoder_hidden_size_list=[16]),
            learn=dict(batch_size=16, learner=dict(hook=dict(log_show_after_iter=1)), **learn),
            collect=dict(n_sample=32),
            eval=dict(evaluator=dict(eval_freq=1000)),
        ),
    )
    return main, dict(env=dict(type="CartPole-v1"), env_manager=dict(type="base"), policy=dict(type=kind))


def test_an_epoch_count_and_minibatches_make_the_gradient_steps(in_tmp):
    serial_pipeline(config("run", epoch_per_collect=3), max_env_step=64)
    assert (result("run")["env_step"], result("run")["train_iter"]) == (64, 2 * 3 * 2)


def test_a_step_whose_kl_is_too_large_is_the_last_of_its_rollout(in_tmp):
    serial_pipeline(config("run", epoch_per_collect=10, target_kl=1e-12, learning_rate=0.1), max_env_step=64)
    assert result("run")["train_iter"] < 2 * 10 * 2
    stops = [line["stop_updates"] for line in metrics("run") if line["section"] == "learner"]
    assert stops.count(1.0) == 2


def test_the_learning_rate_follows_its_schedule_over_env_steps(in_tmp):
    schedule = dict(type="linear", end=0.0, decay=64)
    serial_pipeline_onpolicy(config("run", learning_rate=1e-2, lr_schedule=schedule), max_env_step=96)
    rates = {line["envstep"]: line["cur_lr"] for line in metrics("run") if line["section"] == "learner"}
    assert rates == {32: pytest.approx(5e-3), 64: 0.0, 96: 0.0}


@pytest.mark.parametrize("kind", ["a2c", "ppo"])
def test_the_same_seed_gives_the_same_run(in_tmp, kind):
    for name in ("a", "b"):
        serial_pipeline(config(name, kind), max_env_step=128, seed=5)
    assert metrics("a") == metrics("b")


def test_scalars_are_logged_over_env_steps_which_grow_and_end_at_the_last(in_tmp):
    """Case B57."""
    cfg = config("run", epoch_per_collect=4)
    cfg[0]["policy"]["collect"]["n_sample"] = 100
    serial_pipeline(cfg, max_env_step=1000)
    steps = [line["envstep"] for line in metrics("run") if line["section"] == "collect"]
    assert steps == sorted(set(steps)) and steps[-1] == 1000
    assert result("run")["env_step"] == 1000
