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
from ding_like.torch_utils.network.encoder import make_encoder
from ding_like.torch_utils.network.head import DiscreteHead, DuelingHead
from ding_like.torch_utils.network.mlp import ACTIVATIONS, numpy_ready, through_torch
from ding_like.utils import MODEL_REGISTRY

__all__ = ["DQN", "DRQN"]


@MODEL_REGISTRY.register("dqn")
class DQN(nn.Module):
    """Encoder and a discrete head, dueling or not. Mnih 2015; Wang 2016.

    Args:
        obs_shape: observation spec (see `torch_utils.network.encoder`).
        action_shape: number of actions A.
        encoder_hidden_size_list: layer widths of the encoder.
        dueling: separate value and advantage streams.
        head_hidden_size: width of the head; None takes the encoder's last.
        head_layer_num: hidden layers of the head.
        activation: name or module.
        norm_type: None or 'LN'.
    """

    config_checks = {
        "encoder_hidden_size_list": list_of(at_least(1)),
        "head_hidden_size": optional(at_least(1)),
        "head_layer_num": at_least(0),
        "activation": one_of(*ACTIVATIONS, or_a=(nn.Module, type)),
        "norm_type": one_of(None, "LN"),
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
    ) -> None:
        super().__init__()
        widths = list(encoder_hidden_size_list)
        if head_hidden_size is not None and widths and head_hidden_size != widths[-1]:
            widths.append(head_hidden_size)
        self.encoder: Any = make_encoder(obs_shape, widths, activation, norm_type)
        head = DuelingHead if dueling else DiscreteHead
        self.head: Any = head(widths[-1], int(action_shape), head_layer_num, activation, norm_type)

    def forward(self, x: Any) -> dict[str, torch.Tensor]:
        """Observations `[..., obs]` to `logit [..., A]`, the Q-values."""
        refuse_state(x, "take policy.model.type='drqn'")
        return {"logit": self.head(self.encoder(x))}

    def numpy_ready(self) -> bool:
        """Whether acting may use `numpy_forward`: a plain MLP over a vector, float32, on the CPU."""
        own = type(self).forward is DQN.forward  # a subclass may compute something else
        return own and numpy_ready(self.encoder) and numpy_ready(self.head)

    def numpy_forward(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """As `forward`, on NumPy views of the parameters; equal to it to float32 rounding.

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
