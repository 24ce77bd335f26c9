"""Actor-critic networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import nn

from ding_like.config.checks import at_least, list_of, one_of, optional, positive
from ding_like.model.template.sequence import Call, Memory, previous_step, refuse_state
from ding_like.torch_utils.network.encoder import ENCODER_TYPES, make_encoder
from ding_like.torch_utils.network.head import (
    SIGMA_TYPES,
    DiscreteHead,
    MultiDiscreteHead,
    ReparameterizationHead,
    ValueHead,
)
from ding_like.torch_utils.network.image import ResidualBlock
from ding_like.torch_utils.network.mlp import ACTIVATIONS, numpy_ready, through_torch
from ding_like.torch_utils.network.rnn import LSTM_TYPES
from ding_like.utils import MODEL_REGISTRY

PARTS = ("actor", "critic")
ACTION_SPACES = ("discrete", "multi_discrete", "continuous")
MODES = {  # name -> whether the actor and the critic are asked
    "compute_actor": (True, False),
    "compute_critic": (False, True),
    "compute_actor_critic": (True, True),
}


@MODEL_REGISTRY.register("vac")
class VAC(nn.Module):
    """A policy and a state value, with one encoder for both or two, feed-forward or recurrent. Mnih 2016.

    `encoder_hidden_size_list=[64, 64]`, both head layer numbers 0, `share_encoder=False` and `activation='tanh'` make
    the two separate networks usual for vector observations.

    Args:
        obs_shape: observation spec (see `torch_utils.network.encoder`).
        action_shape: number of actions ('discrete'), list of such numbers ('multi_discrete'), or shape of the action
            ('continuous'), which is flattened to d dimensions.
        action_space: 'discrete', 'multi_discrete' or 'continuous'.
        share_encoder: one encoder for actor and critic.
        encoder_hidden_size_list: layer widths of each encoder.
        encoder_type: of images: 'conv', or 'residual', the deep network of Espeholt 2018 (widths [16, 32, 32, 256]).
        actor_head_hidden_size: width of the actor's head; None takes the encoder's last.
        actor_head_layer_num: hidden layers of the actor's head.
        critic_head_hidden_size: width of the critic's head; None takes the encoder's last.
        critic_head_layer_num: hidden layers of the critic's head.
        activation: name or module.
        norm_type: None or 'LN'.
        sigma_type: deviation of continuous actions: 'independent' (learned, the same in every state), 'conditioned'
            (computed from the state) or 'fixed'.
        fixed_sigma_value: the deviation of 'fixed'.
        init_sigma: the deviation that the others start from.
        bound_type: None, or 'tanh' to keep mu inside (-1, 1).
        orthogonal_init: orthogonal weights (gain sqrt(2), 0.01 for the policy's output, 1 for the value's) and zero
            biases; False keeps torch's. RNNs and residual blocks keep theirs.
        lstm_type: None: feed-forward. 'normal', 'hpc', 'pytorch' or 'gru' (see `get_lstm`): an RNN after the encoder,
            one for both or two as the encoders are.
        lstm_hidden_size: width of the RNN; None takes the encoder's last.
        num_layers: layers of the RNN.
        use_prev_action: the RNN also gets `prev_action` (see `PreviousStep`).
        use_prev_reward: the RNN also gets `prev_reward`.
        aux_value_head: a second value, of the actor's own features: `aux_value [...]` beside `logit` and `value`. Cobbe
            2020; it wants `share_encoder=False`.
    """

    values_actions = False  # its critic is of states alone
    config_checks = {
        "action_space": one_of(*ACTION_SPACES),
        "encoder_hidden_size_list": list_of(at_least(1)),
        "encoder_type": one_of(*ENCODER_TYPES),
        "actor_head_hidden_size": optional(at_least(1)),
        "actor_head_layer_num": at_least(0),
        "critic_head_hidden_size": optional(at_least(1)),
        "critic_head_layer_num": at_least(0),
        "activation": one_of(*ACTIVATIONS, or_a=(nn.Module, type)),
        "norm_type": one_of(None, "LN"),
        "sigma_type": one_of(*SIGMA_TYPES),
        "fixed_sigma_value": positive,
        "init_sigma": positive,
        "bound_type": one_of(None, "tanh"),
        "lstm_type": one_of(None, *LSTM_TYPES),
        "lstm_hidden_size": optional(at_least(1)),
        "num_layers": at_least(1),
    }

    def __init__(
        self,
        obs_shape: Any,
        action_shape: Any,
        action_space: str = "discrete",
        share_encoder: bool = True,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        actor_head_hidden_size: int | None = None,
        actor_head_layer_num: int = 1,
        critic_head_hidden_size: int | None = None,
        critic_head_layer_num: int = 1,
        activation: Any = "relu",
        norm_type: str | None = None,
        sigma_type: str = "independent",
        fixed_sigma_value: float = 0.3,
        init_sigma: float = 1.0,
        bound_type: str | None = None,
        orthogonal_init: bool = True,
        lstm_type: str | None = None,
        lstm_hidden_size: int | None = None,
        num_layers: int = 1,
        use_prev_action: bool = False,
        use_prev_reward: bool = False,
        encoder_type: str = "conv",
        aux_value_head: bool = False,
    ) -> None:
        super().__init__()
        _check_widths("actor", actor_head_hidden_size, actor_head_layer_num)
        _check_widths("critic", critic_head_hidden_size, critic_head_layer_num)
        shape = _action_shape(action_shape, action_space)
        self.action_space, self.share_encoder = action_space, share_encoder
        names = ("encoder",) if share_encoder else ("actor_encoder", "critic_encoder")
        for name in names:
            widths = list(encoder_hidden_size_list)
            setattr(self, name, make_encoder(obs_shape, widths, activation, norm_type, encoder_type))
        self._encoders = names[0], names[-1]
        hidden = getattr(self, names[0]).output_size
        self.lstm_type = lstm_type
        previous = shape, action_space, use_prev_action, use_prev_reward
        hidden = self._remember(hidden, lstm_hidden_size, num_layers, previous)
        actor = (hidden, shape, actor_head_layer_num, activation, norm_type)
        self.actor_head: Any
        if action_space == "discrete":
            self.actor_head = DiscreteHead(*actor, width=actor_head_hidden_size)
        elif action_space == "multi_discrete":
            self.actor_head = MultiDiscreteHead(*actor, width=actor_head_hidden_size)
        else:
            sigma = (sigma_type, fixed_sigma_value, init_sigma, bound_type)
            self.actor_head = ReparameterizationHead(*actor, *sigma, width=actor_head_hidden_size)
        self.critic_head: Any = ValueHead(
            hidden, critic_head_layer_num, activation, norm_type, width=critic_head_hidden_size
        )
        if aux_value_head and share_encoder:
            raise ValueError(
                "aux_value_head is True and share_encoder too; wanted share_encoder=False: the features of a "
                "shared encoder give a value already"
            )
        self.aux_head: Any = ValueHead(hidden, 0, activation) if aux_value_head else None
        if orthogonal_init:
            self._orthogonal()

    def _remember(self, features: int, hidden: int | None, layers: int, previous: tuple) -> int:
        """Adds the memories that `lstm_type` asks for. Returns the size of what the heads get."""
        if self.lstm_type is None:
            if hidden is not None or layers != 1 or any(previous[2:]):
                raise ValueError(
                    "lstm_hidden_size, num_layers, use_prev_action and use_prev_reward are for a recurrent network; "
                    f"set lstm_type to one of {sorted(LSTM_TYPES)}, or leave them out"
                )
            self._memories: tuple[str, ...] = ()
            return features
        size = features if hidden is None else hidden
        self._memories = ("memory",) if self.share_encoder else ("actor_memory", "critic_memory")
        for name in self._memories:
            setattr(self, name, Memory(features, size, self.lstm_type, layers, previous_step(*previous)))
        return size

    @property
    def actor(self) -> nn.ModuleList:
        """Encoder, memory where recurrent, and head of the policy."""
        names = self._encoders[0], *self._memories[:1], "actor_head"
        return nn.ModuleList(getattr(self, name) for name in names)

    @property
    def critic(self) -> nn.ModuleList:
        """Encoder, memory where recurrent, and head of the value."""
        names = self._encoders[1], *self._memories[-1:], "critic_head"
        return nn.ModuleList(getattr(self, name) for name in names)

    @property
    def initial_state(self) -> Callable[[int], Any]:
        """Of a recurrent network alone: the state of B columns before their first step, leaves `[B, layers, H]`.

        With separate encoders it is `{'actor': ..., 'critic': ...}`.
        """
        if self.lstm_type is None:
            raise AttributeError("initial_state")
        return self._initial_state

    def _initial_state(self, batch: int) -> Any:
        states = [getattr(self, name).rnn.initial_state(batch) for name in self._memories]
        return states[0] if self.share_encoder else dict(zip(PARTS, states))

    def numpy_initial_state(self, batch: int) -> Any:
        """`initial_state` for `numpy_forward`."""
        states = [getattr(self, name).rnn.numpy_initial_state(batch) for name in self._memories]
        return states[0] if self.share_encoder else dict(zip(PARTS, states))

    def forward(
        self,
        x: Any,
        mode: str = "compute_actor_critic",
        inference: bool = False,
        saved_hidden_state_timesteps: Sequence[int] | None = None,
        saved_state_timesteps: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Observations `[..., obs]` to the outputs that `mode` asks for.

        `logit` ('compute_actor', 'compute_actor_critic'): `[..., A]`; a tuple of such tensors for 'multi_discrete';
        `{'mu': [..., d], 'sigma': [..., d]}` for 'continuous'. `value [...]` ('compute_critic',
        'compute_actor_critic'); with both, `aux_value [...]` where it has an `aux_value_head`, but not in NumPy. Raises
        ValueError for another mode.

        A recurrent network takes `x`, the other arguments and gives `next_state` and saved states as `DRQN.forward`
        does. The state of a memory that `mode` does not ask stays as it was, but for cuts.
        """
        with_actor, with_critic = _asked(mode)
        if self._memories:
            asked = saved_state_timesteps if saved_hidden_state_timesteps is None else saved_hidden_state_timesteps
            return self._recurrent(Call(x, inference, asked), with_actor, with_critic)
        refuse_state(x, f"set policy.model.lstm_type to one of {sorted(LSTM_TYPES)}")
        parts: Any = self._modules
        own, other = self._encoders
        output, features = {}, None
        if with_actor:
            features = parts[own](x)
            output["logit"] = parts["actor_head"](features)
        if with_critic:
            if with_actor and self.aux_head is not None:
                output["aux_value"] = self.aux_head(features)
            if features is None or own != other:
                features = parts[other](x)
            output["value"] = parts["critic_head"](features)
        return output

    def _recurrent(self, call: Call, with_actor: bool, with_critic: bool) -> dict[str, Any]:
        parts: Any = self._modules
        if self.share_encoder:
            hidden, state, saved = parts["memory"](parts["encoder"](call.obs), call, call.state)
            actor = critic = hidden
        else:
            actor, critic, state, saved = self._apart(call, with_actor, with_critic)
        output = {}
        if with_actor:
            output["logit"] = parts["actor_head"](actor)
        if with_critic:
            output["value"] = parts["critic_head"](critic)
            if with_actor and self.aux_head is not None:
                output["aux_value"] = self.aux_head(actor)
        return call.output(output, state, saved)

    def _apart(self, call: Call, *asked: bool) -> tuple[Any, Any, dict[str, Any], list]:
        """What the heads get (None for one not asked), the state and the saved states of two memories."""
        hidden, states, saved = (dict[str, Any](dict.fromkeys(PARTS)) for _ in range(3))
        for i in sorted((0, 1), key=lambda i: not asked[i]):  # who is asked comes first: it knows the columns
            part, memory = PARTS[i], getattr(self, self._memories[i])
            given = call.part(part, PARTS)
            if asked[i]:
                features = getattr(self, self._encoders[i])(call.obs)
                hidden[part], states[part], saved[part] = memory(features, call, given)
            else:
                states[part], saved[part] = memory.idle(call, given, features.shape[-2])
        after = [dict(zip(PARTS, pair)) for pair in zip(saved["actor"], saved["critic"])]
        return hidden["actor"], hidden["critic"], states, after

    def numpy_ready(self) -> bool:
        """Whether acting may use `numpy_forward`: plain MLPs over a vector, float32, on the CPU."""
        names = "forward", "initial_state", "_initial_state"
        own = all(getattr(type(self), name) is getattr(VAC, name) for name in names)  # a subclass may do something else
        return own and all(numpy_ready(part) for part in self.children())

    def numpy_forward(self, x: Any, mode: str = "compute_actor_critic") -> dict[str, Any]:
        """As `forward` for `[B, obs]`, on NumPy views of the parameters; equal to it to float32 rounding.

        A recurrent network takes `{'obs': ..., 'prev_state': ...}` for one step. One whose parts have no NumPy form, or
        were replaced by such, runs in torch.
        """
        with_actor, with_critic = _asked(mode)
        call = Call(x, True) if self._memories else None
        parts: Any = self._modules  # nn.Module's own look-up is slow
        own, other = self._encoders
        output, features = {}, None
        try:
            if call is not None:
                return self._numpy_step(call, with_actor, with_critic)
            if x.dtype != np.float32:
                x = x.astype(np.float32)
            if with_actor:
                features = parts[own].numpy_forward(x)
                output["logit"] = parts["actor_head"].numpy_forward(features)
            if with_critic:
                if features is None or own != other:
                    features = parts[other].numpy_forward(x)
                output["value"] = parts["critic_head"].numpy_forward(features)
        except (AttributeError, RuntimeError):
            if self.numpy_ready():  # then it is another mistake
                raise
            return through_torch(self, x, mode=mode, **({} if call is None else {"inference": True}))
        return output

    def _numpy_step(self, call: Call, *asked: bool) -> dict[str, Any]:
        parts: Any = self._modules
        obs = np.asarray(call.obs, np.float32)
        states, hidden = dict[str, Any](), dict[str, Any]()
        if self.share_encoder:
            features = parts["encoder"].numpy_forward(obs)
            hidden["actor"], state = parts["memory"].numpy_forward(features, call.state)
            hidden["critic"] = hidden["actor"]
        else:
            for part, encoder, memory, wanted in zip(PARTS, self._encoders, self._memories, asked):
                state = call.part(part, PARTS)
                if wanted:
                    features = parts[encoder].numpy_forward(obs)
                    hidden[part], state = parts[memory].numpy_forward(features, state)
                elif state is None:
                    state = parts[memory].rnn.numpy_initial_state(len(obs))
                states[part] = state
            state = states
        output: dict[str, Any] = {"next_state": state}
        if asked[0]:
            output["logit"] = parts["actor_head"].numpy_forward(hidden["actor"])
        if asked[1]:
            output["value"] = parts["critic_head"].numpy_forward(hidden["critic"])
        return output

    def _orthogonal(self) -> None:
        # Six residual blocks of gain sqrt(2) would make features twenty times as large as those of a plain network.
        kept = {part for block in self.modules() if isinstance(block, ResidualBlock) for part in block.modules()}
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)) and module not in kept:
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for stream in self.actor_head.children():
            nn.init.orthogonal_(stream[-1].weight, 0.01)
        for head in (self.critic_head, *([] if self.aux_head is None else [self.aux_head])):
            nn.init.orthogonal_(head.V[-1].weight, 1.0)


def _asked(mode: str) -> tuple[bool, bool]:
    try:
        return MODES[mode]
    except (KeyError, TypeError):
        raise ValueError(f"mode is {mode!r}; wanted one of {list(MODES)}") from None


def _action_shape(shape: Any, space: str) -> Any:
    """What the head is told: A, [A, ...] or d. Raises ValueError for a shape that does not fit the space."""
    if space not in ACTION_SPACES:
        raise ValueError(f"action_space is {space!r}; wanted one of {list(ACTION_SPACES)}")
    several = isinstance(shape, (Sequence, np.ndarray))
    sizes = list(shape) if several else [shape]
    fits = {"discrete": not several, "multi_discrete": several, "continuous": True}[space]
    if not fits or not sizes or not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
        wanted = {
            "discrete": "a number of actions",
            "multi_discrete": "a list with the number of choices of each action",
            "continuous": "the action's size or shape",
        }[space]
        raise ValueError(f"action_shape is {shape!r}; wanted {wanted}, since action_space is '{space}'")
    if space == "multi_discrete":
        return [int(n) for n in sizes]
    return int(np.prod(sizes))


def _check_widths(part: str, width: int | None, layers: int) -> None:
    if width is not None and layers == 0:
        raise ValueError(
            f"{part}_head_hidden_size is {width}, but the head has no hidden layer: leave it out or set "
            f"{part}_head_layer_num to 1 or more"
        )
