"""Networks that see the action and the reward before: while collecting, on windows and segments, and in `act`."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding_like.config import CfgDict, ConfigError
from ding_like.data import ArrayDict, torchify, tree_map
from ding_like.entry.checks import check_spaces
from ding_like.envs.env_wrappers import ShowPrevious
from ding_like.model import model_wrap
from ding_like.policy import PPOPolicy, load_policy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.rl_utils.distribution import make_distribution
from ding_like.rl_utils.previous import FIELDS
from ding_like.torch_utils.checkpoint import save_checkpoint
from ding_like.utils.seed import episode_seed
from ding_like.worker import Rollout
from tests.helpers import make_collector, make_manager, policy_config
from tests.policy.test_recurrent_actor_critic import minibatch
from tests.worker.test_sample_collector import Diary

CLASSES = {"r2d2": R2D2Policy, "ppo": PPOPolicy}


def made(kind, *envs, fields=FIELDS, **over):
    """`(policy, envs that show the fields)`, the spaces told as a run tells them."""
    torch.manual_seed(0)
    model = dict(encoder_hidden_size_list=[8], lstm_type="gru", **{f"use_{name}": True for name in fields})
    cls, shown = CLASSES[kind], [ShowPrevious(env, fields) for env in envs]
    cfg = CfgDict(policy=policy_config(cls, type=kind, import_names=[], model=model, **over), env=dict(type="test"))
    return cls(cfg.policy, shapes=check_spaces(cfg, cls, make_manager(*shown))), shown


def diaries():
    return Diary(0, [3, 5, 9]), Diary(1, [2, 40])


class Storing(R2D2Policy):
    """Keeps the Q-values that it acted on."""

    def _process_transition(self, obs, model_output, timestep):
        return {**super()._process_transition(obs, model_output, timestep), "q": model_output["logit"]}


@pytest.mark.parametrize("fields", [FIELDS, FIELDS[:1], FIELDS[1:]])
def test_the_values_acted_on_are_those_of_the_windows(fields, monkeypatch):
    monkeypatch.setitem(CLASSES, "r2d2", Storing)
    over = dict(norm_obs=dict(use_norm=True), nstep=2, burnin_step=3, learn_unroll_len=6)
    pi, envs = made("r2d2", *diaries(), fields=fields, **over)
    items = make_collector(pi, *envs, n_sample=20).collect()
    data = tree_map(lambda x: torchify(np.asarray(x)).transpose(0, 1), ArrayDict(dict.items(items)))  # [U, N, ...]
    real = ~data["null"].bool()
    cut = torch.ones(real.shape)
    cut[:-1][~real[:-1] & real[1:]] = 0
    model = model_wrap(pi._model, wrapper_name="hidden_state")
    model.reset(state=tree_map(lambda x: x[0], data["prev_state"]))
    with torch.no_grad():
        q = model.forward({"obs": data["obs"], "cut": cut}, inference=False)["logit"]
    assert real.sum() > 80 and (~real).sum() > 10
    np.testing.assert_allclose(q[real], data["q"][real], atol=1e-5)
    blind = tree_map(torch.clone, data["obs"])
    for name in fields:
        blind[name].fill_(0)
    model.reset(state=tree_map(lambda x: x[0], data["prev_state"]))
    with torch.no_grad():
        other = model.forward({"obs": blind, "cut": cut}, inference=False)["logit"]
    assert (q - other)[real].abs().max() > 1e-3


def test_the_final_observation_of_a_truncated_episode_shows_the_step_that_led_to_it():
    pi, envs = made("r2d2", Diary(0, [1, 3, 40]), nstep=1, burnin_step=0, learn_unroll_len=4)
    items = make_collector(pi, *envs, n_sample=6).collect()
    ended = 0
    for n in range(len(items["reward"])):
        for t in range(3):
            following = items["obs"]["prev_reward"][n, t + 1], items["obs"]["prev_action"][n, t + 1]
            done, null = items["done"][n, t], items["null"][n, t]
            if not null and (not done or not items["terminated"][n, t]):
                assert following == (items["reward"][n, t], items["action"][n, t])
                ended += bool(done)
    assert ended == 1


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.Box(-2, 1, (2,))])
def test_the_ratio_of_ppo_is_one_before_the_first_update(space):
    envs = diaries()
    for env in envs:
        env.action_space = space
    pi, shown = made("ppo", *envs, learn_unroll_len=4, norm_obs=dict(use_norm=True))
    collector, store = make_collector(pi, *shown, n_sample=16), Rollout()
    for _ in range(2):
        collector.collect(store.push)
        for batch in store.batches(1, 8):
            data = minibatch(batch)
            assert {*data["obs"].keys()} == {"env_obs", *FIELDS}
            with torch.no_grad():
                output, flat = pi._evaluated(data)
            log_prob = make_distribution(output["logit"], pi._kind).log_prob(flat["action"])
            np.testing.assert_allclose(log_prob, flat["log_prob"], atol=1e-5)
            np.testing.assert_allclose(output["value"], flat["value"], atol=1e-5)


def test_action_masks_are_found_beside_the_step_before():
    pi, _ = made("ppo", Kept(spaces.Discrete(3), MASKED))
    mask = np.int8([[0, 0, 1], [1, 0, 0]] * 20)
    own = ArrayDict(a=np.zeros((40, 2), np.float32), action_mask=mask)
    before = dict(prev_action=np.full(40, -1), prev_reward=np.zeros(40, np.float32))
    obs = ArrayDict(env_obs=own, **before)
    for output in (pi.collect_mode.forward(obs), pi.eval_mode.forward(obs), pi._forward_random(obs)):
        assert output["action"].tolist() == [2, 0] * 20


# ------------------------------------------------------------------ act
class Kept(gymnasium.Env):
    """Ten steps of random observations and rewards, of any action space; keeps what it got."""

    def __init__(self, action_space, observation_space=None):
        self.observation_space = observation_space or spaces.Box(-1, 1, (3,), np.float32)
        self.action_space, self.got = action_space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t, self.got = 0, []
        return self.observation_space.sample(), {}

    def step(self, action):
        self.got.append(action)
        self.t += 1
        return self.observation_space.sample(), float(self.np_random.normal()), self.t == 10, False, {}


MASKED = spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), action_mask=spaces.Box(1, 1, (3,), np.int8))
ACTIONS = {
    "r2d2": (spaces.Discrete(3), None),
    "masks": (spaces.Discrete(3), MASKED),
    "discrete from 2": (spaces.Discrete(3, start=2), None),
    "multi discrete": (spaces.MultiDiscrete([3, 2]), None),
    "multi binary": (spaces.MultiBinary(3), None),
    "box": (spaces.Box(np.float32([-2, -np.inf]), np.float32([1, np.inf])), None),
}


def weigh(policy, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in policy.get_model().parameters():
            p.copy_(torch.randn_like(p) if p.dim() > 1 else p * 0)


def played(policy, manager, env):
    """What the env got in one episode of the policy's evaluation."""
    manager.launch(3)
    policy.eval_mode.reset()
    for _ in range(10):
        manager.step(policy.eval_mode.forward(manager.ready_obs, data_id=np.arange(1))["action"])
    return env.got


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("fields", [FIELDS, FIELDS[:1]])
def test_act_does_what_an_evaluation_does_with_its_own_memory(name, fields, tmp_path):
    kind, (space, own) = "r2d2" if name == "r2d2" else "ppo", ACTIONS[name]
    env = Kept(space, own)
    pi, shown = made(kind, env, fields=fields)
    manager = make_manager(*shown, role="eval")
    for seed in range(50):
        weigh(pi, seed)
        wanted = played(pi, manager, env)
        if len({str(action) for action in wanted}) > 2:
            break
    assert len({str(action) for action in wanted}) > 2
    save_checkpoint(tmp_path / "a.pth.tar", kind, pi.learn_mode.state_dict(), {"train_iter": 1}, pi.recipe())
    seed = episode_seed(3, "eval", 0, 0)
    for policy in (pi, load_policy(tmp_path / "a.pth.tar")):
        reward = None
        for _ in range(2):  # the second episode begins with the last reward of the first at hand
            policy.reset()
            obs, _ = env.reset(seed=seed)
            for _ in range(10):
                obs, reward, *_ = env.step(policy.act(obs, reward=reward))
            np.testing.assert_allclose(np.float32(env.got), np.float32(wanted), atol=1e-5)


def test_act_on_batches_and_what_does_not_fit_is_named():
    pi, _ = made("r2d2", Kept(spaces.Discrete(3)))
    weigh(pi, 0)
    obs, reward = np.random.default_rng(0).uniform(-1, 1, (4, 2, 3)).astype(np.float32), np.float32([[1, 2]] * 4)
    batch = [pi.act(obs[t], batched=True, reward=reward[t] if t else None).tolist() for t in range(4)]
    for b in range(2):
        pi.reset()
        assert [pi.act(obs[t, b], reward=reward[t, b]) for t in range(4)] == [row[b] for row in batch]
    with pytest.raises(ValueError, match=r"wanted act\(obs, reward=\.\.\.\)"):
        pi.act(obs[0, 0])
    for bad, says in (
        ("x", "reward has dtype <U1"),
        (np.nan, "reward is not finite"),
        (np.zeros(2), r"reward has shape \(2,\); wanted \(\)"),
    ):
        with pytest.raises(ValueError, match=says):
            pi.act(obs[0, 0], reward=bad)
    with pytest.raises(ValueError, match=r"obs has 2 rows and the step before had 1.*call of policy.reset"):
        pi.act(obs[0], batched=True, reward=np.zeros(2))
    pi.reset()
    pi.act(obs[0], batched=True)
    with pytest.raises(ValueError, match="reward has 3 rows; wanted 2, as obs"):
        pi.act(obs[0], batched=True, reward=np.zeros(3))


def test_a_policy_that_takes_no_reward_does_not_look_at_one():
    pi, _ = made("r2d2", Kept(spaces.Discrete(3)), fields=FIELDS[:1])
    rows = np.random.default_rng(1).uniform(-1, 1, (5, 3)).astype(np.float32)
    alone = [pi.act(row) for row in rows]
    pi.reset()
    assert [pi.act(row, reward="whatever") for row in rows] == alone


@pytest.mark.parametrize("fields", [FIELDS, FIELDS[:1], []])
def test_an_env_that_shows_something_else_than_the_network_takes_is_named(fields):
    env = ShowPrevious(Kept(spaces.Discrete(3)), ["prev_reward"])
    cfg = CfgDict(policy=dict(type="r2d2", model={f"use_{name}": True for name in fields}), env=dict(type="test"))
    with pytest.raises(ConfigError, match=f"policy.model.use_{'prev_action' if fields else 'prev_reward'}"):
        check_spaces(cfg, R2D2Policy, make_manager(env))
