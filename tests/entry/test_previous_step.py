"""Runs of networks that see the action and the reward before: what they learn by them, resume, mistakes."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ding_like.config import ConfigError, deep_merge_defaults
from ding_like.entry import serial_pipeline
from ding_like.entry.build import build, full_config
from ding_like.entry.eval_entry import eval as evaluate
from ding_like.model.template.drqn import DRQN
from ding_like.utils import ENV_REGISTRY, HOOK_REGISTRY, MODEL_REGISTRY
from tests.entry.resuming import OFTEN, Break, assert_equal_runs, broken_and_resumed
from tests.helpers import metrics, result, single, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")

BOTH = dict(use_prev_action=True, use_prev_reward=True)


class Lucky(gymnasium.Env):
    """One of two actions is worth 1, which one is drawn anew each episode of 6 steps; the observation never changes.

    Who remembers what paid off expects 5.5, everybody else 3.
    """

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.lucky = 0, int(self.np_random.integers(2))
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.ones(1, np.float32), float(action == self.lucky), self.t == 6, False, {}


@pytest.fixture(autouse=True)
def _registered():
    ENV_REGISTRY.register("lucky", Lucky)
    HOOK_REGISTRY.register("break", Break)
    Break.at = None


def config(kind="r2d2", env=(), model=(), env_type="CartPole-v1", **policy):
    sizes = dict(model=dict(lstm_type="gru", **BOTH), collect=dict(n_sample=4), learn=dict(batch_size=4))
    over = dict(nstep=2, burnin_step=2, learn_unroll_len=6)
    if kind == "ppo":
        over = dict(learn_unroll_len=8, collect=dict(n_sample=8))
    made = single(tiny_config("run", **deep_merge_defaults(sizes, over, policy, {"model": dict(model)})))
    made["policy"]["type"], made["env"]["type"] = kind, env_type
    if kind == "ppo":
        for section in (made["policy"], made["policy"]["learn"]):
            for key in ("nstep", "other", "update_per_collect"):
                section.pop(key, None)
    return deep_merge_defaults(made, {"env": dict(env)})


# ------------------------------------------------------------------ learning
LUCKY = {
    "ppo": dict(
        learn_unroll_len=12,
        collect=dict(n_sample=16),
        learn=dict(epoch_per_collect=4, batch_size=16, learning_rate=5e-3),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
    "r2d2": dict(
        nstep=1,
        burnin_step=0,
        learn_unroll_len=7,
        discount_factor=0.9,
        collect=dict(n_sample=8),
        learn=dict(update_per_collect=4, batch_size=32, learning_rate=5e-3, target_update_freq=50, value_rescale=False),
        eval=dict(evaluator=dict(eval_freq=100)),
        other=dict(
            eps=dict(type="linear", start=1.0, end=0.05, decay=2000), replay_buffer=dict(replay_buffer_size=2000)
        ),
    ),
}


def lucky(kind, **model):
    env = dict(collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=64, stop_value=5.2)
    cfg = config(kind, env, {**model, "encoder_hidden_size_list": [16]}, "lucky", **LUCKY[kind])
    serial_pipeline(cfg, seed=1, max_env_step=9000 if kind == "ppo" else 5000)
    return result("run")["eval_value"]


@pytest.mark.learning
@pytest.mark.parametrize("kind", LUCKY)
def test_what_only_the_last_action_and_reward_tell_is_learned(kind):
    assert lucky(kind) >= 5.2
    assert next(line["eval_value"] for line in metrics("run") if "eval_value" in line) < 5


@pytest.mark.learning
def test_without_them_it_cannot_be_learned():
    assert lucky("ppo", use_prev_action=False, use_prev_reward=False) < 4.5


# ------------------------------------------------------------------ runs
@pytest.mark.parametrize("kind", ["r2d2", "ppo"])
def test_a_run_broken_off_ends_as_one_never_stopped_and_its_checkpoint_evaluates(kind):
    cfg = config(kind, norm_obs=dict(use_norm=True), learn=dict(learner=dict(hooks=[dict(type="break")])))
    cfg["resume"] = OFTEN
    straight = serial_pipeline({**cfg, "exp_name": "straight"}, max_train_iter=6)
    broken_and_resumed(cfg, [3], max_train_iter=6)
    assert_equal_runs(Path("straight"), Path("broken"))
    assert straight.interface.plain["previous"] == ["prev_action", "prev_reward"]
    found = evaluate(load_path="straight")
    assert found["n_episode"] == 3 and np.isfinite(found["eval_value"])


class Own(nn.Module):
    """A recurrent network of the user's own; its inputs are kept."""

    def __init__(self, obs_shape, action_shape, use_prev_action=False):
        super().__init__()
        self.net, self.seen = nn.Linear(obs_shape + use_prev_action, action_shape), set()

    def initial_state(self, batch):
        return torch.zeros(batch, 1, 1)

    def forward(self, x):
        self.seen.update(x)
        features = torch.cat([x["obs"], x["prev_action"][..., None].float()], -1)
        return {"logit": self.net(features), "next_state": x["prev_state"] + 1}


def test_a_network_of_ones_own_gets_the_fields_it_asks_for(monkeypatch):
    monkeypatch.setitem(MODEL_REGISTRY._entries, "own_prev", Own)
    cfg = config(learn=dict(batch_size=2))
    cfg["policy"]["model"] = dict(type="own_prev", use_prev_action=True)
    policy = serial_pipeline(cfg, max_train_iter=4)
    assert policy.get_model().seen == {"obs", "prev_state", "prev_action"}


def test_the_wrapper_stands_around_all_others_unless_the_config_places_it():
    for wrappers, names in (
        ([dict(type="reward_scale", scale=2.0)], ["ShowPrevious", "RewardScale"]),
        (["previous_step", dict(type="reward_scale", scale=2.0)], ["RewardScale", "ShowPrevious"]),
    ):
        parts = build(full_config(config(env=dict(wrappers=wrappers))), 0)
        for manager in parts.managers:
            env, found = manager._envs[0], []
            while env is not env.unwrapped:
                found.append(type(env).__name__)
                env = env.env
            assert [name for name in found if name in names] == names
        parts.close()
        assert parts.cfg.env.wrappers == wrappers


# ------------------------------------------------------------------ mistakes
MISTAKES = {
    "feed-forward": (dict(kind="dqn", model=dict(type="dqn")), r"policy\.model\.use_prev_action: model 'dqn' has no"),
    "vac without a memory": (dict(kind="ppo", model=dict(lstm_type=None)), r"policy\.model: .*use_prev_reward are for"),
    "no bool": (dict(model=dict(use_prev_reward="yes")), r"policy\.model\.use_prev_reward: got 'yes'"),
    "natively batched": (dict(manager="vector"), r"policy\.model\.use_prev_action: .* env_manager\.type='vector'"),
    "shown and not taken": (
        dict(env=dict(wrappers=["previous_step"]), model=dict(use_prev_reward=False)),
        r"policy\.model\.use_prev_reward: the network is to see \['prev_action'\] of the step before and the env shows",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_does_not_fit_is_named(name):
    over, says = MISTAKES[name]
    over = dict(over)
    manager = over.pop("manager", "base")
    cfg = config(**over)
    if name == "feed-forward":
        cfg["policy"].pop("burnin_step")
        cfg["policy"]["model"].pop("lstm_type")
    cfg["env_manager"] = dict(type=manager)
    with pytest.raises(ConfigError, match=says):
        serial_pipeline(cfg, max_train_iter=1)


def test_an_own_network_without_a_memory_is_named():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(self, x):
            return {"logit": self.net(x)}

    cfg = config("dqn")
    cfg["policy"].pop("burnin_step")
    with pytest.raises(ValueError, match=r"policy\.model\.use_prev_action, .*wanted False with this network"):
        serial_pipeline(cfg, model=Flat(), max_train_iter=1)


def test_a_network_that_takes_what_the_config_does_not_ask_for_is_named():
    net = DRQN(4, 2, [8], lstm_type="gru", use_prev_reward=True)
    cfg = config(model=dict(use_prev_action=False, use_prev_reward=False))
    with pytest.raises(KeyError, match=r"policy\.model\.use_prev_reward=True makes the envs show it"):
        serial_pipeline(cfg, model=net, max_train_iter=1)
