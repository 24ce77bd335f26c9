"""Learner steps of SAC, TD3 and DDPG against their bare torch operations, and SAC on Pendulum-v1 with learning.

1 env, MLPs of 256x256, batch 256, one update an env step, 1,000 random steps first, Adam 1e-3, a learned temperature:
the work of `peers/train.py --algo sac` (and `td3`), run by `serial_pipeline` itself (evaluation not timed).

    python benchmarks/sac.py [--rounds 5] [--steps 2500] [--layers]
"""

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from bare import FlatAdam, mlp
from common import Check, interleave, median, parser, ratio, report, seconds
from dqn import timed_run
from torch import Tensor, nn

from ding_like.data import torchify
from ding_like.entry.build import build, full_config
from ding_like.torch_utils.network.stacked import StackedMLP
from ding_like.worker import Learner

OBS, ACTIONS, WIDTH, BATCH, GAMMA, LR, THETA = 3, 1, 256, 256, 0.99, 1e-3, 0.005
LIMITS = {"sac": 1.15, "td3": 1.25, "ddpg": 1.25}


def config(algo: str) -> dict:
    """The work above as one dictionary; evaluation only at start and end."""
    learner = dict(hooks=[dict(type="benchmark_start")])
    return dict(
        env=dict(type="Pendulum-v1", collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            type=algo,
            discount_factor=GAMMA,
            random_collect_size=1000,
            learn=dict(batch_size=BATCH, learning_rate=LR, target_theta=THETA, learner=learner),
            collect=dict(n_sample=1),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            other=dict(replay_buffer=dict(replay_buffer_size=100_000)),
        ),
    )


class Bare:
    """Actor, critics and targets by hand; a step of each algorithm written out."""

    def __init__(self, critics: int, outputs: int, target_actor: bool) -> None:
        self.actor = mlp([OBS, WIDTH, WIDTH, outputs])
        self.critics = nn.ModuleList(mlp([OBS + ACTIONS, WIDTH, WIDTH, 1]) for _ in range(critics))
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.actor_adam, self.critic_adam = FlatAdam(self.actor, LR), FlatAdam(self.critics, LR)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], LR, fused=True)
        followed = nn.ModuleList([self.critics, self.actor] if target_actor else [self.critics])
        self.target = deepcopy(followed)
        self.pairs = list(self.target.parameters()), list(followed.parameters())
        self.weights = list(self.critics.parameters())
        self.count = 0

    def q(self, critics: nn.ModuleList, obs: Tensor, action: Tensor) -> list[Tensor]:
        x = torch.cat([obs, action], 1)
        return [critic(x).squeeze(1) for critic in critics]

    def critic_step(self, data: dict[str, Tensor], wanted: Tensor) -> None:
        loss = sum(F.mse_loss(q, wanted) for q in self.q(self.critics, data["obs"], data["action"]))
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()

    def actor_step(self, loss_of: Callable[[], Tensor]) -> None:
        for weight in self.weights:
            weight.requires_grad_(False)
        self.actor_adam.zero_grad()
        loss_of().backward()
        self.actor_adam.step()
        for weight in self.weights:
            weight.requires_grad_(True)

    def follow(self) -> None:
        with torch.no_grad():
            torch._foreach_lerp_(*self.pairs, THETA)

    def drawn(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mu, log_sigma = self.actor(obs).chunk(2, 1)
        log_sigma = log_sigma.clamp(-20, 2)
        noise = torch.randn_like(mu)
        u = mu + log_sigma.exp() * noise
        action = torch.tanh(u)
        terms = -0.5 * noise * noise - log_sigma - 0.919 - 2 * (0.693 - u - F.softplus(-2 * u))
        return action, terms.sum(1)

    def sac(self, data: dict[str, Tensor]) -> None:
        with torch.no_grad():
            alpha = self.log_alpha.exp()
            action, log_prob = self.drawn(data["next_obs"])
            value = torch.min(*self.q(self.target[0], data["next_obs"], action)) - alpha * log_prob
            wanted = data["reward"] + data["discount"] * value
        self.critic_step(data, wanted)
        kept: list[Tensor] = []

        def loss() -> Tensor:
            action, log_prob = self.drawn(data["obs"])
            kept.append(log_prob.detach())
            return (alpha * log_prob - torch.min(*self.q(self.critics, data["obs"], action))).mean()

        self.actor_step(loss)
        temperature = -(self.log_alpha * (kept[0] - ACTIONS)).mean()
        self.alpha_adam.zero_grad()
        temperature.backward()
        self.alpha_adam.step()
        self.follow()

    def dpg(self, data: dict[str, Tensor], smooth: bool, delay: int) -> None:
        with torch.no_grad():
            action = torch.tanh(self.target[1](data["next_obs"]))
            if smooth:
                action = (action + (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)).clamp(-1, 1)
            values = self.q(self.target[0], data["next_obs"], action)
            wanted = data["reward"] + data["discount"] * (torch.min(*values) if smooth else values[0])
        self.critic_step(data, wanted)
        self.count += 1
        if self.count % delay == 0:

            def loss() -> Tensor:
                x = torch.cat([data["obs"], torch.tanh(self.actor(data["obs"]))], 1)
                return -self.critics[0](x).mean()

            self.actor_step(loss)
            self.follow()


def learner_variants(algo: str, repeat: int) -> dict[str, Callable[[], float]]:
    """Microseconds of one update on one batch: the learner's whole step, and the bare operations."""
    parts = build(full_config(config(algo)), seed=0)
    parts.collector.collect(parts.store.push, n_sample=1000, random=True)
    learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
    batch = parts.store.sample(BATCH)
    tensors: dict[str, Tensor] = torchify(dict(dict.items(batch)))
    bare = Bare(1 if algo == "ddpg" else 2, 2 * ACTIONS if algo == "sac" else ACTIONS, algo != "sac")
    step: Callable[[], object] = {
        "sac": lambda: bare.sac(tensors),
        "td3": lambda: bare.dpg(tensors, smooth=True, delay=2),
        "ddpg": lambda: bare.dpg(tensors, smooth=False, delay=1),
    }[algo]
    calls = {"learner step": lambda: learner.train(batch, 0), "bare operations": step}
    return {name: lambda call=call: 1e6 * seconds(call, repeat) for name, call in calls.items()}


def layer_variants(width: int, repeat: int) -> dict[str, Callable[[], float]]:
    """Microseconds of forward and backward of two MLPs, apart and stacked."""
    sizes, x = [OBS + ACTIONS, width, width, 1], torch.randn(BATCH, OBS + ACTIONS)
    apart, stacked = [mlp(sizes), mlp(sizes)], StackedMLP(2, sizes)
    calls = {
        "apart": lambda: torch.stack([net(x) for net in apart]).square().mean().backward(),
        "stacked": lambda: stacked(x).square().mean().backward(),
    }
    return {name: lambda call=call: 1e6 * seconds(call, repeat) for name, call in calls.items()}


def main() -> None:
    args = parser(__doc__, rounds=5)
    args.add_argument("--steps", type=int, default=2500, help="env steps of a run, 0 for none (default 2,500)")
    args.add_argument("--layers", action="store_true", help="only two critics apart against stacked ones")
    options = args.parse_args()
    torch.manual_seed(0)
    if options.layers:
        for width in (32, 64, 128, 256):
            report(f"two MLPs of {width}x{width}", "us", interleave(layer_variants(width, 100), options.rounds), [])
        return
    for algo, limit in LIMITS.items():
        updates = interleave(learner_variants(algo, 50), 2 * options.rounds)
        share = ratio(updates, "learner step", "bare operations")
        check = Check("learner step / bare operations", share, limit, at_least=False)
        report(f"{algo} learner step, batch {BATCH}", "us", updates, [check])
    if options.steps:
        runs = {algo: lambda algo=algo: timed_run(config(algo), options.steps) for algo in LIMITS}
        results = interleave(runs, options.rounds)
        checks = [Check("sac, env steps/s", median(results, "sac"), 84, at_least=True)]
        report("On Pendulum-v1, learning included", "env steps/s", results, checks, steps=options.steps)


if __name__ == "__main__":
    main()
