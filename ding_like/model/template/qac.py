"""Networks of an actor and of critics that value actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ding_like.config.checks import at_least, list_of, one_of, optional
from ding_like.model.template.sequence import Call, Memory, previous_step, refuse_state
from ding_like.model.template.vac import PARTS
from ding_like.torch_utils.network.encoder import ENCODER_TYPES, ONE_HOT, VectorInput, is_image, make_encoder
from ding_like.torch_utils.network.head import DiscreteHead, ReparameterizationHead
from ding_like.torch_utils.network.mlp import ACTIVATIONS, MLP, numpy_ready, through_torch
from ding_like.torch_utils.network.rnn import LSTM_TYPES
from ding_like.torch_utils.network.stacked import StackedMLP
from ding_like.utils import MODEL_REGISTRY

MODES = ("compute_actor", "compute_critic")
HEAD_TYPES = ("regression", "reparameterization")


@MODEL_REGISTRY.register("discrete_qac")
@MODEL_REGISTRY.register("continuous_qac")
@MODEL_REGISTRY.register("qac")
class QAC(nn.Module):
    """A policy and one or two critics of state and action, feed-forward or recurrent. Lillicrap 2016; Fujimoto 2018.

    Without `encoder_hidden_size_list` actor and critics are MLPs over the observation (and the action). With it they
    are MLPs over what encoders make of it: one for the actor and one for the critics, or one for all, which then learns
    from the critics alone (Yarats 2021).

    A recurrent critic keeps an RNN over (observation, action taken). It values an action of a step by the observation
    and by what the RNN holds of the steps before, so other actions than the one taken are valued in the same history.

    Args:
        obs_shape: observation spec (see `torch_utils.network.encoder`).
        action_shape: number of actions ('discrete'), or shape of the action ('continuous'), flattened to d dimensions.
        action_space: 'discrete' or 'continuous'.
        actor_head_type: of continuous actions: 'regression', `mu` in (-1, 1); or 'reparameterization', `mu` and
            `sigma` of a Gaussian.
        twin_critic: two critics instead of one.
        share_encoder: one encoder for all.
        encoder_hidden_size_list: layer widths of each encoder; None, for vector observations: no encoder.
        encoder_type: of images, see `make_encoder`.
        actor_head_hidden_size: width of the actor's hidden layers.
        actor_head_layer_num: number of them.
        critic_head_hidden_size: width of the critics' hidden layers.
        critic_head_layer_num: number of them.
        activation: name or module.
        norm_type: None or 'LN'.
        lstm_type: None: feed-forward. 'normal', 'hpc', 'pytorch' or 'gru' (see `get_lstm`): an RNN for the actor and
            one for the critics.
        lstm_hidden_size: width of the RNNs; None takes the encoder's last, or the actor's.
        num_layers: layers of the RNNs.
        use_prev_action: the actor's RNN also gets `prev_action` (see `PreviousStep`); the critics' has the actions.
        use_prev_reward: both RNNs also get `prev_reward`.
    """

    config_checks = {
        "action_space": one_of("discrete", "continuous"),
        "actor_head_type": one_of(*HEAD_TYPES),
        "encoder_hidden_size_list": optional(list_of(at_least(1))),
        "encoder_type": one_of(*ENCODER_TYPES),
        "actor_head_hidden_size": at_least(1),
        "actor_head_layer_num": at_least(0),
        "critic_head_hidden_size": at_least(1),
        "critic_head_layer_num": at_least(0),
        "activation": one_of(*ACTIVATIONS, or_a=(nn.Module, type)),
        "norm_type": one_of(None, "LN"),
        "lstm_type": one_of(None, *LSTM_TYPES),
        "lstm_hidden_size": optional(at_least(1)),
        "num_layers": at_least(1),
    }

    def __init__(
        self,
        obs_shape: Any,
        action_shape: Any,
        action_space: str = "continuous",
        actor_head_type: str = "reparameterization",
        twin_critic: bool = True,
        share_encoder: bool = False,
        encoder_hidden_size_list: Sequence[int] | None = None,
        encoder_type: str = "conv",
        actor_head_hidden_size: int = 256,
        actor_head_layer_num: int = 2,
        critic_head_hidden_size: int = 256,
        critic_head_layer_num: int = 2,
        activation: Any = "relu",
        norm_type: str | None = None,
        lstm_type: str | None = None,
        lstm_hidden_size: int | None = None,
        num_layers: int = 1,
        use_prev_action: bool = False,
        use_prev_reward: bool = False,
    ) -> None:
        super().__init__()
        if action_space not in ("discrete", "continuous") or actor_head_type not in HEAD_TYPES:
            raise ValueError(
                f"action_space is {action_space!r} and actor_head_type {actor_head_type!r}; wanted 'discrete' or "
                f"'continuous', and one of {list(HEAD_TYPES)}"
            )
        self.action_space, self.action_size = action_space, int(np.prod(action_shape))
        self.squashes = action_space == "continuous" and actor_head_type == "reparameterization"
        self.share_encoder, self.lstm_type = share_encoder, lstm_type
        names = ("encoder",) if share_encoder else ("actor_encoder", "critic_encoder")
        for name in names:
            encoder = _encoder(obs_shape, encoder_hidden_size_list, activation, norm_type, encoder_type)
            setattr(self, name, encoder)
        self._encoders = dict(zip(PARTS, (names[0], names[-1])))
        features: Any = encoder.output_size
        width = lstm_hidden_size or (encoder_hidden_size_list or [actor_head_hidden_size])[-1]
        acted, valued = self._remember(features, width, num_layers, use_prev_action, use_prev_reward)
        memory = lstm_hidden_size, num_layers, use_prev_action, use_prev_reward
        if lstm_type is None and memory != (None, 1, False, False):
            raise ValueError(
                "lstm_hidden_size, num_layers, use_prev_action and use_prev_reward are for a recurrent network; "
                f"set lstm_type to one of {sorted(LSTM_TYPES)}, or leave them out"
            )
        self.actor_trunk = MLP([acted, *[actor_head_hidden_size] * actor_head_layer_num], activation, norm_type)
        self.actor_head = self._actor_head(self.actor_trunk.output_size, actor_head_type)
        outputs = self.action_size if action_space == "discrete" else 1
        sizes = [valued, *[critic_head_hidden_size] * critic_head_layer_num, outputs]
        self.critic_head = StackedMLP(2 if twin_critic else 1, sizes, activation, norm_type)

    def _remember(self, features: int, width: int, layers: int, *previous: bool) -> tuple[int, int]:
        """Adds the memories that `lstm_type` asks for. Returns the sizes of what the heads of the actor and the critics
        get.
        """
        valued = features + (self.action_size if self.action_space == "continuous" else 0)
        if self.lstm_type is None:
            return features, valued
        action, reward = previous
        shape = self.action_size, self.action_space
        self.actor_memory = Memory(features, width, self.lstm_type, layers, previous_step(*shape, action, reward))
        self.critic_previous = previous_step(*shape, False, reward)
        self.critic_memory = Memory(features + reward + self.action_size, width, self.lstm_type, layers, None)
        return width, valued + reward + width

    def _actor_head(self, width: int, kind: str) -> Any:
        if self.action_space == "discrete":
            return DiscreteHead(width, self.action_size, 0)
        if kind == "regression":
            return ReparameterizationHead(width, self.action_size, 0, sigma_type="fixed", bound_type="tanh")
        return ReparameterizationHead(width, self.action_size, 0, sigma_type="conditioned")

    @property
    def actor(self) -> nn.ModuleList:
        """What the policy's loss trains: all of the actor but a shared encoder."""
        return self._parts("actor", "actor_memory", "actor_trunk", "actor_head")

    @property
    def critic(self) -> nn.ModuleList:
        """What the critics' loss trains."""
        return self._parts("critic", "critic_memory", "critic_head")

    def _parts(self, part: str, *names: str) -> nn.ModuleList:
        own = [] if self.share_encoder and part == "actor" else [self._encoders[part]]
        return nn.ModuleList(getattr(self, name) for name in (*own, *names) if name in self._modules)

    @property
    def initial_state(self) -> Callable[[int], Any]:
        """Of a recurrent network alone: the state of B columns before their first step, leaves `[B, layers, H]`, as
        `{'actor': ..., 'critic': ...}`.
        """
        if self.lstm_type is None:
            raise AttributeError("initial_state")
        return self._initial_state

    def _initial_state(self, batch: int) -> dict[str, Any]:
        return {part: getattr(self, f"{part}_memory").rnn.initial_state(batch) for part in PARTS}

    def numpy_initial_state(self, batch: int) -> dict[str, Any]:
        """`initial_state` for `numpy_forward`."""
        return {part: getattr(self, f"{part}_memory").rnn.numpy_initial_state(batch) for part in PARTS}

    def forward(
        self,
        x: Any,
        mode: str = "compute_actor",
        inference: bool = False,
        saved_hidden_state_timesteps: Sequence[int] | None = None,
        critic_num: int | None = None,
    ) -> dict[str, Any]:
        """'compute_actor': `logit` of observations `[..., obs]`; 'compute_critic': `q_value` of `{'obs', 'action'}`.

        `logit` is `[..., A]` for 'discrete', else `{'mu': [..., d]}`, with `sigma` for 'reparameterization'. `q_value`
        is `[K, ...]` of K critics (`[2, ...]` for twins), for 'discrete' `[K, ..., A]`; with `critic_num` of so many.

        A recurrent network takes and gives what `DRQN.forward` does. Of 'compute_critic' `action` are then those taken;
        `candidate`, where given, are those that `q_value` is of. The state of the part that is not asked stays as it
        was, but for cuts. Raises ValueError or TypeError for another mode or inputs that do not fit.
        """
        _check_mode(mode)
        if self.lstm_type is not None:
            return self._recurrent(Call(x, inference, saved_hidden_state_timesteps), mode, critic_num)
        refuse_state(x, f"set policy.model.lstm_type to one of {sorted(LSTM_TYPES)}")
        if mode == "compute_actor":
            return {"logit": self._logit(self._features("actor", x))}
        _check_action(x)
        return {"q_value": self._q_value(self._features("critic", x["obs"]), x["action"], critic_num)}

    def _features(self, part: str, obs: Any) -> torch.Tensor:
        features = getattr(self, self._encoders[part])(obs)
        return features.detach() if self.share_encoder and part == "actor" else features

    def _logit(self, features: torch.Tensor) -> Any:
        logit = self.actor_head(self.actor_trunk(features))
        return {"mu": logit["mu"]} if self.action_space == "continuous" and not self.squashes else logit

    def _q_value(self, features: torch.Tensor, action: torch.Tensor, count: int | None = None) -> torch.Tensor:
        if self.action_space == "discrete":
            return self.critic_head(features, count)  # [K, ..., A]
        inputs = torch.cat([features, self._checked(action, features)], -1)
        return self.critic_head(inputs, count).squeeze(-1)  # [K, ...]

    def _checked(self, action: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Actions as numbers `[..., size]`, one-hot where discrete."""
        lead = features.shape[:-1]
        wanted = lead if self.action_space == "discrete" else (*lead, self.action_size)
        if action.shape != wanted:
            raise ValueError(f"action has shape {tuple(action.shape)}; wanted {tuple(wanted)}")
        if self.action_space == "discrete":
            action = F.one_hot(action, self.action_size)
        return action.to(features.dtype)

    def _recurrent(self, call: Call, mode: str, count: int | None) -> dict[str, Any]:
        asked, other = PARTS if mode == "compute_actor" else PARTS[::-1]
        given = call.part(asked, PARTS)
        features, output = self._features(asked, call.obs), {}
        if asked == "actor":
            hidden, state, saved = self.actor_memory(features, call, given)
            output["logit"] = self._logit(hidden)
        else:
            if self.critic_previous is not None:
                features = self.critic_previous(features, call.inputs)
            _check_action(call.inputs)
            action: Any = call.inputs["action"]
            seen = torch.cat([features, self._checked(action, features)], -1)
            hidden, state, saved = self.critic_memory(seen, call, given)
            known = torch.cat([features, self._before(hidden, call, given)], -1)  # [..., F + H]
            output["q_value"] = self._q_value(known, call.inputs.get("candidate", action), count)
        idle = getattr(self, f"{other}_memory").idle(call, call.part(other, PARTS), features.shape[-2])
        states, after = {asked: state, other: idle[0]}, {asked: saved, other: idle[1]}
        saves = [dict(zip(PARTS, pair)) for pair in zip(*(after[part] for part in PARTS))]
        return call.output(output, {part: states[part] for part in PARTS}, saves)

    def _before(self, hidden: torch.Tensor, call: Call, given: Any) -> torch.Tensor:
        """What the critics' RNN put out before each step: `[B, H]`, or `[T, B, H]` of an unroll."""
        first = self.critic_memory.rnn.adopt(given, hidden.shape[-2])["h"][:, -1]  # [B, H]
        if call.inference:
            return first
        before = torch.cat([first[None], hidden[:-1]])
        if call.cut is None:
            return before
        begins = torch.as_tensor(call.cut, device=hidden.device)[:-1].eq(0).unsqueeze(-1)  # [T - 1, B, 1]
        return torch.cat([before[:1], before[1:].masked_fill(begins, 0.0)])

    def numpy_ready(self) -> bool:
        """Whether acting may use `numpy_forward`: plain MLPs over a vector, float32, on the CPU."""
        names = "forward", "initial_state", "_initial_state"
        own = all(getattr(type(self), name) is getattr(QAC, name) for name in names)  # a subclass may do something else
        acting = [*self._encoders.values(), "actor_trunk", "actor_head", *(["critic_memory"] if self.lstm_type else [])]
        told = getattr(self, "critic_previous", None) is not None
        return own and not told and all(numpy_ready(self._modules[name]) for name in acting)

    def numpy_forward(self, x: Any, mode: str = "compute_actor") -> dict[str, Any]:
        """As `forward` of one step, on NumPy views of the parameters; equal to it to float32 rounding.

        Of 'compute_critic' a recurrent network gives its `next_state` alone, which is what acting needs. A network
        whose parts have no NumPy form, or were replaced by such, runs in torch.
        """
        _check_mode(mode)
        call = None if self.lstm_type is None else Call(x, True)
        parts: Any = self._modules  # nn.Module's own look-up is slow
        try:
            if call is not None:
                return self._numpy_step(call, mode)
            features = parts[self._encoders["actor"]].numpy_forward(np.asarray(x, np.float32))
            return {"logit": self._numpy_logit(features)}
        except (AttributeError, RuntimeError):
            if self.numpy_ready():  # then it is another mistake
                raise
            return through_torch(self, x, mode=mode, **({} if call is None else {"inference": True}))

    def _numpy_logit(self, features: np.ndarray) -> Any:
        parts: Any = self._modules
        logit = parts["actor_head"].numpy_forward(parts["actor_trunk"].numpy_forward(features))
        return {"mu": logit["mu"]} if self.action_space == "continuous" and not self.squashes else logit

    def _numpy_step(self, call: Call, mode: str) -> dict[str, Any]:
        parts: Any = self._modules
        asked = PARTS[MODES.index(mode)]
        obs = np.asarray(call.obs, np.float32)
        fresh = None if call.state is not None else self.numpy_initial_state(len(obs))
        states = {part: call.part(part, PARTS) if fresh is None else fresh[part] for part in PARTS}
        features = parts[self._encoders[asked]].numpy_forward(obs)
        if asked == "critic":
            action = call.inputs["action"]
            taken = np.eye(self.action_size, dtype=np.float32)[action] if self.action_space == "discrete" else action
            features = np.concatenate([features, taken], -1)
        hidden, states[asked] = parts[f"{asked}_memory"].numpy_forward(features, states[asked])
        output: dict[str, Any] = {"next_state": states}
        if asked == "actor":
            output["logit"] = self._numpy_logit(hidden)
        return output


class VectorObs(VectorInput):
    """A vector observation as it is, in the place of an encoder."""

    def numpy_ready(self) -> bool:
        """Whether `numpy_forward` may be used: a rank-1 Box."""
        return self.one_hot is None and len(self.shape) == 1

    def numpy_forward(self, x: np.ndarray) -> np.ndarray:
        """The observation itself."""
        return x


def _encoder(spec: Any, widths: Sequence[int] | None, activation: Any, norm_type: str | None, kind: str) -> Any:
    if widths is not None:
        return make_encoder(spec, list(widths), activation, norm_type, kind)
    if is_image(spec) or (isinstance(spec, dict) and ONE_HOT not in spec):
        raise ValueError(
            f"encoder_hidden_size_list is None and the observation is {spec!r}; wanted layer widths of an encoder, "
            "such as [32, 64, 64, 256] for images or [256] for a dictionary of vectors"
        )
    return VectorObs(spec)


def _check_action(inputs: Any) -> None:
    if not isinstance(inputs, dict) or "obs" not in inputs or "action" not in inputs:
        got = f"a dictionary of {list(inputs)}" if isinstance(inputs, dict) else f"a {type(inputs).__name__}"
        raise TypeError(f"mode 'compute_critic' got {got}; wanted {{'obs': ..., 'action': ...}}")


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; wanted one of {list(MODES)}")
