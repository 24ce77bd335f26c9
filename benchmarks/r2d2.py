"""R2D2's learner step against its bare torch parts, and collecting with an LSTM policy against env and bare cell.

Learner step: observations of 8 numbers, an LSTM of 128 ('pytorch') behind one layer of 128, windows of 40 burn-in and
40 learning steps, batch 64, 5-step double Q. The bare parts: the same network by hand, online burn-in without gradient,
the 35 steps that train with it, the tail and the whole target without; gather, loss, backward, clip and Adam.
Collecting: 16 CartPole-v1 columns, against a bare loop that steps the envs and the same network by `LSTMCell`.

    python benchmarks/r2d2.py [--rounds 5]
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from bare import FlatAdam
from common import Check, interleave, parser, ratio, report, seconds
from torch import Tensor, nn

from ding_like.config import deep_merge_defaults
from ding_like.data import ArrayDict
from ding_like.envs import BaseEnvManager
from ding_like.envs.make import make_env
from ding_like.policy import R2D2Policy
from ding_like.worker import Learner, SampleCollector

OBS, ACTIONS, HIDDEN, BURNIN, UNROLL, NSTEP, BATCH, COLUMNS = 8, 4, 128, 40, 40, 5, 64, 16


def policy_of(obs: int, actions: int) -> R2D2Policy:
    """The policy of both measurements."""
    over = {
        "learn": {"learner": Learner.config, "target_theta": 0.01, "grad_clip_norm": 10.0, "learning_rate": 1e-4},
        "collect": {"collector": {}, "n_sample": 64},
        "model": {"encoder_hidden_size_list": [HIDDEN], "lstm_type": "pytorch", "dueling": False, "head_layer_num": 0},
        "burnin_step": BURNIN,
        "learn_unroll_len": UNROLL,
        "nstep": NSTEP,
    }
    cfg = deep_merge_defaults(R2D2Policy.default_config(), over)
    return R2D2Policy(cfg, shapes={"obs_shape": obs, "action_shape": actions})


class Bare(nn.Module):
    """The same network by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(OBS, HIDDEN), nn.Linear(HIDDEN, ACTIONS)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def forward(self, obs: Tensor, state: tuple) -> tuple[Tensor, tuple]:
        out, state = self.lstm(torch.relu(self.encoder(obs)), state)
        return self.head(out), state


def windows() -> ArrayDict:
    """A batch of windows `[N, U]` as a replay gives it."""
    rng, width = np.random.default_rng(0), BURNIN + UNROLL
    return ArrayDict(
        obs=rng.normal(size=(BATCH, width, OBS)).astype(np.float32),
        action=rng.integers(0, ACTIONS, (BATCH, width)),
        reward=rng.normal(size=(BATCH, width)).astype(np.float32),
        terminated=np.zeros((BATCH, width), bool),
        done=np.zeros((BATCH, width), bool),
        null=np.zeros((BATCH, width), bool),
        mask=np.ones((BATCH, width), np.float32),
        prev_state={name: np.zeros((BATCH, 1, 1, HIDDEN), np.float32) for name in ("h", "c")},
        weight=np.ones(BATCH, np.float32),
        index=np.arange(BATCH),
    )


def learner_step() -> Callable[[], None]:
    """One step of the learner, hooks and transposition included."""
    policy, batch = policy_of(OBS, ACTIONS), windows()
    learner = Learner(policy._cfg.learn.learner, policy.learn_mode)
    return lambda: learner.train(batch, 0) and None


def bare_step() -> Callable[[], None]:
    """The torch operations of one update."""
    net, target, batch = Bare(), Bare(), windows()
    optimizer = FlatAdam(net, 1e-4)
    obs, action, reward = (torch.as_tensor(batch[k]).transpose(0, 1).contiguous() for k in ("obs", "action", "reward"))
    weight, span = torch.as_tensor(batch["weight"]), UNROLL - NSTEP
    zeros = torch.zeros(1, BATCH, HIDDEN), torch.zeros(1, BATCH, HIDDEN)

    def step() -> None:
        with torch.no_grad():
            _, state = net(obs[:BURNIN], zeros)
        q, after = net(obs[BURNIN : BURNIN + span], state)
        with torch.no_grad():
            tail, _ = net(obs[BURNIN + span :], tuple(s.detach() for s in after))
            wanted, _ = target(obs, zeros)
            choice = torch.cat([q.detach(), tail])[NSTEP:].argmax(-1, keepdim=True)
            ahead = wanted[BURNIN + NSTEP :].gather(-1, choice).squeeze(-1)
            total = sum(0.99**i * reward[BURNIN + i : BURNIN + i + span] for i in range(NSTEP)) + 0.95 * ahead
        taken = q.gather(-1, action[BURNIN : BURNIN + span].unsqueeze(-1)).squeeze(-1)
        loss = (F.huber_loss(taken, total, reduction="none") * weight).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.clip(10.0)
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), net.parameters()):
                mine.lerp_(theirs, 0.01)

    return step


def collecting() -> Callable[[], None]:
    """64 windows of 16 columns, rows, states and windows stored."""
    policy = policy_of(4, 2)
    manager = BaseEnvManager([lambda: make_env({"type": "CartPole-v1"})] * COLUMNS)
    collector = SampleCollector(policy._cfg.collect, manager, policy.collect_mode)
    collector.collect()

    def run() -> None:
        before = collector.envstep
        collector.collect()
        run.steps = collector.envstep - before

    return run


def bare_collect(steps: int) -> Callable[[], None]:
    """The envs stepped by a plain loop, and one batched cell forward a row."""
    envs = [make_env({"type": "CartPole-v1"}) for _ in range(COLUMNS)]
    obs = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    encoder, head, cell = nn.Linear(4, HIDDEN), nn.Linear(HIDDEN, 2), nn.LSTMCell(HIDDEN, HIDDEN)
    state = [torch.zeros(COLUMNS, HIDDEN), torch.zeros(COLUMNS, HIDDEN)]

    def run() -> None:
        for _ in range(steps):
            with torch.inference_mode():
                state[:] = cell(torch.relu(encoder(torch.from_numpy(obs))), tuple(state))
                action = head(state[0]).argmax(-1).tolist()
            for b, env in enumerate(envs):
                obs[b], _, terminated, truncated, _ = env.step(action[b])
                if terminated or truncated:
                    obs[b] = env.reset()[0]

    return run


def main() -> None:
    args = parser(__doc__, rounds=5).parse_args()
    ours, bare, collect, loop = learner_step(), bare_step(), collecting(), bare_collect(100)

    def collected() -> float:
        return seconds(collect, 1) / collect.steps * 1e6

    variants = {
        "learner step, ms": lambda: 1e3 * seconds(ours, 10),
        "bare torch parts, ms": lambda: 1e3 * seconds(bare, 10),
        "collecting, us an env step": collected,
        "bare env loop and cell, us an env step": lambda: 1e6 * seconds(loop, 3) / (100 * COLUMNS),
    }
    results = interleave(variants, args.rounds)
    checks = [
        Check("learner step / bare parts", ratio(results, "learner step, ms", "bare torch parts, ms"), 1.3, False),
        Check("collecting / bare", ratio(results, *list(variants)[2:]), 1.5, False),
    ]
    report("R2D2", "ms, us", results, checks)


if __name__ == "__main__":
    main()
