"""Learner steps of C51, QR-DQN and IQN against the bare torch operations written out.

The network of `dqn.py`: MLP 120-84 over 4 numbers, 2 actions, batch 128, no double Q-learning, flat Adam; 51 atoms, 32
quantiles, 16 sampled quantiles with 64 cosines.

    python benchmarks/q_learning.py [--rounds 10] [--repeat 200]
"""

import math
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from bare import FlatAdam, mlp
from common import Check, interleave, parser, ratio, report, seconds
from torch import Tensor, nn

from ding_like.config import deep_merge_defaults
from ding_like.data import ArrayDict, torchify
from ding_like.utils import POLICY_REGISTRY
from ding_like.worker import Learner

SIZES, ACTIONS, BATCH, LR, ATOMS, QUANTILES, DRAWN, COSINES = [4, 120, 84], 2, 128, 2.5e-4, 51, 32, 16, 64
MODELS = {"c51": dict(v_min=0.0, v_max=100.0), "qrdqn": {}, "iqn": dict(num_quantiles=DRAWN)}


def learner_step(name: str, batch: ArrayDict) -> Callable[[], object]:
    """One step of our learner, hooks included; the target network is copied outside of what is timed."""
    cls = POLICY_REGISTRY.get(name)
    model = dict(encoder_hidden_size_list=SIZES[1:], dueling=False, head_layer_num=0, **MODELS[name])
    learn = dict(batch_size=BATCH, learning_rate=LR, target_update_freq=10**9, learner=Learner.config)
    cfg = deep_merge_defaults(cls.default_config(), dict(double=False, model=model, learn=learn))
    policy = cls(cfg, shapes=dict(obs_shape=SIZES[0], action_shape=ACTIONS))
    learner = Learner(cfg.learn.learner, policy.learn_mode)
    return lambda: learner.train(batch, 0)


class BareIQN(nn.Module):
    """The network of IQN by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.phi = mlp([*SIZES, 1])[:-1], nn.Linear(COSINES, SIZES[-1])
        self.head = nn.Linear(SIZES[-1], ACTIONS)
        self.frequencies = math.pi * torch.arange(COSINES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tau = torch.rand(len(x), DRAWN)
        embedding = torch.relu(self.phi(torch.cos(tau[..., None] * self.frequencies)))  # [N, K, H]
        return self.head(self.body(x)[:, None] * embedding).transpose(1, 2), tau  # [N, A, K], [N, K]


def c51_loss(net: nn.Module, target: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    support, rows = torch.linspace(0, 100, ATOMS), torch.arange(BATCH)
    with torch.no_grad():
        p = target(batch["next_obs"]).view(BATCH, ACTIONS, ATOMS).softmax(-1)
        p = p[rows, (p @ support).argmax(-1)]  # [N, n]
        moved = (batch["reward"][:, None] + batch["discount"][:, None] * support).clamp(0, 100)
        place = moved * ((ATOMS - 1) / 100)
        low = place.floor().clamp(max=ATOMS - 2)
        high = p * (place - low)
        wanted = torch.zeros_like(p).scatter_add_(1, low.long(), p - high).scatter_add_(1, low.long() + 1, high)
    logit = net(batch["obs"]).view(BATCH, ACTIONS, ATOMS)[rows, batch["action"]]
    return -(wanted * logit.log_softmax(-1)).sum(-1).mean()


def quantile_loss(q: Tensor, tau: Tensor, target_q: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Of `q`, `target_q [N, A, K]` and `tau [N, K]` or `[K]`."""
    rows = torch.arange(BATCH)
    with torch.no_grad():
        ahead = target_q[rows, target_q.mean(-1).argmax(-1)]
        wanted = batch["reward"][:, None] + batch["discount"][:, None] * ahead
    td = wanted[:, None, :] - q[rows, batch["action"]][:, :, None]  # [N, K, K']
    huber = torch.where(td.abs() <= 1, 0.5 * td * td, td.abs() - 0.5)
    weight = (tau[..., None] - (td.detach() < 0).float()).abs()
    return (weight * huber).mean(-1).sum(-1).mean()


def qrdqn_loss(net: nn.Module, target: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    tau = (torch.arange(QUANTILES) + 0.5) / QUANTILES
    q = net(batch["obs"]).view(BATCH, ACTIONS, QUANTILES)
    with torch.no_grad():
        target_q = target(batch["next_obs"]).view(BATCH, ACTIONS, QUANTILES)
    return quantile_loss(q, tau, target_q, batch)


def iqn_loss(net: nn.Module, target: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    q, tau = net(batch["obs"])
    with torch.no_grad():
        target_q, _ = target(batch["next_obs"])
    return quantile_loss(q, tau, target_q, batch)


BARE: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor]]] = {
    "c51": (lambda: mlp([*SIZES, ACTIONS * ATOMS]), c51_loss),
    "qrdqn": (lambda: mlp([*SIZES, ACTIONS * QUANTILES]), qrdqn_loss),
    "iqn": (BareIQN, iqn_loss),
}


def bare_step(name: str, batch: dict[str, Tensor]) -> Callable[[], object]:
    """One update by its torch operations alone."""
    make, loss_of = BARE[name]
    net = make()
    adam, target = FlatAdam(net, LR), deepcopy(net)

    def step() -> None:
        loss = loss_of(net, target, batch)
        adam.zero_grad()
        loss.backward()
        adam.step()

    return step


def transitions() -> ArrayDict:
    """A batch `[N]` as a replay gives it."""
    rng = np.random.default_rng(0)
    return ArrayDict(
        obs=rng.normal(size=(BATCH, SIZES[0])).astype(np.float32),
        next_obs=rng.normal(size=(BATCH, SIZES[0])).astype(np.float32),
        action=rng.integers(0, ACTIONS, BATCH),
        reward=np.ones(BATCH, np.float32),
        discount=np.full(BATCH, 0.99, np.float32),
    )


def main() -> None:
    args = parser(__doc__, rounds=10)
    args.add_argument("--repeat", type=int, default=200, help="updates of a round (default 200)")
    options = args.parse_args()
    torch.manual_seed(0)
    batch = transitions()
    tensors: dict[str, Tensor] = torchify(dict(dict.items(batch)))
    for name in BARE:
        calls = {"learner step": learner_step(name, batch), "bare operations": bare_step(name, tensors)}
        variants = {key: lambda call=call: 1e6 * seconds(call, options.repeat) for key, call in calls.items()}
        results = interleave(variants, options.rounds)
        check = Check(f"{name}: learner step / bare", ratio(results, *calls), 1.25, at_least=False)
        report(f"{name} learner step, batch {BATCH}", "us", results, [check])


if __name__ == "__main__":
    main()
