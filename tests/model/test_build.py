"""From `policy.model` to a network: every wrong argument by its full path."""

import sys

import pytest
from torch import nn

from ding_like.config import ConfigError
from ding_like.config.checks import at_least
from ding_like.model.build import argument_mistakes, make_model, network_of, recurs
from ding_like.model.template.q_learning import DQN
from ding_like.utils import MODEL_REGISTRY, UnknownNameError

SHAPES = {"obs_shape": 4, "action_shape": 2}


def default():
    return "dqn", ["ding_like.model.template.q_learning"]


def model_mistakes(section, default):
    return argument_mistakes(*network_of(section, default))


class Own(nn.Module):
    config_checks = {"depth": at_least(1)}

    def __init__(self, obs_shape, width, depth=None, sizes=(1, 2)):
        super().__init__()
        self.given = (obs_shape, width, depth, sizes)


@pytest.fixture(autouse=True)
def _own():
    MODEL_REGISTRY.register("own_of_test_build", Own)


def test_the_default_network_takes_its_arguments_and_the_shapes():
    net = make_model({"encoder_hidden_size_list": [16.0, 8], "dueling": False}, default, SHAPES)
    assert isinstance(net, DQN)
    assert [m.out_features for m in net.modules() if isinstance(m, nn.Linear)] == [16, 8, 8, 2]


def test_another_network_by_type_gets_the_shapes_it_asks_for():
    net = make_model({"type": "own_of_test_build", "width": 3}, default, SHAPES)
    assert net.given == (4, 3, None, (1, 2))


@pytest.mark.parametrize(
    ("section", "lines"),
    [
        ({"duelling": True}, ["policy.model.duelling: model 'dqn' has no such argument. Did you mean 'dueling'?"]),
        (
            {"encoder_hidden_size_list": 64},
            [
                "policy.model.encoder_hidden_size_list: got 64, wanted a list such as [128, 128, 64]; write [64]",
            ],
        ),
        (
            {"encoder_hidden_size_list": [0]},
            [
                "policy.model.encoder_hidden_size_list: got [0], wanted a list of one or more, each an integer of at "
                "least 1"
            ],
        ),
        ({"encoder_hidden_size_list": []}, ["policy.model.encoder_hidden_size_list: got [], wanted a list of one"]),
        (
            {"encoder_hidden_size_list": ["a"]},
            ["policy.model.encoder_hidden_size_list[0]: got 'a', wanted an integer such as 128"],
        ),
        ({"head_hidden_size": 0.5}, ["policy.model.head_hidden_size: got 0.5, wanted an integer of at least 1, or N"]),
        ({"head_layer_num": "2"}, ["policy.model.head_layer_num: got '2', wanted an integer such as 1; remove the"]),
        ({"norm_type": "BN"}, ["policy.model.norm_type: got 'BN', wanted one of None, 'LN'"]),
        ({"activation": "tahn"}, ["policy.model.activation: got 'tahn', wanted one of 'relu', 'tanh',"]),
        (
            {"dueling": 1, "head_layer_num": -1},
            ["policy.model.dueling: got 1,", "policy.model.head_layer_num: got -1"],
        ),
        ({"type": "own_of_test_build", "width": 3, "depth": 0}, ["policy.model.depth: got 0, wanted an integer of at"]),
        ({"type": "own_of_test_build", "sizes": 3}, ["policy.model.sizes: got 3, wanted a list such as [1, 2]; write"]),
    ],
)
def test_wrong_arguments_are_named_all_at_once(section, lines):
    told = model_mistakes(section, default)
    assert len(told) == len(lines)
    assert all(line.startswith(start) for line, start in zip(told, lines))
    with pytest.raises(ConfigError) as caught:
        make_model(section, default, SHAPES)
    assert str(caught.value).splitlines() == told


def test_activations_may_be_objects():
    assert model_mistakes({"activation": nn.Tanh}, default) == model_mistakes({"activation": nn.ELU()}, default) == []


def test_what_follows_from_the_env_is_not_contradicted_and_nothing_is_missing():
    assert isinstance(make_model({"obs_shape": [4], "action_shape": 2}, default, SHAPES), DQN)
    with pytest.raises(ConfigError, match=r"policy.model.obs_shape is 3, the env's space gives 4; leave the key out"):
        make_model({"obs_shape": 3}, default, SHAPES)
    with pytest.raises(ConfigError, match=r"policy.model lacks width, which model 'own_of_test_build' needs"):
        make_model({"type": "own_of_test_build"}, default, SHAPES)


def test_an_error_of_our_constructor_is_led_back_to_the_section():
    with pytest.raises(ConfigError, match=r"policy.model: encoder_hidden_size_list is \[8\]; an image needs at least"):
        make_model({"encoder_hidden_size_list": [8]}, default, {"obs_shape": [3, 10, 10], "action_shape": 2})


def test_an_unknown_network_is_named():
    for build in (lambda s: model_mistakes(s, default), lambda s: make_model(s, default, SHAPES)):
        with pytest.raises(UnknownNameError, match=r"no model is called 'dqm'. Did you mean 'dqn'"):
            build({"type": "dqm"})


def test_import_names_without_a_type_are_imported_too(in_tmp):
    (in_tmp / "my_parts_of_a_model.py").write_text("")
    assert model_mistakes({"import_names": ["my_parts_of_a_model"]}, default) == []
    assert sys.modules.pop("my_parts_of_a_model")


class Recurrent(nn.Module):
    def initial_state(self, batch):
        raise NotImplementedError


class Depends(nn.Module):
    def __init__(self, lstm_type="gru"):
        super().__init__()

    initial_state = property(lambda self: None)


class Unknown(Depends):
    def __init__(self):
        super().__init__()


@pytest.mark.parametrize(
    ("cls", "kwargs", "wanted"),
    [
        (DQN, {}, False),
        (Recurrent, {}, True),
        (Depends, {}, True),
        (Depends, {"lstm_type": None}, False),
        (Unknown, {}, None),
        (lambda obs_shape: Recurrent(), {}, None),
    ],
)
def test_a_class_tells_whether_its_networks_are_recurrent(cls, kwargs, wanted):
    assert recurs(cls, kwargs) is wanted
