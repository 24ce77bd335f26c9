"""What the base class gives every policy: checks, modes, exploration by column, model arguments, state."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.config import ConfigError
from ding_like.data import ArrayDict
from ding_like.policy import Policy
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils import MODEL_REGISTRY, UnknownNameError
from tests.helpers import Constant, chi_limit, chi_square, make_policy, policy_config


def test_defaults_are_those_of_every_parent_merged():
    class Child(DQNPolicy):
        config = dict(learn=dict(batch_size=7), other=dict(eps=dict(end=0.2)), own=1)

    cfg = Child.default_config()
    assert (cfg.learn.batch_size, cfg.learn.loss, cfg.other.eps.end, cfg.own) == (7, "huber", 0.2, 1)
    assert cfg.collect.n_sample == Policy.config["collect"]["n_sample"]
    assert DQNPolicy.default_config().learn.batch_size == 64


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"discount_factor": 1.5}, "policy.discount_factor is 1.5; wanted between 0 and 1"),
        ({"discount_factor": -0.1}, "policy.discount_factor"),
        ({"nstep": 0}, "policy.nstep is 0; wanted at least 1"),
        ({"learn": {"batch_size": 0}}, "policy.learn.batch_size is 0"),
        ({"learn": {"optimizer": "adan"}}, "optimiser type is 'adan'.*Did you mean 'adam'"),
        ({"other": {"eps": {"type": "cosine"}}}, "cosine"),
    ],
)
def test_wrong_numbers_and_names_are_refused_by_name(over, says):
    with pytest.raises((ConfigError, ValueError), match=says):
        make_policy(**over).collect_mode.get_setting(0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_cuda_without_a_gpu_is_refused():
    with pytest.raises(ConfigError, match=r"policy.cuda is True and torch finds no GPU; set policy.cuda=False"):
        make_policy(cuda=True)


def test_enable_field_makes_only_those_modes():
    policy = make_policy(fields=["eval"])
    assert policy.eval_mode.forward(np.zeros((2, 1), np.float32))["action"].shape == (2,)
    assert not hasattr(policy, "_optimizer")
    with pytest.raises(ValueError, match=r"enable_field holds \['evaluate'\]"):
        make_policy(fields=["evaluate"])


def test_a_policy_without_its_hooks_is_told_which():
    class Empty(Policy):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no default_model"):
        Empty(policy_config(Empty))
    with pytest.raises(NotImplementedError, match="Empty has no _init_learn"):
        Empty(policy_config(Empty), Constant(1.0))


def test_attributes_are_read_by_getter_or_name():
    policy = make_policy(nstep=3)
    assert policy.collect_mode.get_attribute("nstep") == 3 and policy.learn_mode.get_attribute("norm_obs") is False
    policy.learn_mode.set_attribute("something", 5)
    assert policy.eval_mode.get_attribute("something") == 5
    with pytest.raises(AttributeError, match="DQNPolicy has no attribute 'nothing'"):
        policy.learn_mode.get_attribute("nothing")


# ---------------------------------------------------------------- model
class Needs(nn.Module):
    def __init__(self, obs_shape, action_shape, width, depth=2):
        super().__init__()
        self.got = (obs_shape, action_shape, width, depth)
        self.q = nn.Linear(obs_shape, action_shape)

    def forward(self, x):
        return {"logit": self.q(x)}


def policy_with(model, **kwargs):
    cfg = policy_config(model=model)
    return DQNPolicy(cfg, shapes={"obs_shape": 4, "action_shape": 2}, **kwargs)


@pytest.fixture
def needs():
    MODEL_REGISTRY.register("needs", Needs)


def test_a_model_of_the_users_own_gets_its_arguments_and_the_shapes(needs):
    assert policy_with({"type": "needs", "width": 3}).get_model().got == (4, 2, 3, 2)


def test_model_mistakes_are_named(needs):
    with pytest.raises(ConfigError, match=r"policy.model.widht: model 'needs' has no such argument.*'width'"):
        policy_with({"type": "needs", "widht": 3})
    with pytest.raises(ConfigError, match=r"policy.model lacks width, which model 'needs' needs"):
        policy_with({"type": "needs"})
    with pytest.raises(UnknownNameError, match=r"no model is called 'neds'.*'needs'"):
        policy_with({"type": "neds"})
    with pytest.raises(ConfigError, match=r"policy.model.obs_shape is 5, the env's space gives 4; leave the key out"):
        policy_with({"obs_shape": 5})
    with pytest.raises(ImportError, match="import_names entry 'no_such_module'"):
        policy_with({"type": "needs", "import_names": ["no_such_module"]})


@pytest.mark.parametrize("shape", [4, [4], (4,)])
def test_one_shape_may_be_written_in_three_ways(shape):
    assert policy_with({"obs_shape": shape, "encoder_hidden_size_list": [8]}) is not None


def test_a_network_object_takes_the_place_of_the_configured_one():
    net = Constant(1.0, 2.0)
    assert make_policy(model=net).get_model() is net


# ---------------------------------------------------------------- acting
OBS = np.zeros((4, 1), np.float32)


def actions(policy, steps=3, columns=4, **setting):
    obs = np.zeros((columns, 1), np.float32)
    return np.array([policy.collect_mode.forward(obs, **setting)["action"] for _ in range(steps)])


def test_actions_are_numpy_and_the_output_is_an_array_dict():
    for model in (None, Constant(0.0, 1.0)):
        out = make_policy(model=model).collect_mode.forward(OBS, eps=0.0)
        assert isinstance(out, ArrayDict) and type(out["action"]) is np.ndarray and out["action"].dtype == np.int64
        assert type(out["logit"]) is np.ndarray and out["logit"].shape == (4, 2)


def test_exploration_depends_on_seed_and_column_not_on_their_number():
    wide = actions(make_policy(model=Constant(0.0, 1.0)), 50, 8, eps=1.0)
    narrow = actions(make_policy(model=Constant(0.0, 1.0)), 50, 3, eps=1.0)
    np.testing.assert_array_equal(wide[:, :3], narrow)
    other = actions(make_policy(model=Constant(0.0, 1.0), seed=1), 50, 3, eps=1.0)
    assert (narrow != other).any()


def test_columns_explore_independently():
    """The fault 'all columns explore together' makes pairs of columns agree."""
    got = actions(make_policy(model=Constant(0.0, 1.0)), 3000, 2, eps=0.5)
    pairs = np.bincount(2 * got[:, 0] + got[:, 1], minlength=4)
    assert chi_square(pairs, 3000 * np.array([1, 3, 3, 9]) / 16) < chi_limit(4)


def test_exploration_does_not_draw_from_global_generators():
    policy = make_policy(model=Constant(0.0, 1.0))
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
    actions(policy, 600, eps=0.5)
    assert (np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()) == before


def test_epsilon_follows_its_schedule():
    policy = make_policy(other={"eps": {"type": "linear", "start": 1.0, "end": 0.1, "decay": 100}})
    got = [policy.collect_mode.get_setting(t)["eps"] for t in (0, 50, 100, 1000)]
    assert got == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_random_actions_are_uniform_and_independent_by_column():
    policy = make_policy(action_shape=3, model=Constant(0.0, 9.0, 0.0))
    got = np.array([policy.collect_mode.forward_random(OBS)["action"] for _ in range(3000)])
    pairs = np.bincount(3 * got[:, 0] + got[:, 3], minlength=9)
    assert chi_square(pairs, np.full(9, 3000 / 9)) < chi_limit(9)
    narrow = make_policy(action_shape=3, model=Constant(0.0, 9.0, 0.0)).collect_mode
    np.testing.assert_array_equal([narrow.forward_random(OBS[:2])["action"] for _ in range(20)], got[:20, :2])


def test_random_actions_of_an_unknown_space_are_refused():
    with pytest.raises(ConfigError, match=r"policy.random_collect_size: the action space of the env is not known"):
        make_policy(action_shape=None, model=Constant(1.0)).collect_mode.forward_random(OBS)


def test_numpy_and_torch_acting_agree():
    policy = make_policy(obs_shape=4)
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    fast = policy.eval_mode.forward(obs)
    slow = policy._eval_model.forward(torch.as_tensor(obs))
    np.testing.assert_array_equal(fast["action"], slow["action"].numpy())
    np.testing.assert_allclose(fast["logit"], slow["logit"].detach().numpy(), atol=1e-6)


def test_dropout_is_on_in_learning_and_off_in_acting():
    class Drop(Constant):
        def __init__(self):
            super().__init__(0.0, 1.0)
            self.drop = nn.Dropout(0.5)
            self.seen = []

        def forward(self, x):
            self.seen.append(self.training)
            return super().forward(x)

    policy = make_policy(model=Drop())
    policy.collect_mode.forward(OBS, eps=0.0)
    data = ArrayDict(
        obs=torch.zeros(2, 1),
        next_obs=torch.zeros(2, 1),
        action=torch.zeros(2, dtype=torch.int64),
        reward=torch.zeros(2),
        discount=torch.ones(2),
    )
    policy.learn_mode.forward(data)
    policy.eval_mode.forward(OBS)
    model = policy.get_model()
    assert model.seen[0] is False and model.seen[-1] is False and True in model.seen[1:-1]


def test_collect_state_is_the_networks():
    a, b = make_policy(), make_policy(seed=1)
    state = a.collect_mode.state_dict()
    b.collect_mode.load_state_dict(state)
    x = torch.rand(3, 1)
    torch.testing.assert_close(a.get_model()(x), b.get_model()(x), rtol=0, atol=0)
