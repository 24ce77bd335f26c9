"""Networks and optimisers."""

from ding_like.torch_utils.network.encoder import DictEncoder, VectorEncoder, make_encoder
from ding_like.torch_utils.network.head import DiscreteHead, DuelingHead
from ding_like.torch_utils.network.image import ConvEncoder, ResidualEncoder
from ding_like.torch_utils.network.mlp import MLP
from ding_like.torch_utils.network.rnn import get_lstm, sequence_mask
from ding_like.torch_utils.network.words import WordEncoder
from ding_like.torch_utils.optimizer import FlatOptimizer

__all__ = [
    "MLP",
    "ConvEncoder",
    "DictEncoder",
    "DiscreteHead",
    "DuelingHead",
    "FlatOptimizer",
    "ResidualEncoder",
    "VectorEncoder",
    "WordEncoder",
    "get_lstm",
    "make_encoder",
    "sequence_mask",
]
