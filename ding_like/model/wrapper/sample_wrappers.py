"""Wrappers that turn the network's `logit` into an `action`.

What is random in them comes from `noise`, uniform numbers in [0, 1) by env column: a column's action depends on its own
row alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ding_like.model.wrapper.base_wrapper import ModelWrapper, action_mask_of
from ding_like.utils import WRAPPER_REGISTRY


@WRAPPER_REGISTRY.register("argmax_sample")
class ArgmaxSampleWrapper(ModelWrapper):
    """`action` is the best one: `argmax(logit)`, `[B]`, or `[B, k]` for a tuple of k logits."""

    def forward(self, data: Any, **kwargs: Any) -> dict:
        output = self._model.forward(data, **kwargs)
        logit = _logit(output)
        _check_some_allowed(data, logit)
        output["action"] = _best(logit)
        return output


@WRAPPER_REGISTRY.register("deterministic_sample")
class DeterministicSampleWrapper(ModelWrapper):
    """`action` is the most likely one: `mu [B, d]` of a Gaussian, else as `argmax_sample`.

    Args:
        squash: of a Gaussian tanh(mu), which is what the median is turned into.
    """

    def __init__(self, model: Any, squash: bool = False) -> None:
        super().__init__(model)
        self.squash = squash

    def forward(self, data: Any, **kwargs: Any) -> dict:
        output = self._model.forward(data, **kwargs)
        logit = _logit(output)
        if isinstance(logit, dict):
            output["action"] = _tanh(logit["mu"]) if self.squash else logit["mu"]
        else:
            _check_some_allowed(data, logit)
            output["action"] = _best(logit)
        return output


@WRAPPER_REGISTRY.register("eps_greedy_sample")
class EpsGreedySampleWrapper(ModelWrapper):
    """With probability `eps` a uniform action of the allowed ones, else the best; every env column for itself."""

    noise_width = 2

    def forward(self, data: Any, eps: float | np.ndarray = 0.0, noise: np.ndarray | None = None, **kwargs: Any) -> dict:
        """Adds `action [B]`.

        Args:
            eps: one number, or one a column `[B]`.
            noise: uniforms `[B, 2]`; None draws them from NumPy's global generator.
        """
        output = self._model.forward(data, **kwargs)
        logit = _logit(output)  # [B, A]
        mask = _check_some_allowed(data, logit)
        if noise is None:
            noise = np.random.random((logit.shape[0], 2))
        explore = noise[:, 0] < eps
        values = logit if type(logit) is np.ndarray else logit.detach().cpu().numpy()  # a few rows: torch is slower
        action = values.argmax(-1)
        if np.count_nonzero(explore):
            action = np.where(explore, uniform_actions(noise[:, 1], values.shape[-1], mask), action)
        output["action"] = action if values is logit else torch.as_tensor(action, device=logit.device)
        return output


@WRAPPER_REGISTRY.register("multinomial_sample")
class MultinomialSampleWrapper(ModelWrapper):
    """`action` drawn from softmax(logit / alpha) by inverting the distribution function.

    Args:
        width: number of discrete actions at once, the k of `[B, k]`; 1 where the logit is no tuple.
    """

    def __init__(self, model: Any, width: int = 1) -> None:
        super().__init__(model)
        self.noise_width = width

    def forward(self, data: Any, alpha: float = 1.0, noise: np.ndarray | None = None, **kwargs: Any) -> dict:
        """Adds `action [B]`, or `[B, k]` for a tuple of k logits. An action of probability 0 is never drawn.

        Args:
            alpha: temperature.
            noise: uniforms `[B, width]`; None draws them from NumPy's global generator.
        """
        output = self._model.forward(data, **kwargs)
        logit = _logit(output)
        if isinstance(logit, dict):
            raise TypeError("multinomial_sample got a logit of mu and sigma; use reparam_sample for continuous actions")
        _check_some_allowed(data, logit)
        parts = logit if type(logit) is tuple else (logit,)  # k of [B, A]
        if noise is None:
            noise = np.random.random((parts[0].shape[0], len(parts)))
        if noise.shape[1] != len(parts):
            raise ValueError(
                f"noise has shape {noise.shape}; wanted [B, {len(parts)}], one number for each action: wrap the model "
                f"with width={len(parts)}"
            )
        is_numpy = type(parts[0]) is np.ndarray
        drawn = [
            _inverse_cdf(part if is_numpy else part.detach().cpu().numpy(), noise[:, i], alpha)
            for i, part in enumerate(parts)
        ]
        action = np.stack(drawn, -1) if type(logit) is tuple else drawn[0]
        output["action"] = action if is_numpy else torch.as_tensor(action, device=parts[0].device)
        return output


@WRAPPER_REGISTRY.register("reparam_sample")
class ReparamSampleWrapper(ModelWrapper):
    """`action = mu + sigma * eps`, eps normal, for a logit of `mu` and `sigma`; gradients pass. Kingma 2014.

    Args:
        width: uniforms a column: two for each action dimension. Box 1958.
        squash: the action is the tanh of that.
    """

    def __init__(self, model: Any, width: int = 2, squash: bool = False) -> None:
        super().__init__(model)
        self.noise_width, self._squash = width, squash

    def forward(self, data: Any, noise: np.ndarray | None = None, **kwargs: Any) -> dict:
        """Adds `action [B, d]`, float32.

        Args:
            noise: uniforms `[B, 2 d]`; None draws them from NumPy's global generator.
        """
        output = self._model.forward(data, **kwargs)
        logit = _logit(output)
        if not isinstance(logit, dict):
            raise TypeError("reparam_sample wants a logit of mu and sigma; use multinomial_sample for discrete actions")
        if not {"mu", "sigma"} <= set(logit):
            raise KeyError(f"the network's logit holds {list(logit)}; wanted 'mu' and 'sigma' for continuous actions")
        mu, sigma = logit["mu"], logit["sigma"]
        if sigma.shape != mu.shape:
            raise ValueError(
                f"the network's logit has sigma of shape {tuple(sigma.shape)} and mu of {tuple(mu.shape)}; wanted "
                "equal shapes [B, d]: sigma.expand_as(mu)"
            )
        action = mu + sigma * _normal_like(mu, noise)
        output["action"] = _tanh(action) if self._squash else action
        return output


@WRAPPER_REGISTRY.register("action_noise")
class ActionNoiseWrapper(ModelWrapper):
    """`action = mu + noise_sigma * eps`, eps normal, cut to [-1, 1]: the exploration of a deterministic policy.

    Args:
        width: uniforms a column: two for each action dimension.
        noise_sigma: deviation of the noise where a call gives none.
    """

    def __init__(self, model: Any, width: int = 2, noise_sigma: float = 0.1) -> None:
        super().__init__(model)
        self.noise_width, self._sigma = width, noise_sigma

    def forward(
        self, data: Any, noise_sigma: float | None = None, noise: np.ndarray | None = None, **kwargs: Any
    ) -> dict:
        """Adds `action [B, d]` for a logit of `mu [B, d]`; `noise`: uniforms `[B, 2 d]`, None: NumPy's generator."""
        output = self._model.forward(data, **kwargs)
        mu = _logit(output)["mu"]
        action = mu + (self._sigma if noise_sigma is None else noise_sigma) * _normal_like(mu, noise)
        output["action"] = action.clip(-1.0, 1.0)
        return output


@WRAPPER_REGISTRY.register("critic_memory")
class CriticMemoryWrapper(ModelWrapper):
    """Around a sampling wrapper over `hidden_state`: brings the state of a recurrent critic up to the action taken."""

    def forward(self, data: Any, action: Any = None, data_id: Any = None, **kwargs: Any) -> dict:
        """The sampling wrapper's output; `action` replaces what it sampled."""
        output = self._model.forward(data, data_id=data_id, **kwargs)
        if action is not None:
            output["action"] = action if type(output["action"]) is np.ndarray else torch.as_tensor(action)
        taken = {**data, "action": output["action"]}
        self._model._model.forward(taken, data_id=data_id, mode="compute_critic", inference=True)
        return output


def _logit(output: Any) -> Any:
    if output.get("logit") is None:
        raise KeyError(f"the network gives {list(output)}; wanted 'logit', what actions are drawn from")
    return output["logit"]


def _best(logit: Any) -> Any:
    """The largest of `[B, A]`, as `[B]`; of each of a tuple of k such, as `[B, k]`."""
    if type(logit) is not tuple:
        return logit.argmax(-1)
    stack: Any = np.stack if type(logit[0]) is np.ndarray else torch.stack
    return stack([part.argmax(-1) for part in logit], -1)


def _inverse_cdf(z: np.ndarray, uniform: np.ndarray, alpha: float) -> np.ndarray:
    """Draws `[B]` from softmax(z / alpha), z `[B, A]`, uniform `[B]`.

    The first action whose cumulated weight exceeds `uniform * total` has a weight of its own above 0, also in float32.
    """
    z = z.T.copy()  # [A, B]: reductions over the first axis are the fast ones
    z -= np.maximum.reduce(z, 0)
    if alpha != 1.0:
        with np.errstate(over="ignore"):  # a forbidden action's logit is the lowest number there is
            z /= alpha
    weight = np.exp(z, out=z)
    cdf = np.add.accumulate(weight, 0)
    return (cdf > uniform * cdf[-1]).argmax(0)


def _normal(uniform: np.ndarray, d: int) -> np.ndarray:
    """Standard normal numbers `[B, d]`, float32, from uniforms `[B, 2 d]` in [0, 1)."""
    radius = np.sqrt(-2.0 * np.log1p(-uniform[:, :d]))  # of 1 - u, in (0, 1]
    return (radius * np.cos(2.0 * math.pi * uniform[:, d:])).astype(np.float32)


def _normal_like(mu: Any, noise: np.ndarray | None) -> Any:
    """Standard normal numbers of the kind and shape of `mu [B, d]` from uniforms `[B, 2 d]`, NumPy's own for None."""
    batch, d = mu.shape
    if noise is None:
        noise = np.random.random((batch, 2 * d))
    if noise.shape[1] != 2 * d:
        raise ValueError(
            f"noise has shape {noise.shape}; wanted [B, {2 * d}], two numbers for each action dimension: wrap the "
            f"model with width={2 * d}"
        )
    eps = _normal(noise, d)
    return eps if type(mu) is np.ndarray else torch.as_tensor(eps, dtype=mu.dtype, device=mu.device)


def _tanh(x: Any) -> Any:
    return np.tanh(x) if type(x) is np.ndarray else torch.tanh(x)


def uniform_actions(noise: np.ndarray, n: int, mask: np.ndarray | None) -> np.ndarray:
    """One of `n` actions a row by a uniform number `[B]`; of those that `mask [B, n]` allows."""
    if mask is None:
        return (noise * n).astype(np.int64)
    allowed = mask.cumsum(-1)
    return (allowed > (noise * allowed[:, -1]).astype(np.int64)[:, None]).argmax(-1)


def _check_some_allowed(data: Any, logit: Any) -> np.ndarray | None:
    """The `action_mask` as bool `[B, A]`, None without one. Raises ValueError naming columns that allow no action."""
    if type(data) is np.ndarray:
        return None
    mask = action_mask_of(data)
    if mask is None:
        return None
    sizes = [part.shape[-1] for part in logit] if type(logit) is tuple else [logit.shape[-1]]
    return np.concatenate(allowed_parts(mask, sizes), -1)


def allowed_parts(mask: Any, sizes: Sequence[int]) -> list[np.ndarray]:
    """An `action_mask [B, sum(sizes)]` as bool `[B, n]` for each of several actions.

    Raises ValueError naming columns that allow no choice of one of them.
    """
    mask = np.asarray(mask.cpu() if isinstance(mask, torch.Tensor) else mask) != 0
    parts = np.split(mask, np.cumsum(sizes)[:-1], -1)
    some = np.logical_and.reduce([part.any(-1) for part in parts])  # [B]
    if not some.all():
        raise ValueError(f"action_mask: no action is allowed in column(s) {np.flatnonzero(~some).tolist()}")
    return parts
