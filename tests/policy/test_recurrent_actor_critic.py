"""PPO and A2C over a recurrent network: segments, stored states, values of what follows, the ratio."""

import logging
import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import CfgDict, ConfigError, deep_merge_defaults
from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.entry.checks import check_spaces
from ding_like.envs.env_manager.vector_env_manager import VectorEnvManager
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.interface import Interface
from ding_like.policy.ppo import PPOPolicy
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.gae import gae_advantage
from ding_like.worker import Rollout, SampleCollector
from tests.helpers import make_collector, make_manager, make_policy, policy_config
from tests.worker.test_sample_collector import Diary


def policy(cls=PPOPolicy, unroll=4, lstm="pytorch", share=True, obs_shape=3, actions=3, seed=0, **over):
    torch.manual_seed(seed)
    model = dict(encoder_hidden_size_list=[8], lstm_type=lstm, share_encoder=share)
    cfg = policy_config(cls, model=model, learn_unroll_len=unroll, **over)
    return cls(cfg, seed=seed, shapes=dict(obs_shape=obs_shape, action_shape=actions))


def minibatch(batch):
    """As the learner hands it over: time first."""
    data = ArrayDict({k: tree_map(torchify, v) for k, v in batch.items()})
    return ArrayDict({k: v if k == "index" else tree_map(lambda x: x.transpose(0, 1), v) for k, v in data.items()})


def envs():
    return Diary(0, [3, 5, 9]), Diary(1, [40])


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("lstm", ["pytorch", "gru", "normal"])
def test_the_ratio_is_one_in_every_minibatch_before_the_first_update_of_a_rollout(lstm, share):
    pi = policy(lstm=lstm, share=share, norm_obs=dict(use_norm=True), learn=dict(value_norm=True))
    collector, store = make_collector(pi, *envs(), n_sample=16), Rollout()
    for _ in range(3):
        collector.collect(store.push)
        batches = [minibatch(b) for b in store.batches(2, 4)]
        for data in batches:
            with torch.no_grad():
                output, flat = pi._evaluated(data)
            log_prob = torch.log_softmax(output["logit"], -1).gather(-1, flat["action"][:, None])[:, 0]
            assert len(log_prob) == 4 * data["reward" if "reward" in data else "adv"].shape[1]
            np.testing.assert_allclose((log_prob - flat["log_prob"]).exp().numpy(), 1.0, atol=2e-6)
        for data in batches:
            pi.learn_mode.forward(data)


class Wanders(gymnasium.Env):
    """Random observations of any space; episodes of these lengths in turn, every second one truncated."""

    def __init__(self, obs, action, lengths, seed):
        self.observation_space, self.action_space = obs, action
        self.observation_space.seed(seed)
        self.lengths, self.episode = lengths, -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        end = self.t == self.lengths[self.episode % len(self.lengths)]
        late = bool(self.episode % 2)
        return self.observation_space.sample(), 1.0, end and not late, end and late, {}


VECTOR = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS = {
    "vector": VECTOR,
    "dict": spaces.Dict({"x": VECTOR, "kind": spaces.Discrete(4), "cam": spaces.Box(0, 255, (8, 8, 1), np.uint8)}),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "continuous": spaces.Box(-2, 2, (2,), np.float32),
}


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_ratio_is_one_for_every_kind_of_action_and_observation(action, obs, share):
    torch.manual_seed(0)
    both = [Wanders(OBSERVATIONS[obs], ACTIONS[action], lengths, b) for b, lengths in enumerate([[3, 14, 2], [40]])]
    net = dict(encoder_hidden_size_list=[8, 8], lstm_type="hpc", share_encoder=share, num_layers=2)
    section = policy_config(PPOPolicy, type="ppo", model=net, learn_unroll_len=13, learn=dict(learning_rate=0.05))
    cfg = CfgDict(policy=section, env=dict(type="wanders"))
    manager = make_manager(*both)
    pi = PPOPolicy(cfg.policy, shapes=check_spaces(cfg, PPOPolicy, manager))
    collect_cfg = deep_merge_defaults(pi._cfg.collect, {"n_sample": 4})
    collector, store, kl = SampleCollector(collect_cfg, manager, pi.collect_mode), Rollout(), 0.0
    for _ in range(3):
        collector.collect(store.push)
        batches = [minibatch(batch) for batch in store.batches(2, 2)]
        for data in batches:
            with torch.no_grad():
                output, flat = pi._evaluated(data)
            log_prob = make_distribution(output["logit"], action).log_prob(flat["action"])
            np.testing.assert_allclose((log_prob - flat["log_prob"]).exp().numpy(), 1.0, atol=2e-5)
            np.testing.assert_allclose(output["value"].numpy(), flat["value"].numpy(), atol=2e-5)
        for data in batches:
            kl = float(pi.learn_mode.forward(data)["approx_kl"])
    assert kl > 1e-4  # the weights did move


@pytest.mark.parametrize(
    ("over", "told"),
    [
        (
            {},
            "n_sample is 1024, its default, .*is 4096 env steps, a minibatch of policy.learn.batch_size=64 is 256",
        ),
        (dict(collect=dict(n_sample=16)), None),
        (dict(collect=dict(n_step=512)), None),
    ],
)
def test_a_rollout_of_the_size_meant_for_steps_is_told(over, told, caplog):
    with caplog.at_level(logging.WARNING, logger="ding_like"):
        policy(**over)
        policy(**over)
    found = [record.getMessage() for record in caplog.records if "segments" in record.getMessage()]
    assert len(found) == bool(told)
    if told:
        assert re.search(told, found[0])


def test_a_feed_forward_network_is_told_nothing_of_segments(caplog):
    make_policy(PPOPolicy, obs_shape=3, action_shape=3)
    assert not caplog.records


def recomputed(pi, block, first_state):
    """Values of every row and of what follows it, by stepping from the first state of each column; float32."""
    model, rows = pi._model, len(block["reward"])
    state, value, ahead = first_state, [], []
    for t in range(rows):
        obs = torchify(np.asarray(block["obs"])[t].copy())
        out = model({"obs": obs, "prev_state": state}, mode="compute_actor_critic", inference=True)
        value.append(out["value"])
        following = torchify(np.asarray(block["next_obs"])[t].copy())
        after = model({"obs": following, "prev_state": out["next_state"]}, mode="compute_critic", inference=True)
        ahead.append(after["value"])
        keep = torchify(1 - np.asarray(block["done"])[t].astype(np.float32))[:, None, None]
        state = tree_map(lambda x: x * keep, out["next_state"])  # noqa: B023
    return torch.stack(value).detach().numpy(), torch.stack(ahead).detach().numpy()


@pytest.mark.parametrize("share", [True, False])
def test_values_and_advantages_are_those_of_stepping_through_the_rows(share):
    """Truncated rows see the value of their final observation in the state that led to it (B04, B05)."""
    pi = policy(share=share, unroll=12)
    seen = []
    real = pi._train_fields
    pi._train_fields = lambda block: seen.append((block, real(block))) or seen[-1][1]
    collector = make_collector(pi, Diary(0, [2, 3, 1, 40]), Diary(1, [4, 40]), n_sample=2)
    collector.collect()
    block, items = seen[0]
    first = tree_map(lambda x: torchify(np.asarray(x)[0].copy()), block["prev_state"])
    value, ahead = recomputed(pi, block, first)
    np.testing.assert_allclose(np.asarray(block["value"]), value, atol=1e-5)
    discount = pi._gamma * (1 - np.asarray(block["terminated"], np.float32))
    cut = 1 - np.asarray(block["done"], np.float32)
    adv = gae_advantage(np.asarray(block["reward"]), discount, cut, value, ahead, pi._lambda)
    np.testing.assert_allclose(items["adv"], adv, atol=1e-4)


def test_segments_hold_every_row_once_with_the_state_before_them():
    pi = policy(unroll=4)
    blocks = []
    real = pi._train_fields
    pi._train_fields = lambda block: blocks.append(block) or real(block)
    items = make_collector(pi, *envs(), n_sample=6).collect()
    obs, state = np.asarray(blocks[0]["obs"]), blocks[0]["prev_state"]
    assert items["obs"].shape[:2] == (6, 4) and len(blocks[0]["reward"]) == 12
    n = 0
    for part in range(3):
        for b in range(2):
            np.testing.assert_array_equal(items["obs"][n], obs[4 * part : 4 * part + 4, b])
            np.testing.assert_array_equal(items["cut"][n], 1.0 - blocks[0]["done"][4 * part : 4 * part + 4, b])
            for name, leaf in state.items():
                np.testing.assert_array_equal(items["prev_state"][name][n, 0], leaf[4 * part, b])
            n += 1


def test_a_reset_inside_a_segment_begins_a_new_state_and_no_gradient_crosses_it():
    pi = policy(unroll=6)
    batch = make_collector(pi, Diary(0, [3, 40]), Diary(1, [40]), n_sample=2).collect()
    data = minibatch(batch)
    data["obs"] = data["obs"].clone().requires_grad_()
    output, _ = pi._evaluated(data)
    value = output["value"].reshape(6, 2)
    (grad,) = torch.autograd.grad(value[5, 0], data["obs"])
    steps = grad.abs().sum(-1)
    assert (steps[:3, 0] == 0).all() and (steps[3:, 0] > 0).all() and (steps[:, 1] == 0).all()


def test_rows_that_are_no_transition_change_nothing():
    """Next-step reset: NaN in such rows reaches neither loss nor weights."""
    manager = VectorEnvManager.from_config({"type": "CartPole-v1"}, None, 2, "collect")
    pi = policy(obs_shape=4, actions=2, unroll=8)
    cfg = deep_merge_defaults(pi._cfg.collect, {"n_sample": 16})
    items = SampleCollector(cfg, manager, pi.collect_mode, 0).collect()
    idle = items["mask"] == 0
    assert idle.any()
    clean = pi.learn_mode.state_dict()
    told = []
    for spoil in (False, True):
        pi.learn_mode.load_state_dict(clean)
        batch = ArrayDict({k: tree_map(np.copy, v) for k, v in items.items()})
        if spoil:
            for name in ("adv", "return_", "value", "log_prob"):
                batch[name][idle] = np.nan
        info = pi.learn_mode.forward(minibatch(batch))
        told.append((float(info["total_loss"]), {k: v.clone() for k, v in pi.get_model().state_dict().items()}))
    assert np.isfinite(told[0][0]) and told[0][0] == told[1][0]
    assert all(torch.equal(told[0][1][k], told[1][1][k]) for k in told[0][1])


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
def test_they_learn_on_segments_of_any_number(cls):
    pi = policy(cls, unroll=4)
    items = make_collector(pi, *envs(), n_sample=6).collect()
    for size in (1, 3, 6):
        info = pi.learn_mode.forward(minibatch(items[:size]))
        assert all(bool(torch.isfinite(torch.as_tensor(v)).all()) for v in info.values())


def test_rollouts_that_segments_do_not_fill_are_named():
    pi = policy(unroll=4)
    with pytest.raises(ConfigError, match=r"6 rows of all env columns and policy\.learn_unroll_len is 4.*multiple of"):
        make_collector(pi, *envs(), n_sample=3).collect()


def test_a_feed_forward_network_trains_as_before():
    torch.manual_seed(0)
    pi = make_policy(PPOPolicy, obs_shape=3, action_shape=3)
    items = make_collector(pi, *envs(), n_sample=6).collect()
    assert items["obs"].shape == (6, 3) and "cut" not in items and "prev_state" not in items


def test_another_number_of_observations_than_before_is_told_to_reset_the_policy():
    pi = policy(obs_shape=3)
    space = {"kind": "Box", "shape": [3], "dtype": "float32"}
    pi.interface = Interface({"obs": space, "action": {"kind": "Discrete", "n": 3, "dtype": "int64", "start": 0}})
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    pi.act(obs[:3], batched=True)
    for rows in (2, 5):
        with pytest.raises(ValueError, match=rf"obs has {rows} rows and the step before had 3: .* policy.reset\(\)"):
            pi.act(obs[:rows], batched=True)
    with pytest.raises(ValueError, match="obs has 1 rows and the step before had 3"):
        pi.act(obs[0])
    pi.reset()
    assert pi.act(obs, batched=True).shape == (5,)


def test_act_remembers_until_reset_and_leaves_evaluation_as_it_is():
    pi = policy(obs_shape=3)
    space = {"kind": "Box", "shape": [3], "dtype": "float32"}
    pi.interface = Interface({"obs": space, "action": {"kind": "Discrete", "n": 3, "dtype": "int64", "start": 0}})
    obs = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    with torch.no_grad():
        inputs = {"obs": torch.as_tensor(obs)[:, None], "prev_state": None}
        wanted = pi.get_model()(inputs, mode="compute_actor")["logit"][:, 0].argmax(-1).tolist()
    pi.eval_mode.reset(None)
    evaluated = []
    for _ in range(2):
        pi.reset()
        acted = []
        for row in obs:
            acted.append(pi.act(row))
            evaluated.append(int(pi.eval_mode.forward(row[None])["action"][0]))
        assert acted == wanted
        pi.eval_mode.reset(None)
    assert evaluated == wanted * 2
