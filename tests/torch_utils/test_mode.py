"""Which networks differ between train and eval mode."""

import pytest
from torch import nn

from ding_like.model.normalizer import NormalizedModel
from ding_like.model.template.q_learning import DQN
from ding_like.torch_utils.mode import has_train_mode


class Own(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize("net", [DQN(4, 2), DQN([1, 8, 8], 2, [4, 8]), NormalizedModel(DQN(4, 2), 4)])
def test_built_in_networks_have_one_mode(net):
    assert not has_train_mode(net)


@pytest.mark.parametrize("part", [nn.Dropout(), nn.BatchNorm1d(3), nn.LSTM(2, 2, 2, dropout=0.5), Own()])
def test_dropout_batch_norm_and_unknown_modules_have_two(part):
    assert has_train_mode(nn.Sequential(nn.Linear(2, 2), part))
