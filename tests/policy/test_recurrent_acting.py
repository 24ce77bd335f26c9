"""Recurrent policies act in NumPy where the network can: the same numbers as its unroll, and nothing enters torch."""

import numpy as np
import pytest
import torch

from ding_like.data import torchify, tree_index, tree_map
from ding_like.model import model_wrap
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.ppo import PPOPolicy
from tests.helpers import policy_config

COLUMNS, STEPS = 5, 20
MODELS = {
    "dqn": (DQNPolicy, dict(type="drqn", encoder_hidden_size_list=[8])),
    "ppo": (PPOPolicy, dict(encoder_hidden_size_list=[8], share_encoder=False)),
}


def policy(name, lstm="pytorch", **over):
    torch.manual_seed(0)
    cls, model = MODELS[name]
    cfg = policy_config(cls, model={**model, "lstm_type": lstm}, **over)
    return cls(cfg, seed=0, shapes=dict(obs_shape=3, action_shape=2))


def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(STEPS, COLUMNS, 3)).astype(np.float32), rng.random((STEPS, COLUMNS)) < 0.2


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("lstm", ["pytorch", "gru", "normal", "hpc"])
@pytest.mark.parametrize("name", MODELS)
def test_what_collecting_says_is_what_an_unroll_with_the_same_ends_says(name, lstm, norm):
    pi = policy(name, lstm, norm_obs=dict(use_norm=norm))
    obs, ended = rows()
    if norm:
        pi.collect_mode.observe(3 * obs + 1)
    pi.collect_mode.reset()
    said = []
    for t in range(STEPS):
        said.append(pi.collect_mode.forward(obs[t], **({"eps": 0.3} if name == "dqn" else {})))
        pi.collect_mode.reset(np.flatnonzero(ended[t]))
    learner = model_wrap(pi.get_model(), "hidden_state")
    learner.reset(state=tree_map(torchify, said[0]["prev_state"]))
    inputs = {"obs": torch.as_tensor(obs), "cut": torch.as_tensor(1 - ended.astype(np.float32))}
    with torch.no_grad():
        wanted = learner.forward(inputs, inference=False, saved_hidden_state_timesteps=list(range(STEPS)))
    for key in ("logit", "value") if name == "ppo" else ("logit",):
        np.testing.assert_allclose(np.stack([out[key] for out in said]), wanted[key].numpy(), rtol=0, atol=1e-5)
    for out, state in zip(said, wanted["saved_state"], strict=True):
        tree_map(lambda a, b: np.testing.assert_allclose(a, b.numpy(), rtol=0, atol=1e-5), out["prev_state"], state)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_enters_torch_nowhere(name, monkeypatch):
    pi = policy(name)
    obs, _ = rows()
    pi.collect_mode.forward(obs[0])

    def refuse(*args, **kwargs):
        raise AssertionError("torch is entered")

    for place in ("from_numpy", "as_tensor", "inference_mode", "no_grad", "lstm_cell"):
        monkeypatch.setattr(torch, place, refuse)
    out = pi.collect_mode.forward(obs[1])
    pi.collect_mode.reset(np.array([1, 2]))
    pi.collect_mode.forward(obs[2])
    assert type(out["prev_state"]["actor"]["h"] if name == "ppo" else out["prev_state"]["h"]) is np.ndarray


@pytest.mark.parametrize("name", MODELS)
def test_columns_that_drop_out_of_an_evaluation_change_nothing_for_the_others(name):
    pi, other = policy(name), policy(name)
    obs, _ = rows()
    pi.eval_mode.reset()
    other.eval_mode.reset()
    left = np.arange(COLUMNS)
    for t in range(STEPS):
        left = left[: COLUMNS - t // 5]
        some = pi.eval_mode.forward(obs[t][left], left)
        every = other.eval_mode.forward(obs[t], np.arange(COLUMNS))
        np.testing.assert_allclose(some["logit"], tree_index(every, left)["logit"], rtol=0, atol=1e-6)
