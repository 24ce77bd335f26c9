"""The same work without a library: what our figures are measured against."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BareEnvs:
    """CartPole-v1 columns stepped by a plain loop that resets where an episode ended and stores nothing."""

    def __init__(self, columns: int) -> None:
        self.envs = [gymnasium.make("CartPole-v1") for _ in range(columns)]
        self.obs = np.stack([env.reset(seed=column)[0] for column, env in enumerate(self.envs)])  # [B, 4]

    def step(self, actions: np.ndarray) -> None:
        for column, env in enumerate(self.envs):
            obs, _, terminated, truncated, _ = env.step(actions[column])
            self.obs[column] = env.reset()[0] if terminated or truncated else obs


def mlp(sizes: list[int], activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), activation()]
    return nn.Sequential(*layers[:-1])


def module_actor(net: nn.Module, eps: float) -> Callable[[np.ndarray], np.ndarray]:
    """Epsilon-greedy actions `[B]` from observations `[B, ...]` by the module's own forward."""
    rng = np.random.default_rng(0)

    @torch.inference_mode()
    def act(obs: np.ndarray) -> np.ndarray:
        q = net(torch.from_numpy(obs)).numpy()  # [B, A]
        noise = rng.random((2, len(q)))
        return np.where(noise[0] < eps, (noise[1] * q.shape[1]).astype(np.int64), q.argmax(1))

    return act


def numpy_actor(net: nn.Sequential, eps: float) -> Callable[[np.ndarray], np.ndarray]:
    """The same by numpy on views of the module's parameters."""
    rng = np.random.default_rng(0)
    linear = [m for m in net if isinstance(m, nn.Linear)]
    layers = [(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in linear]
    (last_weight, last_bias), hidden = layers[-1], layers[:-1]

    def act(obs: np.ndarray) -> np.ndarray:
        x = obs
        for weight, bias in hidden:
            x = np.maximum(x @ weight + bias, 0.0)
        q = x @ last_weight + last_bias  # [B, A]
        noise = rng.random((2, len(q)))
        return np.where(noise[0] < eps, (noise[1] * q.shape[1]).astype(np.int64), q.argmax(1))

    return act


class FlatAdam:
    """Fused Adam over one tensor that every parameter and gradient of `net` is a view of."""

    def __init__(self, net: nn.Module, lr: float) -> None:
        parameters = list(net.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters]).requires_grad_()
        self.flat.grad = torch.zeros_like(self.flat)
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = self.flat.data[start:stop].view_as(p)
            p.grad = self.flat.grad[start:stop].view_as(p)
            start = stop
        self._adam = torch.optim.Adam([self.flat], lr, fused=True)

    def zero_grad(self) -> None:
        self.flat.grad.zero_()

    def clip(self, norm: float) -> None:
        """Scale the gradient to this norm at most."""
        self.flat.grad.mul_((norm / (torch.linalg.vector_norm(self.flat.grad) + 1e-6)).clamp_(max=1.0))

    def step(self) -> None:
        self._adam.step()


def dqn_step(net: nn.Module, target: nn.Module, adam: Any, batch: dict[str, Tensor]) -> Tensor:
    """One Q-learning update (no double) by its torch operations alone; returns the loss."""
    with torch.no_grad():
        wanted = batch["reward"] + batch["discount"] * target(batch["next_obs"]).max(1)[0]  # [N]
    q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)  # [N]
    loss = F.smooth_l1_loss(q, wanted)
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss
