"""Observation normaliser as part of the model: its statistics are buffers, saved and sent like parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ding_like.data import tree_map, tree_paths
from ding_like.rl_utils.previous import own_obs
from ding_like.torch_utils.network.encoder import children, is_image


class RunningStatistics(nn.Module):
    """Mean and variance of a vector over all rows fed to `update` (Chan et al. 1983, parallel form), in float64."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self._scaling: tuple[Any, ...] = (None,)
        self.mean: torch.Tensor
        self.var: torch.Tensor
        self.count: torch.Tensor

    def update(self, rows: np.ndarray) -> None:
        """Take in rows `[N, *shape]`; none changes nothing."""
        batch = torch.as_tensor(np.asarray(rows, np.float64), device=self.mean.device)
        n = batch.shape[0]
        if not n:
            return
        total = self.count + n
        delta = batch.mean(0) - self.mean
        m2 = self.var * self.count + batch.var(0, unbiased=False) * n + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.var.copy_(m2 / total)
        self.count.copy_(total)

    def scaling(self, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
        """`mean` and `1 / sqrt(var + eps)` in float32, computed once for each state of the statistics."""
        key = (self.count.data_ptr(), self.count._version, eps)
        if self._scaling[0] != key:
            with torch.inference_mode(False):  # kept beyond this call, which may be an acting one
                self._scaling = (key, self.mean.float(), torch.rsqrt(self.var + eps).float())
        return self._scaling[1], self._scaling[2]

    def forward(self, x: torch.Tensor, eps: float, clip: float) -> torch.Tensor:
        """`(x - mean) / sqrt(var + eps)`, clipped to `[-clip, clip]`."""
        mean, scale = self.scaling(eps)
        return ((x.float() - mean) * scale).clamp_(-clip, clip)

    def numpy_forward(self, x: np.ndarray, eps: float, clip: float) -> np.ndarray:
        """As `forward`, for statistics on the CPU."""
        mean, scale = self.scaling(eps)
        x = (x - mean.numpy()) * scale.numpy()
        np.minimum(x, clip, out=x)
        np.maximum(x, -clip, out=x)
        return x


class NormalizedModel(nn.Module):
    """A model whose vector observations are normalised by running statistics.

    Images and one-hot inputs pass unchanged. `update` is the only thing that moves the statistics.
    """

    def __init__(self, model: nn.Module, obs_shape: Any, clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.model = model
        self.clip, self.eps = clip, eps
        self._keys = _vector_paths(obs_shape)
        self._is_obs = "obs" in (children(obs_shape) or ())  # then {'obs': ...} alone may be an observation
        self._at = {path: i for i, path in enumerate(self._keys)}
        self.statistics: Any = nn.ModuleList(RunningStatistics(shape) for shape in self._keys.values())
        if not self._keys:
            raise ValueError(f"norm_obs: the observation {obs_shape!r} has no vector part to normalise")

    def update(self, obs: Any) -> None:
        """Take in raw observations `[N, ...]` (or `[T, B, ...]`), numpy; the step before that they show is left out."""
        for path, leaf in tree_paths(own_obs(obs)):
            if path in self._keys:
                self.statistics[self._at[path]].update(leaf.reshape((-1, *self._keys[path])))

    def moments(self, path: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and standard deviation of the leaf at a dotted path so far; None where it is not normalised."""
        if path not in self._keys:
            return None
        one = self.statistics[self._at[path]]
        return one.mean.cpu().numpy(), one.var.sqrt().cpu().numpy()

    def normalize(self, obs: Any) -> Any:
        """The observation tree with its vector leaves normalised (torch)."""
        if isinstance(obs, torch.Tensor):
            return self.statistics[0](obs, self.eps, self.clip)
        paths = iter([path for path, _ in tree_paths(obs)])

        def leaf(x: torch.Tensor) -> torch.Tensor:
            path = next(paths)
            return self.statistics[self._at[path]](x, self.eps, self.clip) if path in self._keys else x

        return tree_map(leaf, obs)

    def forward(self, x: Any, **kwargs: Any) -> Any:
        """The inner model on normalised observations `[..., obs]`; `x` is one, or a recurrent model's inputs.

        Those are `{'obs': ..., 'prev_state': ..., ...}`, a critic's `{'obs', 'action'}`; all but `obs` pass unchanged.
        """
        if isinstance(x, dict) and "obs" in x and ("prev_state" in x or "action" in x or not self._is_obs):
            return self.model({**x, "obs": self.normalize(x["obs"])}, **kwargs)
        return self.model(self.normalize(x), **kwargs)

    def numpy_ready(self) -> bool:
        """Whether the inner model has a NumPy forward and the observation is one vector."""
        ready: Any = getattr(self.model, "numpy_ready", None)
        return ready is not None and ready() and list(self._keys) == [""]

    def numpy_forward(self, x: Any, **kwargs: Any) -> dict[str, Any]:
        """As `forward`, in NumPy."""
        model: Any = self.model
        if isinstance(x, dict):
            return model.numpy_forward({**x, "obs": self._numpy_normalize(x["obs"])}, **kwargs)
        return model.numpy_forward(self._numpy_normalize(x), **kwargs)

    def _numpy_normalize(self, obs: np.ndarray) -> np.ndarray:
        return self.statistics[0].numpy_forward(np.asarray(obs, np.float32), self.eps, self.clip)


def _vector_paths(spec: Any, prefix: str = "") -> dict[str, tuple[int, ...]]:
    subs = children(spec)
    if subs is not None:
        found: dict[str, tuple[int, ...]] = {}
        for key, sub in subs.items():
            found.update(_vector_paths(sub, f"{prefix}.{key}" if prefix else key))
        return found
    if isinstance(spec, int):
        return {prefix: (spec,)}
    if isinstance(spec, dict) or is_image(spec):
        return {}
    return {prefix: tuple(spec)}
