"""Rollouts of actor-critic policies: targets at every kind of episode end, stored actions, evaluation, permutation."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding_like.config import ConfigError
from ding_like.data import ArrayDict, Block, RowLink, torchify
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy
from ding_like.rl_utils.action_scale import ActionScale
from tests.envs.toys import Count
from tests.helpers import fingerprint, make_collector, make_policy

POLICIES = [A2CPolicy, PPOPolicy]


class LinearV(nn.Module):
    """V(s) = scale * s[0] + shift, uniform logits: a wrong bootstrap observation becomes a wrong number."""

    def __init__(self, scale=1.0, shift=0.0, actions=2):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([float(scale), float(shift)]))
        self.actions = actions

    def forward(self, x):
        value = self.w[0] * x[..., 0] + self.w[1]
        return {"logit": (0 * value)[..., None].expand(*value.shape, self.actions), "value": value}


def rollout(cls, *envs, model=None, n_sample=8, **over):
    over.setdefault("discount_factor", 0.9)
    policy = make_policy(cls, model=model or LinearV(), **over)
    collector = make_collector(policy, *envs, n_sample=n_sample)
    blocks = []
    collector.collect(lambda items: blocks.append({k: np.copy(v) for k, v in items.items()}) or n_sample)
    return blocks[0]


# ---------------------------------------------------------------- targets
@pytest.mark.parametrize("cls", POLICIES)
@pytest.mark.parametrize(("trunc", "wanted"), [(True, 3.7), (False, 1.0)])
def test_a_time_out_bootstraps_and_a_death_does_not(cls, trunc, wanted):
    """Case B06."""
    items = rollout(cls, Count(5, trunc=trunc), model=LinearV(0, 3), n_sample=5)
    assert items["return_"][4, 0] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("cls", POLICIES)
def test_the_bootstrap_of_a_time_out_is_the_value_of_the_final_observation(cls):
    """Case B11."""
    items = rollout(cls, Count(4, trunc=True), n_sample=4, discount_factor=0.5)
    assert items["return_"][3, 0] == pytest.approx(3.0)


@pytest.mark.parametrize("cls", POLICIES)
@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_one_columns_time_out_is_not_anothers(cls, lambda_):
    """Case B08."""
    items = rollout(
        cls, Count(2, trunc=True), Count(9), model=LinearV(0, 10), n_sample=4, collect=dict(gae_lambda=lambda_)
    )
    np.testing.assert_allclose(items["return_"][1], [10, 10], rtol=1e-6)
    np.testing.assert_allclose(items["adv"][1], [0, 0], atol=1e-5)


class Both(Count):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        end = terminated or truncated
        return obs, reward, end, end, info


@pytest.mark.parametrize("cls", POLICIES)
def test_a_step_that_ends_by_both_flags_is_terminal(cls):
    """Case B09."""
    items = rollout(cls, Both(3), model=LinearV(0, 10), n_sample=3)
    assert items["return_"][2, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("cls", POLICIES)
def test_the_last_row_of_a_block_bootstraps_from_the_observation_after_it(cls):
    items = rollout(cls, Count(100), n_sample=3, collect=dict(gae_lambda=0.0))
    np.testing.assert_allclose(items["return_"][:, 0], [1 + 0.9 * 1, 1 + 0.9 * 2, 1 + 0.9 * 3], rtol=1e-6)


def block(seed=0, rows=6, linked=True):
    """Random rows of two columns with ends of every kind, and what GAE says of them, summed in float64."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows + 1, 2, 1)).astype(np.float32)
    terminated, truncated = rng.random((rows, 2)) < 0.25, rng.random((rows, 2)) < 0.3
    done = terminated | truncated
    ends = np.flatnonzero(done)
    finals = rng.normal(size=(len(ends), 1)).astype(np.float32)
    fields = dict(
        obs=obs[:rows], action=rng.integers(0, 2, (rows, 2)), logit=np.zeros((rows, 2, 2), np.float32),
        value=obs[:rows, :, 0].copy(), reward=rng.normal(size=(rows, 2)).astype(np.float32),
        terminated=terminated, truncated=truncated, done=done,
    )  # fmt: skip
    after = obs[1:, :, 0].astype(np.float64).copy()
    after.reshape(-1)[ends] = finals[:, 0]
    link = RowLink(obs, ends, finals, 2)
    if not linked:
        fields["next_obs"] = link.materialise(rows)
    return Block(fields, rows, link if linked else None), after


def reference(data, after, gamma, lambda_):
    """A_t as the direct sum of (gamma lambda)^k delta_{t+k} up to the episode's end."""
    rows, columns = data["reward"].shape
    adv = np.zeros((rows, columns))
    for b in range(columns):
        for t in range(rows):
            weight = 1.0
            for k in range(t, rows):
                keep = 0.0 if data["terminated"][k, b] else gamma
                adv[t, b] += weight * (data["reward"][k, b] + keep * after[k, b] - float(data["value"][k, b]))
                if data["done"][k, b]:
                    break
                weight *= gamma * lambda_
    return adv


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("cls", POLICIES)
def test_advantages_equal_the_direct_sum_with_ends_of_every_kind(cls, linked, seed):
    policy = make_policy(cls, model=LinearV(), discount_factor=0.9, collect=dict(gae_lambda=0.7))
    data, after = block(seed, linked=linked)
    items = policy.collect_mode.get_train_sample(data)
    wanted = reference(data, after, 0.9, 0.7)
    np.testing.assert_allclose(items["adv"], wanted, atol=1e-5)
    np.testing.assert_allclose(items["return_"], wanted + data["value"], atol=1e-5)


@pytest.mark.parametrize("cls", POLICIES)
def test_columns_in_another_order_give_the_same_numbers_in_that_order(cls):
    policy = make_policy(cls, model=LinearV(), discount_factor=0.9)
    data, _ = block(3)
    swapped = Block({k: v[:, ::-1].copy() for k, v in dict.items(data)}, data.starts)
    swapped["next_obs"] = data["next_obs"][:, ::-1]
    plain, other = policy.collect_mode.get_train_sample(data), policy.collect_mode.get_train_sample(swapped)
    for name in plain:
        np.testing.assert_allclose(other[name], plain[name][:, ::-1], atol=1e-6)


# ---------------------------------------------------------------- acting
class Box(gymnasium.Env):
    """A two-dimensional Box; keeps the actions it got."""

    def __init__(self, low=(-2.0, 0.0), high=(2.0, 1.0)):
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = spaces.Box(np.float32(low), np.float32(high))
        self.got = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        self.got.append(np.array(action))
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), 1.0, False, False, {}


def shapes_of(env):
    box = env.action_space
    return dict(action_space="continuous", action_scale=ActionScale(box.low, box.high, box.dtype))


@pytest.mark.parametrize("cls", POLICIES)
def test_the_env_gets_the_clipped_action_and_the_raw_sample_is_stored(cls):
    """Case B39."""
    env = Box()
    policy = make_policy(cls, obs_shape=3, shapes=shapes_of(env))
    collector = make_collector(policy, env, n_sample=400)
    blocks = []
    collector.collect(lambda items: blocks.append({k: np.copy(v) for k, v in items.items()}) or 400)
    raw, got = blocks[0]["action"][:, 0], np.array(env.got)
    assert 0.2 < np.mean(np.abs(raw) > 1) < 0.45  # of a unit normal: 0.317
    np.testing.assert_allclose(got, np.clip(raw, -1, 1) * [2, 0.5] + [0, 0.5], atol=1e-6)
    assert env.action_space.contains(got[0])


def test_the_stored_log_prob_is_that_of_the_raw_sample():
    env = Box()
    policy = make_policy(PPOPolicy, obs_shape=3, shapes=shapes_of(env))
    blocks = []
    make_collector(policy, env, n_sample=50).collect(
        lambda items: blocks.append({k: np.copy(v) for k, v in items.items()}) or 50
    )
    (data,) = blocks
    with torch.no_grad():
        logit = policy.get_model()(torch.as_tensor(data["obs"]))["logit"]
    wanted = torch.distributions.Normal(logit["mu"], logit["sigma"]).log_prob(torch.as_tensor(data["action"])).sum(-1)
    np.testing.assert_allclose(data["log_prob"], wanted.numpy(), atol=1e-6)


@pytest.mark.parametrize("cls", POLICIES)
def test_evaluation_acts_by_the_mode_and_changes_nothing(cls):
    policy = make_policy(cls, obs_shape=3, action_shape=4, norm_obs=dict(use_norm=True))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    policy.collect_mode.observe(obs)
    policy.collect_mode.forward(obs)
    before = fingerprint(policy.learn_mode.state_dict()), policy._noises["collect"].state_dict()
    first = policy.eval_mode.forward(obs)["action"]
    np.testing.assert_array_equal(policy.eval_mode.forward(obs)["action"], first)
    with torch.no_grad():
        logit = policy.get_model()(torch.as_tensor(obs))["logit"]
    np.testing.assert_array_equal(first, logit.argmax(-1))
    assert (fingerprint(policy.learn_mode.state_dict()), policy._noises["collect"].state_dict()) == before


# ---------------------------------------------------------------- value scale
def size(policy):
    statistics = policy._value_norm
    return float(statistics.var + statistics.mean**2) ** 0.5


def scaled(**over):
    return make_policy(PPOPolicy, model=LinearV(0, 1), discount_factor=0.9, learn=dict(value_norm=True), **over)


def test_with_value_norm_the_network_learns_returns_over_their_size():
    policy = scaled()
    data, _ = block(1, rows=50)
    data["reward"] = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32) * 100
    items = policy.collect_mode.get_train_sample(data)
    first = size(policy)
    assert first > 50
    np.testing.assert_allclose(items["return_"] * first, items["adv"] + data["value"], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(items["value"], data["value"])  # what the network said, for clipping
    again = policy.collect_mode.get_train_sample(data)  # its values now count in that unit
    np.testing.assert_allclose(
        again["return_"] * size(policy), again["adv"] + data["value"] * first, rtol=1e-4, atol=1e-2
    )


def test_returns_that_are_all_alike_are_learned_as_one():
    policy = scaled()
    data, _ = block(1, rows=50)
    data["reward"][:], data["done"][:], data["terminated"][:] = 1.0, True, True
    items = policy.collect_mode.get_train_sample(data)
    np.testing.assert_allclose(items["return_"], 1.0, rtol=1e-5)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_values_count_in_the_unit_that_their_network_had_when_the_block_was_begun(ahead, resumed):
    """A block that is begun ahead is of the network before the training that moves it into another unit."""
    policy = scaled()
    data, _ = block(1, rows=50)
    data["reward"] = data["reward"] * 100
    data["done"][:-1], data["terminated"][:-1] = True, True  # their advantage is reward less value
    data["done"][-1], data["terminated"][-1] = False, False
    data.link.finals, data.link.ends = data.link.finals[data.link.ends < 98], data.link.ends[data.link.ends < 98]
    policy.collect_mode.get_setting(0)
    items = policy.collect_mode.get_train_sample(data)
    first = size(policy)
    assert first > 50
    if ahead:
        policy.collect_mode.get_setting(50)
    policy.learn_mode.forward(ArrayDict({k: torchify(v) for k, v in items.flat().items()}))
    if not ahead:
        policy.collect_mode.get_setting(50)
    if resumed:
        state, acting, policy = policy.learn_mode.state_dict(), policy.run_state_dict(), scaled()
        policy.learn_mode.load_state_dict(state)
        policy.load_run_state_dict(acting)
    again = policy.collect_mode.get_train_sample(data)
    unit = 1 if ahead else first
    wanted = data["reward"] - data["value"] * unit
    with torch.no_grad():  # the value after the last row is made now
        wanted[-1] += 0.9 * policy.get_model()(torch.as_tensor(data.link.rows[-1]))["value"].numpy() * first
    np.testing.assert_allclose(again["adv"], wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(again["value"], data["value"] * unit / first, rtol=1e-5)


def test_the_scale_of_values_is_in_every_state_dict():
    policy, other, learner = scaled(), scaled(), scaled(fields=["learn"])
    policy.collect_mode.get_train_sample(block(1)[0])
    for mode in ("learn_mode", "collect_mode"):
        assert "value_norm" in getattr(policy, mode).state_dict()
    other.collect_mode.load_state_dict(policy.collect_mode.state_dict())
    learner.learn_mode.load_state_dict(policy.learn_mode.state_dict())
    assert other._value_scale() == policy._value_scale() == learner._value_scale() != scaled()._value_scale()


# ---------------------------------------------------------------- networks that do not fit
class Says(nn.Module):
    def __init__(self, **output):
        super().__init__()
        self.w, self.output = nn.Parameter(torch.zeros(1)), output

    def forward(self, x):
        return {k: v(len(x)) for k, v in self.output.items()}


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (dict(logit=lambda n: torch.zeros(n, 2)), r"\(Says\) gives no `value`.*beside `logit`"),
        (
            dict(logit=lambda n: torch.zeros(n, 2), value=lambda n: torch.zeros(n, 1)),
            r"a `value` of shape \(3, 1\); .*squeeze",
        ),
        (dict(value=torch.zeros), r"the network gives \['value'\]; wanted 'logit'"),
    ],
)
@pytest.mark.parametrize("cls", POLICIES)
def test_a_network_that_does_not_fit_is_named(cls, output, says):
    policy = make_policy(cls, model=Says(**output))
    with pytest.raises((ConfigError, KeyError), match=says):
        policy.collect_mode.forward(np.zeros((3, 1), np.float32))


@pytest.mark.parametrize("cls", POLICIES)
def test_a_logit_for_another_kind_of_actions_is_named(cls):
    model = Says(logit=lambda n: [torch.zeros(n, 2)] * 2, value=torch.zeros)
    policy = make_policy(cls, model=model, shapes=dict(action_space="discrete"))
    with pytest.raises(ConfigError, match=r"multi_discrete actions of size \[2, 2\], the env's are discrete of size 2"):
        policy.eval_mode.forward(np.zeros((3, 1), np.float32))


@pytest.mark.parametrize("cls", POLICIES)
def test_a_logit_of_another_width_is_named(cls):
    policy = make_policy(cls, model=LinearV(actions=4), shapes=dict(action_space="discrete"))
    with pytest.raises(ConfigError, match=r"\(LinearV\) gives a logit for discrete actions of size 4, .* of size 2"):
        policy.collect_mode.forward(np.zeros((3, 1), np.float32))


def test_a_checkpoint_whose_values_are_in_another_unit_is_refused():
    plain = make_policy(PPOPolicy, model=LinearV(0, 1))
    with pytest.raises(ValueError, match=r"written with learn\.value_norm=False and this config has True"):
        scaled().learn_mode.load_state_dict(plain.learn_mode.state_dict())
    with pytest.raises(ValueError, match=r"set policy\.learn\.value_norm=True"):
        plain.learn_mode.load_state_dict(scaled().learn_mode.state_dict())


def test_a_list_of_logits_serves_as_several_actions():
    model = Says(logit=lambda n: [torch.zeros(n, 2), torch.zeros(n, 3)], value=torch.zeros)
    policy = make_policy(PPOPolicy, action_shape=[2, 3], model=model, shapes=dict(action_space="multi_discrete"))
    assert policy.collect_mode.forward(np.zeros((5, 1), np.float32))["action"].shape == (5, 2)
    assert policy.eval_mode.forward(np.zeros((5, 1), np.float32))["action"].shape == (5, 2)


class Dropping(LinearV):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        out = super().forward(x)
        return {**out, "logit": self.drop(out["logit"] + x)}


@pytest.mark.parametrize(("model", "says"), [("vac", "model is 'vac'"), (LinearV, "wanted a torch module")])
def test_a_model_that_is_no_object_is_named(model, says):
    with pytest.raises(TypeError, match=says):
        make_policy(PPOPolicy, model=model)


def test_a_network_that_returns_no_dict_is_named():
    policy = make_policy(PPOPolicy, model=nn.Linear(1, 2))
    with pytest.raises(TypeError, match=r"the network \(Linear\) returned a Tensor; wanted a dict"):
        policy.collect_mode.forward(np.zeros((3, 1), np.float32))


def test_dropout_does_not_move_the_ratio_before_an_update():
    policy = make_policy(PPOPolicy, model=Dropping())
    blocks = []
    make_collector(policy, Count(9), n_sample=20).collect(lambda items: blocks.append(items.flat()) or 20)
    info = policy.learn_mode.forward(ArrayDict({k: torch.as_tensor(v) for k, v in blocks[0].items()}))
    assert float(info["approx_kl"]) == pytest.approx(0.0, abs=1e-6)


def test_an_action_that_is_not_finite_is_named_as_the_networks():
    env = Box()
    policy = make_policy(PPOPolicy, obs_shape=3, shapes=shapes_of(env))
    with torch.no_grad():
        policy.get_model().actor_head.mu[-1].bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match=r"action of env column\(s\) \[0, 1\] is not finite: its network"):
        policy.eval_mode.forward(np.zeros((2, 3), np.float32))
