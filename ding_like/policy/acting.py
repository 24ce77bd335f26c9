"""Acting: observations to actions, through NumPy where the network allows it, with noise by env column."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.config.paths import ConfigError
from ding_like.data import ArrayDict, tree_leaves, tree_map
from ding_like.model.wrapper.base_wrapper import ModelWrapper
from ding_like.model.wrapper.sample_wrappers import allowed_parts, uniform_actions
from ding_like.rl_utils.action_scale import ActionScale
from ding_like.rl_utils.previous import own_obs
from ding_like.torch_utils.mode import has_train_mode
from ding_like.utils.seed import ColumnNoise


class Acting:
    """How one policy acts.

    Args:
        model: the network; whether it has a NumPy forward is asked once.
        device: where it is.
        seed: keys the noise.
        shapes: what follows from the env's spaces: `action_space` (its kind), `action_shape`, `action_scale`.
            `columns`: global numbers of this process's env columns; without them they are the same.
    """

    def __init__(self, model: nn.Module, device: torch.device, seed: int, shapes: dict[str, Any]) -> None:
        self._model, self._device, self._seed, self._shapes = model, device, seed, shapes
        self._columns = shapes.get("columns")
        self._cuda = device.type != "cpu"
        self.has_train_mode = has_train_mode(model)
        ready = getattr(model, "numpy_ready", None)
        self._numpy = ready is not None and ready()
        self._checked = False
        self.noises: dict[str, ColumnNoise] = {}
        self.scale: ActionScale | None = shapes.get("action_scale")

    def act(self, role: str, wrapped: ModelWrapper, obs: Any, data_id: Any, setting: dict) -> ArrayDict:
        """Actions of a sampling wrapper for observations `[B, ...]`, as NumPy fields `[B, ...]`.

        Where the action is continuous, `action` is what the env gets and `raw_action` what the wrapper gave.
        """
        width = wrapped.noise_width
        if width:
            setting["noise"] = self.noise(role, obs, data_id, width)
        if data_id is not None:
            setting["data_id"] = data_id
        output = self.call(wrapped, obs, setting)
        if not self._checked and "action_space" in self._shapes:
            self._check(output.get("logit"))
        if self.scale is not None:
            self._to_env(output)
        return output

    def call(self, wrapped: ModelWrapper, obs: Any, setting: dict) -> ArrayDict:
        """The output of a wrapped model for observations `[B, ...]`, as NumPy fields; no gradient is recorded."""
        if self.has_train_mode:
            self._model.eval()
        if self._numpy and type(obs) is np.ndarray and obs.ndim == 2:
            if wrapped.keeps_state:
                return ArrayDict(wrapped.forward({"obs": obs}, inference=True, **setting))
            return ArrayDict(wrapped.forward(obs, **setting))
        if wrapped.keeps_state:
            with torch.no_grad():
                output = wrapped.forward({"obs": self._to_model(obs)}, inference=True, **setting)
            return ArrayDict(tree_map(_to_numpy, dict(output)))
        with torch.inference_mode():
            output = wrapped.forward(self._to_model(obs), **setting)
        return ArrayDict(tree_map(_to_numpy, dict(output)))

    def random(self, obs: Any) -> ArrayDict:
        """Uniformly random actions `[B, ...]`, of the allowed ones where there is an `action_mask`.

        Raises ConfigError for a Box without bounds.
        """
        kind, shape = self._shapes.get("action_space", "discrete"), self._shapes.get("action_shape")
        seen = own_obs(obs)
        mask = seen.get("action_mask") if isinstance(seen, dict) else None
        if isinstance(shape, int) and mask is None and kind == "discrete":  # what a row of many columns costs is here
            return ArrayDict(action=(self.noise("random", obs, None, 1)[:, 0] * shape).astype(np.int64))
        if kind == "continuous":
            if self.scale is None or not self.scale.bounded.all():
                raise ConfigError(
                    "policy.random_collect_size: a Box without bounds has no uniform actions; set it to 0"
                )
            noise = self.noise("random", obs, None, len(self.scale.bounded))  # [B, d]
            output = ArrayDict(action=(noise * 2 - 1).astype(np.float32))
            self._to_env(output)
            return output
        sizes = [shape] if isinstance(shape, int) else list(shape or ())
        if not sizes:
            raise ConfigError("policy.random_collect_size: the action space of the env is not known; set it to 0")
        noise = self.noise("random", obs, None, len(sizes))  # [B, k]
        parts = [None] * len(sizes) if mask is None else allowed_parts(mask, sizes)
        drawn = [uniform_actions(noise[:, i], n, parts[i]) for i, n in enumerate(sizes)]
        return ArrayDict(action=drawn[0] if isinstance(shape, int) else np.stack(drawn, 1))

    def noise(self, role: str, obs: Any, data_id: Any, width: int) -> np.ndarray:
        """Uniforms `[B, width]` of the columns `data_id` (all for None)."""
        noise = self.noises.get(role)
        if noise is None:
            noise = self.noises[role] = ColumnNoise(self._seed, role, width, self._columns)
        return noise.rows(data_id, len(obs) if type(obs) is np.ndarray else len(tree_leaves(obs)[0]))

    def state_dict(self) -> dict:
        """The noise streams of every role."""
        return {role: {"width": noise.width, **noise.state_dict()} for role, noise in self.noises.items()}

    def load_state_dict(self, state: dict) -> None:
        """Restore `state_dict`."""
        self.noises.clear()
        for role, saved in state.items():
            self.noises[role] = ColumnNoise(self._seed, role, saved["width"], self._columns)
            self.noises[role].load_state_dict(saved)

    def _check(self, logit: Any) -> None:
        """Once: whether the network speaks of the env's actions. Raises ConfigError naming what it gives."""
        self._checked = True
        if logit is None:  # a policy of its own kind
            return
        kind, shape = self._shapes["action_space"], self._shapes["action_shape"]
        found: Any
        if isinstance(logit, dict):
            found = ("continuous", logit["mu"].shape[-1])
        elif isinstance(logit, tuple):
            found = ("multi_discrete", [part.shape[-1] for part in logit])
        else:
            found = ("discrete", logit.shape[-1])
        wanted = (kind, int(np.prod(shape)) if kind == "continuous" else shape)
        if found != wanted:
            raise ConfigError(
                f"policy.model: the network ({type(self._model).__name__}) gives a logit for {found[0]} actions of "
                f"size {found[1]}, the env's are {wanted[0]} of size {wanted[1]}; wanted a tensor [B, A] for discrete, "
                "a tuple of such for multi_discrete, a dict of mu and sigma [B, d] for continuous ones"
            )

    def _to_env(self, output: ArrayDict) -> None:
        assert self.scale is not None
        output["raw_action"] = raw = output["action"]
        output["action"] = self.scale.to_env(raw)

    def _to_model(self, obs: Any) -> Any:
        """Observations (numpy) as tensors on the model's device."""

        def leaf(x: Any) -> torch.Tensor:
            tensor = torch.as_tensor(x)
            return tensor.to(self._device, non_blocking=True) if self._cuda else tensor

        return leaf(obs) if type(obs) is np.ndarray else tree_map(leaf, obs)


def _to_numpy(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x
