"""Model wrappers: what reaches the network, target networks, and the stack wrappers form."""

import numpy as np
import pytest
import torch
from torch import nn

from ding_like.data import ArrayDict
from ding_like.model import model_wrap
from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.q_learning import DQN
from ding_like.model.wrapper import ModelWrapper, register_wrapper
from ding_like.utils import UnknownNameError
from tests.helpers import Constant, make_policy
from tests.model.test_sample_wrappers import Logits, rows, uniforms


# ---------------------------------------------------------------- base
class Keywords(nn.Module):
    def forward(self, x, inference=True):
        return {"got": inference}


class AnyKeywords(nn.Module):
    def forward(self, x, **kwargs):
        return {"got": kwargs}


def test_keywords_reach_only_a_forward_that_accepts_them():
    assert "logit" in model_wrap(Logits()).forward(torch.zeros(1, 2), inference=True, enable_fast_timestep=True)
    assert model_wrap(Keywords()).forward(torch.zeros(1), inference=False, saved_state_timesteps=[1]) == {"got": False}
    assert model_wrap(AnyKeywords()).forward(torch.zeros(1), a=1)["got"] == {"a": 1}


def test_keywords_are_those_of_the_network_inside_a_normaliser():
    model = NormalizedModel(Keywords(), 1)
    assert model_wrap(model).forward(torch.zeros(2, 1), inference=False, data_id=[0]) == {"got": False}


def test_attributes_of_the_network_are_those_of_the_wrapper():
    net = DQN(4, 2)
    wrapped = model_wrap(model_wrap(net, wrapper_name="argmax_sample"), wrapper_name="base")
    assert wrapped.encoder is net.encoder
    with pytest.raises(AttributeError):
        _ = wrapped.nothing_of_that_name


def test_a_mode_is_not_told_to_a_network_without_modes():
    x = np.zeros((2, 4), np.float32)
    for data in (x, torch.as_tensor(x)):
        assert list(model_wrap(DQN(4, 2)).forward(data, mode="compute_actor")) == ["logit"]


# ---------------------------------------------------------------- target
def weights(model):
    return model.state_dict()["model"]["q"].tolist()


def test_target_assign_copies_at_every_freq_th_update():
    source = Constant(1.0, 2.0)
    target = model_wrap(Constant(0.0, 0.0), wrapper_name="target", update_type="assign", update_kwargs={"freq": 3})
    seen = []
    for k in range(1, 8):
        source.q.data.fill_(k)
        target.update(source)
        seen.append(weights(target)[0])
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    target.update(source, direct=True)
    assert weights(target) == [7, 7]
    assert not any(p.requires_grad for p in target.parameters())


class Noisy(nn.Module):
    """Dropout and batch-norm after a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x):
        return {"logit": self.layers(x)}


def test_a_target_network_makes_no_noise_and_follows_the_statistics():
    source, x = Noisy(), torch.randn(6, 4)
    target = model_wrap(Noisy(), wrapper_name="target", update_type="assign", update_kwargs={"freq": 1})
    for _ in range(3):
        source(10 + x)
        target.update(source)
    assert source.training and torch.equal(target.forward(x)["logit"], target.forward(x)["logit"])
    one_by_one = torch.cat([target.forward(row[None])["logit"] for row in x])
    torch.testing.assert_close(target.forward(x)["logit"], one_by_one)
    torch.testing.assert_close(target.forward(x)["logit"], source.eval()(x)["logit"])


def test_the_targets_of_a_policy_stay_without_noise_while_it_learns():
    policy, x = make_policy(model=Noisy(), obs_shape=4, learn={"target_update_freq": 1}), torch.randn(6, 4)
    for _ in range(2):
        policy.learn_mode.forward(
            ArrayDict(obs=x, next_obs=x, action=torch.zeros(6, dtype=int), reward=torch.ones(6), discount=torch.ones(6))
        )
        assert policy.get_model().training
        says = [policy._target_model.forward(x)["logit"] for _ in range(2)]
        torch.testing.assert_close(says[0], says[1], rtol=0, atol=0)


def test_target_momentum_has_its_closed_form():
    theta, source = 0.1, Constant(1.0, -2.0)
    target = model_wrap(
        Constant(5.0, 5.0), wrapper_name="target", update_type="momentum", update_kwargs={"theta": theta}
    )
    for k in range(1, 6):
        target.update(source.state_dict() if k % 2 else source)
        keep = (1 - theta) ** k
        assert weights(target) == pytest.approx([keep * 5 + (1 - keep), keep * 5 - 2 * (1 - keep)], rel=1e-6)
    target.update(source, direct=True)
    assert weights(target) == [1, -2]


@pytest.mark.parametrize(("kind", "kwargs"), [("assign", {"freq": 1}), ("momentum", {"theta": 0.5})])
def test_buffers_follow_whole(kind, kwargs):
    source, net = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    target = model_wrap(net, wrapper_name="target", update_type=kind, update_kwargs=kwargs)
    source.running_mean.fill_(8.0)
    source.num_batches_tracked.fill_(5)
    target.update(source)
    assert net.running_mean.tolist() == [8, 8] and net.num_batches_tracked == 5


@pytest.mark.parametrize(("kind", "kwargs"), [("assign", {"freq": 1}), ("momentum", {"theta": 0.5})])
def test_a_state_dict_taken_before_an_update_keeps_its_values(kind, kwargs):
    target = model_wrap(Constant(0.0, 0.0), wrapper_name="target", update_type=kind, update_kwargs=kwargs)
    state = target.state_dict()
    target.update(Constant(4.0, 4.0))
    assert state["model"]["q"].tolist() == [0, 0] and weights(target)[0] > 0
    target.load_state_dict(state)
    assert weights(target) == [0, 0] and target.state_dict()["count"] == state["count"]


def test_the_update_count_is_state():
    source = Constant(1.0, 1.0)
    kwargs = dict(wrapper_name="target", update_type="assign", update_kwargs={"freq": 3})
    target = model_wrap(Constant(0.0, 0.0), **kwargs)
    target.update(source)
    target.update(source)
    other = model_wrap(Constant(0.0, 0.0), **kwargs)
    other.load_state_dict(target.state_dict())
    other.update(source)
    assert weights(other) == [1, 1]
    other.reset(target_update_count=1)
    source.q.data.fill_(2)
    other.update(source)
    assert weights(other) == [1, 1]
    other.update(source)
    assert weights(other) == [2, 2]


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        ("copy", {}, r"update_type is 'copy'; wanted one of \['assign', 'momentum'\]"),
        ("assign", {"theta": 0.1}, "update_type 'assign' takes 'freq' alone"),
        ("assign", None, "takes 'freq' alone"),
        ("momentum", {"theta": 0.1, "freq": 2}, "takes 'theta' alone"),
        ("assign", {"freq": 0}, "freq is 0; wanted at least 1"),
        ("momentum", {"theta": 0.0}, "theta is 0.0; wanted more than 0"),
        ("momentum", {"theta": 1.5}, "theta is 1.5"),
    ],
)
def test_wrong_update_settings_are_named(kind, kwargs, says):
    with pytest.raises(ValueError, match=says):
        model_wrap(Constant(0.0), wrapper_name="target", update_type=kind, update_kwargs=kwargs)


# ---------------------------------------------------------------- stacks and registration
class Remember(ModelWrapper):
    def __init__(self, model, scale=1):
        super().__init__(model)
        self.scale, self.resets = scale, []

    def forward(self, data, **kwargs):
        output = self._model.forward(data, **kwargs)
        output["scaled"] = output["logit"] * self.scale
        return output

    def reset(self, data_id=None, **kwargs):
        self.resets.append(data_id)
        super().reset(data_id=data_id, **kwargs)


def test_a_registered_wrapper_is_made_by_name_and_reset_through_any_stack():
    register_wrapper("remember", Remember)
    inner = model_wrap(Logits(), wrapper_name="remember", scale=3)
    stack = model_wrap(model_wrap(inner, wrapper_name="eps_greedy_sample"), wrapper_name="remember")
    out = stack.forward(rows(1, 2, n=2), eps=0.0, noise=uniforms(2, 2))
    assert out["action"].tolist() == [1, 1] and out["scaled"].tolist() == [[1, 2], [1, 2]]
    stack.reset(data_id=[0, 3])
    stack.reset()
    assert inner.resets == stack.resets == [[0, 3], None]


def test_resets_pass_through_every_sampler():
    register_wrapper("remember", Remember)
    for name in ("argmax", "deterministic", "eps_greedy", "multinomial", "reparam"):
        inner = model_wrap(Logits(), wrapper_name="remember")
        model_wrap(inner, wrapper_name=f"{name}_sample").reset(data_id=[1])
        assert inner.resets == [[1]]


def test_unknown_wrapper_is_named_with_suggestions():
    with pytest.raises(UnknownNameError, match=r"no model_wrapper is called 'eps_greedy'.*'eps_greedy_sample'"):
        model_wrap(Logits(), wrapper_name="eps_greedy")


def test_only_wrapper_classes_are_registered():
    with pytest.raises(TypeError, match=r"wrapper 'own' is .*wanted a subclass of ModelWrapper"):
        register_wrapper("own", Logits)
