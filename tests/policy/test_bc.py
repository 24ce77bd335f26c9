"""Behavioural cloning: losses over windows, and it comes to do what its teacher does."""

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.data import ArrayDict
from ding_like.policy.bc import BehaviouralCloningPolicy
from ding_like.utils import POLICY_REGISTRY
from tests.helpers import policy_config

RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(256, 3)).astype(np.float32)
W = RNG.normal(size=(3, 5)).astype(np.float32)
KINDS = {  # what a linear teacher does
    "discrete": (4, (OBS @ W[:, :4]).argmax(-1)),
    "multi_discrete": ([2, 3], np.stack([(OBS @ W[:, :2]).argmax(-1), (OBS @ W[:, 2:]).argmax(-1)], -1)),
    "continuous": (2, np.tanh(OBS @ W[:, :2])),
}


def policy(kind="discrete", shape=4, seed=0, **over):
    torch.manual_seed(0)
    shapes = {"obs_shape": 3, "action_shape": shape, "action_space": kind}
    over.setdefault("model", {"encoder_hidden_size_list": [32]})
    return BehaviouralCloningPolicy(policy_config(BehaviouralCloningPolicy, **over), seed=seed, shapes=shapes)


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_to_do_what_its_teacher_does(kind):
    shape, action = KINDS[kind]
    pi = policy(kind, shape, learn=dict(learning_rate=1e-2))
    data = ArrayDict(obs=torch.as_tensor(OBS), action=torch.as_tensor(action))
    infos = [pi.learn_mode.forward(data) for _ in range(200)]
    done = pi.eval_mode.forward(OBS)["action"]
    if kind == "continuous":
        assert np.abs(done - action).mean() < 0.05 and "accuracy" not in infos[0]
    else:
        same = (done == action).reshape(256, -1).all(-1).mean()
        assert same > 0.95
        assert float(infos[-1]["accuracy"]) == pytest.approx(same, abs=0.02)
    assert float(infos[-1]["total_loss"]) < 0.2 * float(infos[0]["total_loss"])


def windows(steps, width):
    """Windows `[U, N]` of one episode of so many steps, with two slots of burn-in, the first two of them null."""
    firsts = np.arange(0, steps, width)
    slots = firsts[:, None] - 2 + np.arange(width + 2)  # [N, U]
    rows = slots.clip(0, steps - 1)
    mask, cut = ((slots >= 0) & (slots < steps)).astype(np.float32), np.ones(slots.shape, np.float32)
    mask[:, :2], cut[0, 1] = 0, 0
    fields = dict(obs=OBS[rows], action=KINDS["discrete"][1][rows], mask=mask, cut=cut)
    return ArrayDict({name: torch.as_tensor(value).transpose(0, 1) for name, value in fields.items()}), rows, mask


@pytest.mark.parametrize("lstm", ["gru", "pytorch"])
def test_the_loss_over_windows_is_the_mean_over_their_steps_each_stepped_one_by_one(lstm):
    pi = policy(model=dict(encoder_hidden_size_list=[8], lstm_type=lstm), learn_unroll_len=5, burnin_step=2)
    data, rows, mask = windows(12, 5)
    net, total, count = pi.get_model(), 0.0, 0
    for first, row, real in zip((2, 0, 0), rows, mask):  # slots before the episode are none
        state = None
        with torch.no_grad():
            for t, counts in zip(row[first:], real[first:]):
                out = net({"obs": torch.as_tensor(OBS[None, t]), "prev_state": state}, inference=True)
                state = out["next_state"]
                if counts:
                    z = out["logit"][0].double().numpy()
                    total += np.log(np.exp(z).sum()) - z[KINDS["discrete"][1][t]]
                    count += 1
    assert count == 12
    assert float(pi.learn_mode.forward(data)["total_loss"]) == pytest.approx(total / count, abs=1e-5)


def test_what_a_store_asks_of_it():
    feed, recurrent = policy(), policy(model={"lstm_type": "gru"}, learn_unroll_len=7, burnin_step=3)
    told = [[pi.learn_mode.get_attribute(name) for name in ("sample_len", "time_major")] for pi in (feed, recurrent)]
    assert told == [[1, False], [7, True]]
    assert recurrent.collect_mode.get_attribute("burnin") == 3


def test_the_loss_fits_the_actions():
    assert policy()._loss == "nll" and policy("continuous", 2)._loss == "mse"
    assert policy("continuous", 2, learn=dict(loss="nll"))._loss == "nll"
    with pytest.raises(ConfigError, match=r"policy\.learn\.loss is 'mse' and the actions are discrete"):
        policy(learn=dict(loss="mse"))


def test_it_draws_actions_where_it_is_asked_to_collect():
    done = [policy(seed=seed).collect_mode.forward(OBS)["action"].tolist() for seed in (0, 0, 1)]
    assert done[0] == done[1] != done[2]


def test_it_has_the_guide_s_name_too():
    assert POLICY_REGISTRY.get("il") is POLICY_REGISTRY.get("bc") is BehaviouralCloningPolicy
