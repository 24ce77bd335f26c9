"""Q-networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.config.checks import at_least, list_of, one_of, optional
from ding_like.model.template.drqn import DRQN
from ding_like.model.template.sequence import refuse_state
from ding_like.torch_utils.network.encoder import ENCODER_TYPES, make_encoder
from ding_like.torch_utils.network.mlp import ACTIVATIONS, numpy_ready, through_torch
from ding_like.torch_utils.network.q_heads import HEAD_CHECKS, make_q_head, q_output
from ding_like.utils import MODEL_REGISTRY

__all__ = ["DQN", "DRQN"]


@MODEL_REGISTRY.register("dqn")
class DQN(nn.Module):
    """Encoder and a head of Q-values, their distributions or quantiles, dueling or not. Mnih 2015; Wang 2016.

    Args:
        obs_shape: observation spec (see `torch_utils.network.encoder`).
        action_shape: number of actions A.
        encoder_hidden_size_list: layer widths of the encoder.
        dueling: separate value and advantage streams.
        head_hidden_size: width of the head; None takes the encoder's last.
        head_layer_num: hidden layers of the head.
        activation: name or module.
        norm_type: None or 'LN'.
        head_type: 'q' (values), 'distribution' (over atoms), 'quantile' or 'implicit' (fixed or sampled quantiles).
        n_atom: atoms of 'distribution'.
        v_min: the lowest of them.
        v_max: the highest.
        num_quantiles: of 'quantile'; of 'implicit', how many are sampled in learning, and averaged in acting.
        quantile_embedding_size: cosines that describe a probability to 'implicit'.
        noisy: the head's weights have learned noise, which explores. Fortunato 2018.
        encoder_type: of images: 'conv', or 'residual', the deep network of Espeholt 2018 (widths [16, 32, 32, 256]).
    """

    config_checks = {
        "encoder_hidden_size_list": list_of(at_least(1)),
        "head_hidden_size": optional(at_least(1)),
        "head_layer_num": at_least(0),
        "activation": one_of(*ACTIVATIONS, or_a=(nn.Module, type)),
        "norm_type": one_of(None, "LN"),
        "encoder_type": one_of(*ENCODER_TYPES),
        **HEAD_CHECKS,
    }

    def __init__(
        self,
        obs_shape: Any,
        action_shape: int,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        dueling: bool = True,
        head_hidden_size: int | None = None,
        head_layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        head_type: str = "q",
        n_atom: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        num_quantiles: int = 32,
        quantile_embedding_size: int = 64,
        noisy: bool = False,
        encoder_type: str = "conv",
    ) -> None:
        super().__init__()
        widths = list(encoder_hidden_size_list)
        if head_hidden_size is not None and widths and head_hidden_size != widths[-1]:
            widths.append(head_hidden_size)
        self.encoder: Any = make_encoder(obs_shape, widths, activation, norm_type, encoder_type)
        self.head: Any = make_q_head(
            head_type,
            widths[-1],
            int(action_shape),
            dueling,
            n_atom,
            v_min,
            v_max,
            num_quantiles,
            quantile_embedding_size,
            layer_num=head_layer_num,
            activation=activation,
            norm_type=norm_type,
            noisy=noisy,
        )

    def forward(self, x: Any) -> dict[str, torch.Tensor]:
        """Observations `[..., obs]` to `logit [..., A]`, the Q-values, and what else the head gives (`q_heads`)."""
        refuse_state(x, "take policy.model.type='drqn'")
        return q_output(self.head(self.encoder(x)))

    def numpy_ready(self) -> bool:
        """Whether acting may use `numpy_forward`: a plain MLP over a vector, float32, on the CPU."""
        own = type(self).forward is DQN.forward  # a subclass may compute something else
        return own and numpy_ready(self.encoder) and numpy_ready(self.head)

    def numpy_forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The `logit` of `forward`, on NumPy views of the parameters; equal to it to float32 rounding.

        A network whose parts were replaced by others without a NumPy forward runs in torch.
        """
        if x.dtype != np.float32:
            x = x.astype(np.float32)
        parts: Any = self._modules  # nn.Module's own look-up is slow
        try:
            return {"logit": parts["head"].numpy_forward(parts["encoder"].numpy_forward(x))}
        except AttributeError:
            if self.numpy_ready():  # then it is another mistake
                raise
            return through_torch(self, x)
