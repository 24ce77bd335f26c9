"""Recurrent Q-network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.config.checks import at_least, list_of, one_of, optional
from ding_like.model.template.sequence import Call, Memory, previous_step
from ding_like.torch_utils.network.encoder import ENCODER_TYPES, make_encoder
from ding_like.torch_utils.network.mlp import ACTIVATIONS, numpy_ready, through_torch
from ding_like.torch_utils.network.q_heads import HEAD_CHECKS, make_q_head, q_output
from ding_like.torch_utils.network.rnn import LSTM_TYPES
from ding_like.utils import MODEL_REGISTRY


@MODEL_REGISTRY.register("drqn")
class DRQN(nn.Module):
    """Encoder, RNN and a head of Q-values, distributions or quantiles. Hausknecht 2015; Kapturowski 2019.

    Args:
        obs_shape: observation spec (see `torch_utils.network.encoder`).
        action_shape: number of actions A.
        encoder_hidden_size_list: layer widths of the encoder.
        dueling: separate value and advantage streams.
        head_hidden_size: width H of the RNN and the head; None takes the encoder's last.
        head_layer_num: hidden layers of the head.
        lstm_type: 'normal' (LayerNorm LSTM), 'hpc' (the same numbers, faster), 'pytorch' (LSTM) or 'gru'.
        activation: name or module.
        norm_type: None or 'LN', of encoder and head.
        res_link: the head gets the sum of the RNN's and the encoder's output.
        num_layers: layers of the RNN.
        use_prev_action: the RNN also gets `prev_action`, one-hot; -1 stands for none.
        use_prev_reward: the RNN also gets `prev_reward`.
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
        "lstm_type": one_of(*LSTM_TYPES),
        "activation": one_of(*ACTIVATIONS, or_a=(nn.Module, type)),
        "norm_type": one_of(None, "LN"),
        "num_layers": at_least(1),
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
        lstm_type: str = "normal",
        activation: Any = "relu",
        norm_type: str | None = None,
        res_link: bool = False,
        num_layers: int = 1,
        use_prev_action: bool = False,
        use_prev_reward: bool = False,
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
        self.encoder: Any = make_encoder(obs_shape, list(encoder_hidden_size_list), activation, norm_type, encoder_type)
        size: Any = self.encoder.output_size
        hidden = size if head_hidden_size is None else head_hidden_size
        if res_link and hidden != size:
            raise ValueError(
                f"head_hidden_size is {hidden}, the encoder's last width {size}; wanted the same number, since "
                "res_link adds the two outputs"
            )
        self.res_link = res_link
        previous = previous_step(int(action_shape), "discrete", use_prev_action, use_prev_reward)
        self.memory = Memory(size, hidden, lstm_type, num_layers, previous)
        self.head: Any = make_q_head(
            head_type,
            hidden,
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

    def initial_state(self, batch: int) -> dict[str, torch.Tensor]:
        """The state of `batch` columns before their first step, leaves `[B, layers, H]`."""
        return self.memory.rnn.initial_state(batch)

    def numpy_initial_state(self, batch: int) -> dict[str, np.ndarray]:
        """`initial_state` for `numpy_forward`."""
        return self.memory.rnn.numpy_initial_state(batch)

    def forward(
        self,
        inputs: dict[str, Any],
        inference: bool = False,
        saved_hidden_state_timesteps: Sequence[int] | None = None,
        saved_state_timesteps: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Q-values `logit`, what else the head gives (`q_heads`), and `next_state`: of one step, or of an unroll with a
        call each of encoder and head.

        Args:
            inputs: see `Call`; other keys (`enable_fast_timestep`) are ignored.
            inference: one step, obs `[B, ...]` and logit `[B, A]`; else obs `[T, B, ...]` and logit `[T, B, A]`.
            saved_hidden_state_timesteps: makes `saved_hidden_state` (alias `saved_state`), a list by position of the
                states after so many steps; 0 is the given one. Alias `saved_state_timesteps`.
        """
        asked = saved_state_timesteps if saved_hidden_state_timesteps is None else saved_hidden_state_timesteps
        call = Call(inputs, inference, asked)
        features = self.encoder(call.obs)
        hidden, state, saved = self.memory(features, call, call.state)
        if self.res_link:
            hidden = hidden + features
        return call.output(q_output(self.head(hidden)), state, saved)

    def numpy_ready(self) -> bool:
        """Whether acting may use `numpy_forward`: a plain MLP over a vector, float32, on the CPU.

        A subclass that computes something else may not.
        """
        own = all(getattr(type(self), name) is getattr(DRQN, name) for name in ("forward", "initial_state"))
        return own and all(numpy_ready(part) for part in self.children())

    def numpy_forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """`logit` and `next_state` of one step of `forward`, in arrays; equal to it to float32 rounding.

        A network whose parts have no NumPy form, or were replaced by such, runs in torch.
        """
        call = Call(inputs, True)
        parts: Any = self._modules  # nn.Module's own look-up is slow
        try:
            features = parts["encoder"].numpy_forward(np.asarray(call.obs, np.float32))
            hidden, state = parts["memory"].numpy_forward(features, call.state)
            if self.res_link:
                hidden = hidden + features
            return {"logit": parts["head"].numpy_forward(hidden), "next_state": state}
        except (AttributeError, RuntimeError):
            if self.numpy_ready():  # then it is another mistake
                raise
            return through_torch(self, inputs, inference=True)
