"""R2D2 as users meet it: sizes at their edges, settings that do not fit, runs that evaluation does not touch."""

import math

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError, deep_merge_defaults
from ding_like.entry import serial_pipeline
from ding_like.entry.build import full_config
from ding_like.model.template.drqn import DRQN
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.utils import MODEL_REGISTRY, POLICY_REGISTRY
from tests.helpers import fingerprint, make_policy, metrics, policy_config, single, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")


def config(policy_type="r2d2", env=(), **policy):
    sizes = dict(
        nstep=2,
        burnin_step=2,
        learn_unroll_len=6,
        model=dict(encoder_hidden_size_list=[8], lstm_type="gru"),
        learn=dict(batch_size=4),
        collect=dict(n_sample=4),
    )
    made = single(tiny_config("run", **deep_merge_defaults(sizes, policy)))
    made["policy"]["type"] = policy_type
    return deep_merge_defaults(made, dict(env))


def losses(folder="run"):
    return [line["total_loss"] for line in metrics(folder) if line["section"] == "learner"]


# ---------------------------------------------------------------- what trains
EDGES = {
    "no burn-in, one step": dict(burnin_step=0, nstep=1, learn_unroll_len=2),
    "one step of each window trains": dict(nstep=5, learn_unroll_len=6),
    "windows longer than most episodes": dict(burnin_step=30, learn_unroll_len=60, collect=dict(n_sample=1)),
    "batches of one": dict(learn=dict(batch_size=1)),
    "uniform replay, plain targets": dict(priority=False, double=False, learn=dict(value_rescale=False)),
    "zero state": dict(learn=dict(stored_state=False)),
    "normaliser, random prefill": dict(norm_obs=dict(use_norm=True), random_collect_size=50),
    "layers and a link around them": dict(
        model=dict(lstm_type="normal", num_layers=2, res_link=True, norm_type="LN", dueling=False)
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_it_trains(name):
    policy = serial_pipeline(config(**EDGES[name]), max_train_iter=12)
    assert len(losses()) >= 2 and all(map(math.isfinite, losses())) and any(losses())
    before = fingerprint(serial_pipeline(config(**EDGES[name]), max_train_iter=0).get_model().state_dict())
    assert fingerprint(policy.get_model().state_dict()) != before


def test_dqn_with_the_same_settings_is_the_same_algorithm():
    shared = dict(discount_factor=0.9, priority=True, learn=dict(value_rescale=True, learning_rate=1e-3, loss="mse"))
    shared = deep_merge_defaults(shared, dict(learn=dict(target_theta=0.01), other=dict(eps=dict(end=0.1))))
    serial_pipeline(config(**shared), exp_name="r2d2", max_train_iter=12)
    serial_pipeline(
        config("dqn", **deep_merge_defaults(shared, dict(model=dict(type="drqn")))), exp_name="dqn", max_train_iter=12
    )
    assert metrics("r2d2") == metrics("dqn")


def test_its_network_is_drqn_and_its_numbers_those_of_the_paper():
    made = R2D2Policy.default_config()
    assert (made.nstep, made.discount_factor, made.priority, made.learn.value_rescale) == (5, 0.997, True, True)
    assert (made.burnin_step, made.learn_unroll_len) == (20, 80)
    assert isinstance(make_policy(R2D2Policy).get_model(), DRQN)


def test_evaluation_changes_nothing_of_the_run():
    folders = []
    for freq in (10, 10**6):
        folders.append(f"every_{freq}")
        made = config(eval=dict(evaluator=dict(eval_freq=freq)))
        last = serial_pipeline(made, exp_name=folders[-1], max_train_iter=24).get_model()
        folders[-1] = ([line for line in metrics(folders[-1]) if line["section"] != "eval"], last.state_dict())
    (often, weights), (seldom, others) = folders
    assert often == seldom and fingerprint(weights) == fingerprint(others)


def test_the_value_of_a_state_that_it_was_never_shown_again_stays_its_own():
    """Two policies with one seed act alike; one that is reset between two steps does not."""
    obs = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)

    def values(reset_at=None, columns=None):
        torch.manual_seed(0)
        policy = make_policy(R2D2Policy, obs_shape=4).eval_mode
        policy.reset()
        found = []
        for t in range(6):
            if t == reset_at:
                policy.reset(columns)
            found.append(policy.forward(obs[t])["logit"])
        return np.stack(found)

    whole, again, cut = values(), values(), values(3, [1])
    np.testing.assert_array_equal(whole, again)
    np.testing.assert_array_equal(whole[:, [0, 2]], cut[:, [0, 2]])
    assert (whole[:3] == cut[:3]).all() and (whole[3:, 1] != cut[3:, 1]).any(-1).all()


# ---------------------------------------------------------------- mistakes
class Forgets(DRQN):
    """Gives no next_state."""

    def forward(self, inputs, inference=False):
        out = super().forward(inputs, inference)
        del out["next_state"]
        return out


MISTAKES = {
    "no step trains": (dict(learn_unroll_len=5, nstep=5), r"policy.learn_unroll_len is 5 and policy.nstep is 5"),
    "no step trains, by far": (dict(learn_unroll_len=2, nstep=9), r"learn_unroll_len is 2 and policy.nstep is 9"),
    "a window of one step": (dict(learn_unroll_len=1, nstep=1), r"policy.learn_unroll_len: got 1, .* at least 2"),
    "negative burn-in": (dict(burnin_step=-1), r"policy.burnin_step: got -1, wanted an integer of at least 0"),
    "half a step of burn-in": (dict(burnin_step=2.5), r"policy.burnin_step: got 2.5"),
    "a burn-in that would never be stored": (
        dict(burnin_step=1000000),
        r"policy.burnin_step is 1000000 and policy.learn_unroll_len is 6; wanted windows of at most 10000 steps, not",
    ),
    "whole trajectories, which windows are not made of": (
        dict(collect=dict(traj_len_inf=True)),
        r"policy.collect.traj_len_inf: got True, wanted False for a recurrent network",
    ),
    "a network of an actor-critic policy": (
        dict(model=dict(type="vac", encoder_hidden_size_list=[8], lstm_type="gru")),
        r"policy.model: the network \(VAC\) is that of an actor-critic policy, .*'dqn' or 'drqn'",
    ),
    "unknown cell": (dict(model=dict(lstm_type="lstm")), r"policy.model.lstm_type: got 'lstm', wanted one of 'normal'"),
    "feed-forward network": (
        dict(model=dict(type="dqn", lstm_type=None)),
        r"policy.model.lstm_type: model 'dqn' has no such argument",
    ),
    "recurrent option of a network that lacks it": (
        dict(model=dict(use_prev_cell=True)),
        r"policy.model.use_prev_cell: model 'drqn' has no such argument",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_settings_that_do_not_fit_are_named_before_a_folder_is_made(name, in_tmp):
    change, says = MISTAKES[name]
    with pytest.raises(ConfigError, match=says):
        serial_pipeline(config(**change), max_train_iter=1)
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("policy_type", "over", "says"),
    [
        (
            "r2d2",
            {},
            r"policy.burnin_step is 20 and the network \(DQN\) has no initial_state\(B\), .* wanted burnin_step=0",
        ),
        ("r2d2", dict(burnin_step=0), r"policy.learn.value_rescale is True and .*'drqn'"),
        ("dqn", dict(burnin_step=3, norm_obs=dict(use_norm=True)), r"policy.burnin_step is 3 and the network \(DQN\)"),
        ("dqn", dict(learn=dict(value_rescale=True)), r"policy.learn.value_rescale is True"),
    ],
)
def test_recurrent_settings_of_a_feed_forward_network_are_named(policy_type, over, says, in_tmp):
    made = single(tiny_config("run", **deep_merge_defaults(dict(model=dict(type="dqn")), over)))
    made["policy"]["type"] = policy_type
    with pytest.raises(ConfigError, match=says):
        serial_pipeline(made, max_train_iter=1)
    assert list(in_tmp.iterdir()) == []


def test_dqn_refuses_a_feed_forward_network_of_an_actor_critic_policy_too():
    for model in (dict(type="vac", encoder_hidden_size_list=[8]), dict(type="vac", lstm_type="gru")):
        with pytest.raises(ConfigError, match=r"policy.model: the network \(VAC\) is that of an actor-critic policy"):
            DQNPolicy(policy_config(DQNPolicy, model=model), shapes=dict(obs_shape=4, action_shape=2))


def test_whole_trajectories_of_a_feed_forward_network_are_no_mistake():
    policy = make_policy(DQNPolicy, collect=dict(traj_len_inf=True))
    assert policy.collect_mode.get_attribute("trajectories") is not None


def test_the_length_of_windows_does_not_bind_a_feed_forward_network():
    policy = make_policy(DQNPolicy, nstep=40)
    assert policy.collect_mode.get_attribute("windows") is None


def test_a_network_without_next_state_is_named():
    MODEL_REGISTRY.register("forgets", Forgets)
    with pytest.raises(KeyError, match=r"hidden_state: the network \(Forgets\) gives \['logit'\]; wanted 'next_state'"):
        serial_pipeline(config(model=dict(type="forgets")), max_train_iter=1)


class Unsaid(torch.nn.Module):
    """In DI-engine's form: it reads `prev_state`, and nothing says that it is recurrent."""

    def __init__(self, obs_shape=4, action_shape=2):
        super().__init__()
        self.cell, self.head = torch.nn.GRUCell(obs_shape, 5), torch.nn.Linear(5, action_shape)

    def forward(self, x, inference=False):
        obs, state = x["obs"], x["prev_state"]
        hidden = self.cell(obs, None if state is None else state[:, 0])
        return {"logit": self.head(hidden), "value": hidden[:, 0], "next_state": hidden[:, None]}


@pytest.mark.parametrize("policy_type", ["dqn", "ppo", "a2c"])
def test_a_recurrent_network_that_does_not_say_so_is_named(policy_type):
    MODEL_REGISTRY.register("unsaid", Unsaid)
    made = single(tiny_config("run", model=dict(type="unsaid", encoder_hidden_size_list=None)))
    made["policy"].update(type=policy_type, model=dict(type="unsaid"))
    if policy_type != "dqn":
        made["policy"] = dict(type=policy_type, model=dict(type="unsaid"))
    with pytest.raises(ValueError, match=r"network \(Unsaid\) failed on an observation alone .* no initial_state\(B\)"):
        serial_pipeline(made, max_train_iter=1)


def test_r2d2_says_what_makes_a_network_recurrent():
    MODEL_REGISTRY.register("unsaid", Unsaid)
    made = single(tiny_config("run"))
    made["policy"] = dict(type="r2d2", model=dict(type="unsaid"))
    with pytest.raises(ConfigError, match=r"network \(Unsaid\) has no initial_state\(B\), which makes a policy recurr"):
        serial_pipeline(made, max_train_iter=1)


def test_a_policy_that_stores_no_next_obs_is_named_before_it_bootstraps_from_another_observation():
    class Forgetful(R2D2Policy):
        def _process_transition(self, obs, model_output, timestep):
            row = super()._process_transition(obs, model_output, timestep)
            del row["next_obs"]
            return row

    POLICY_REGISTRY.register("forgetful", Forgetful)
    with pytest.raises(ValueError, match=r"the steps have no field 'next_obs': .*store next_obs=timestep\.obs"):
        serial_pipeline(config("forgetful"), max_train_iter=1)


def test_a_valid_config_is_complete():
    made = full_config(config())
    assert made.policy.burnin_step == 2 and made.policy.learn.stored_state is True


def test_every_column_explores_as_much_as_its_rung_says():
    """Kapturowski 2019 takes the ladder of Horgan 2018."""
    torch.manual_seed(0)
    model = dict(encoder_hidden_size_list=[8], lstm_type="gru")
    cfg = policy_config(R2D2Policy, model=model, other=dict(eps_ladder=dict(base=0.5, alpha=2.0)))
    policy = R2D2Policy(cfg, shapes=dict(obs_shape=3, action_shape=1000))
    obs = np.ones((3, 3), np.float32)
    explored = np.zeros(3)
    for _ in range(600):
        policy.collect_mode.reset(None)
        output = policy.collect_mode.forward(obs, **policy.collect_mode.get_setting(0))
        explored += output["action"] != output["logit"].argmax(-1)
    np.testing.assert_allclose(explored / 600, [0.5, 0.25, 0.125], atol=0.07)


def test_random_collecting_is_uniform_whatever_the_ladder_says():
    """`random_collect_size` fills the store with random actions; the rungs come after."""
    torch.manual_seed(0)
    model = dict(encoder_hidden_size_list=[8], lstm_type="gru")
    cfg = policy_config(R2D2Policy, model=model, other=dict(eps_ladder=dict(base=0.1)))
    policy = R2D2Policy(cfg, shapes=dict(obs_shape=3, action_shape=1000))
    obs, random = np.ones((3, 3), np.float32), 0
    for _ in range(100):
        policy.collect_mode.reset(None)
        output = policy.collect_mode.forward_random(obs)
        random += (output["action"] != output["logit"].argmax(-1)).sum()
    assert random >= 295
