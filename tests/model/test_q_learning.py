"""The `dqn` model: shapes, the dueling identity, head widths."""

import pytest
import torch

from ding_like.model.template.q_learning import DQN
from ding_like.utils import MODEL_REGISTRY


def test_it_is_registered():
    assert MODEL_REGISTRY.get("dqn") is DQN


def test_dueling_value_is_v_plus_centred_advantage():
    """Wang 2016, eq. 9: the mean of Q over actions is V."""
    net = DQN(4, 3, [8])
    x = torch.rand(5, 4)
    features = net.encoder(x)
    q, v, a = net(x)["logit"], net.head.V(features), net.head.A(features)
    torch.testing.assert_close(q.mean(-1, keepdim=True), v)
    torch.testing.assert_close(q - v, a - a.mean(-1, keepdim=True))


@pytest.mark.parametrize("dueling", [True, False])
def test_widths_follow_the_arguments(dueling):
    net = DQN(4, 3, [16, 8], dueling=dueling, head_hidden_size=12, head_layer_num=2)
    assert net.encoder.output_size == 12 and net(torch.rand(7, 4))["logit"].shape == (7, 3)
    stream = net.head.A if dueling else net.head.Q
    assert [m.in_features for m in stream if isinstance(m, torch.nn.Linear)] == [12, 12, 12]


def test_norm_and_activation_reach_every_part():
    net = DQN(4, 3, [8], activation="tanh", norm_type="LN")
    kinds = [type(m).__name__ for m in net.modules()]
    assert kinds.count("LayerNorm") == kinds.count("Tanh") == 3 and "ReLU" not in kinds
