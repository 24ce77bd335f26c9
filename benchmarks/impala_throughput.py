"""IMPALA's actors and learner against synchronous A2C: the same env, network, cores, and updates for each env step.

8 columns, unrolls of 20 steps, one update for every 160 env steps, MLPs 64x64, Adam. A2C in one process; with
synchrony of steps (`server`: all columns wait for the slowest step); with synchrony of trajectories (`local`: for the
slowest unroll); IMPALA without a barrier. Envs: CartPole itself; with a sleep of constant length in every step; with
the same sleep on average, of which a twentieth of the steps makes all. Then the learner step against its bare torch
operations.

    python benchmarks/impala_throughput.py [--rounds 5] [--workers 2] [--updates 40] [--sleep 300]
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from bare import FlatAdam, mlp
from common import Check, interleave, median, parser, ratio, report, seconds
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from torch import Tensor, nn

from ding_like.data import ArrayDict, torchify
from ding_like.entry.build import Components, build, full_config
from ding_like.utils import ENV_REGISTRY
from ding_like.worker import Learner

SIZES, COLUMNS, UNROLL, LR, NORM, GAMMA = [4, 64, 64], 8, 20, 5e-4, 0.5, 0.99
LONG_STEPS = 0.05  # of the steps, where their time varies
IMPALA = "IMPALA, no barrier"
VARIANTS = {  # policy, mode, sampler
    "A2C, one process": ("a2c", "serial", "serial"),
    "A2C, synchrony of steps": ("a2c", "parallel", "server"),
    "A2C, synchrony of trajectories": ("a2c", "parallel", "local"),
    IMPALA: ("impala", "async", "local"),
}


class Sleepy(CartPoleEnv):
    """CartPole of which some steps sleep so long that `us` microseconds are the mean."""

    def __init__(self, us: float = 0.0, share: float = 1.0) -> None:
        super().__init__()
        self._sleep, self._share = us * 1e-6 / share, share

    def step(self, action: Any) -> tuple:
        if self._sleep and self.np_random.random() < self._share:
            time.sleep(self._sleep)
        return super().step(action)


def make_sleepy(cfg: Any) -> TimeLimit:
    """One env of the config's section."""
    return TimeLimit(Sleepy(**cfg["env_kwargs"]), 500)


ENV_REGISTRY.register("bench_sleepy", make_sleepy)


def config(policy: str, sampler: str, workers: int, segments: int = COLUMNS, **env_kwargs: float) -> dict:
    """A config of either policy that updates once for so many unrolls."""
    size = segments if policy == "impala" else segments * UNROLL
    section = dict(
        type=policy,
        discount_factor=GAMMA,
        model=dict(
            encoder_hidden_size_list=SIZES[1:],
            share_encoder=False,
            actor_head_layer_num=0,
            critic_head_layer_num=0,
            activation="tanh",
        ),
        learn=dict(batch_size=size, optimizer="adam", learning_rate=LR, grad_clip_norm=NORM),
        collect=dict(n_sample=size, collector=dict(sampler=sampler, num_workers=workers)),
        **({"learn_unroll_len": UNROLL} if policy == "impala" else {}),
    )
    env = dict(type="bench_sleepy", env_kwargs=env_kwargs, collector_env_num=COLUMNS, evaluator_env_num=1)
    return dict(env=env, policy=section)


class Run:
    """One way to train, timed in portions of so many updates; keeps what its learner and actors were busy with."""

    def __init__(self, parts: Components, updates: int) -> None:
        self.parts, self._updates = parts, updates
        self._learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
        self._size = int(parts.cfg.policy.learn.batch_size)
        self.shares: list[dict[str, float]] = []

    def __call__(self) -> float:
        """Env steps/s of a portion."""
        collector, store, learner = self.parts.collector, self.parts.store, self._learner
        before, busy, learning, until = collector.envstep, collector.busy, 0.0, learner.train_iter + self._updates
        start = time.perf_counter()
        while learner.train_iter < until:
            collector.collect(store.push)
            since = time.perf_counter()
            for batch in store.batches(1, self._size):
                learner.train(batch, collector.envstep)
            learning += time.perf_counter() - since
        wall = time.perf_counter() - start
        actors = [(now - then) / wall for now, then in zip(collector.busy, busy)]
        self.shares.append({"learner": learning / wall, **{f"actor {i}": one for i, one in enumerate(actors)}})
        return (collector.envstep - before) / wall


def throughput(name: str, rounds: int, workers: int, updates: int, **env_kwargs: float) -> None:
    """All variants on one env."""
    runs: dict[str, Run] = {}
    try:
        for variant, (policy, mode, sampler) in VARIANTS.items():
            cfg = full_config(config(policy, sampler, workers, **env_kwargs))
            runs[variant] = Run(build(cfg, seed=0, mode=mode), updates)
        results = interleave(runs, rounds)
    finally:
        for run in runs.values():
            run.parts.close()
    best = max((v for v in VARIANTS if v != IMPALA), key=lambda variant: median(results, variant))
    checks = [Check(f"IMPALA / the best other ({best})", ratio(results, IMPALA, best), 0.95, at_least=True)]
    shares = {variant: _medians(run.shares[1:]) for variant, run in runs.items()}
    report(
        f"{name}, {COLUMNS} columns, {workers} workers, learning included", "env steps/s", results, checks, busy=shares
    )
    for variant, busy in shares.items():
        print(f"{variant}: busy " + ", ".join(f"{who} {100 * share:.0f} %" for who, share in busy.items()))


def _medians(records: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.median([record[key] for record in records])) for key in records[0]}


# ---------------------------------------------------------------------- the learner step
class Bare(nn.Module):
    """The same network by hand: two tanh MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = mlp([*SIZES, 2], nn.Tanh), mlp([*SIZES, 1], nn.Tanh)


def bare_step(net: Bare, adam: FlatAdam, batch: dict[str, Tensor]) -> Tensor:
    """One update on segments `[N, U + 1]`, written out: both networks, V-trace step by step, losses, backward, Adam."""
    data = {name: value.transpose(0, 1) for name, value in batch.items()}
    real, action = data["mask"][:-1], data["action"][:-1, :, None]
    value = net.critic(data["obs"])[..., 0]  # [U + 1, N]
    log_p = torch.log_softmax(net.actor(data["obs"][:-1]), -1)
    log_prob = log_p.gather(-1, action)[..., 0]
    with torch.no_grad():
        behaviour = torch.log_softmax(data["logit"][:-1], -1).gather(-1, action)[..., 0]
        rho = (log_prob - behaviour).exp().clamp(max=1.0)
        discount = GAMMA * (1 - data["terminated"][:-1].float())
        delta = rho * (data["reward"][:-1] + discount * value[1:] - value[:-1])
        carried = discount * real * rho
        x, found = torch.zeros_like(value[0]), []
        for t in reversed(range(len(delta))):
            x = delta[t] + carried[t] * x
            found.append(x)
        ahead = torch.stack(found[::-1])  # [U, N]
        target = value[:-1] + ahead
        after = torch.cat([target[1:], value[-1:]])
        advantage = rho * (data["reward"][:-1] + discount * after - value[:-1])
    count = real.sum()
    policy_loss = -(log_prob * advantage * real).sum() / count
    value_loss = 0.5 * ((value[:-1] - target).square() * real).sum() / count
    entropy = -((log_p.exp() * log_p).sum(-1) * real).sum() / count
    loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
    adam.zero_grad()
    loss.backward()
    adam.clip(NORM)
    adam.step()
    return loss.detach()


def learner_variants(segments: int, repeat: int) -> dict[str, Callable[[], float]]:
    """Microseconds of one update on so many segments: the learner's whole step, and by hand."""
    parts = build(full_config(config("impala", "serial", 1, segments)), seed=0)
    parts.collector.collect(parts.store.push)
    learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
    batch = next(iter(parts.store.batches(1, segments)))
    arrays = {name: batch[name] for name in ("obs", "mask", "action", "logit", "terminated", "reward")}
    net = Bare()
    adam = FlatAdam(net, LR)
    calls: dict[str, Callable[[], object]] = {
        "learner step": lambda: learner.train(ArrayDict(batch), 0),
        "bare operations": lambda: bare_step(net, adam, torchify(arrays)),
    }
    return {name: lambda call=call: 1e6 * seconds(call, repeat) for name, call in calls.items()}


def main() -> None:
    args = parser(__doc__, rounds=5)
    args.add_argument("--workers", type=int, default=2)
    args.add_argument("--updates", type=int, default=40, help="of a portion of a run (default 40)")
    args.add_argument("--sleep", type=float, default=300.0, help="mean microseconds that a slow env sleeps in a step")
    options = args.parse_args()
    torch.manual_seed(0)
    common = options.rounds, options.workers, options.updates
    throughput("CartPole", *common)
    throughput(f"CartPole, {options.sleep:g} us a step", *common, us=options.sleep)
    throughput(f"CartPole, {options.sleep:g} us a step on average", *common, us=options.sleep, share=LONG_STEPS)
    for segments in (8, 32):
        updates = interleave(learner_variants(segments, 100), 2 * options.rounds)
        step = Check("learner step / bare operations", ratio(updates, "learner step", "bare operations"), 1.25, False)
        report(f"IMPALA learner step, {segments} segments of {UNROLL} steps", "us", updates, [step])


if __name__ == "__main__":
    main()
