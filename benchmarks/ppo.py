"""PPO on CartPole-v1 with learning, and its minibatch update against the bare torch operations.

8 envs x 128 steps, 4 epochs, minibatch 256, separate 64x64 tanh actor and critic, Adam 2.5e-4: the work of
`peers/train.py --algo ppo`, run by `serial_pipeline` itself (evaluation not timed).

    python benchmarks/ppo.py [--rounds 5] [--steps 102400]
"""

from collections.abc import Callable

import numpy as np
import torch
from bare import FlatAdam, mlp
from common import Check, interleave, median, parser, ratio, report, seconds
from dqn import timed_run
from torch import Tensor, nn

from ding_like.data import torchify
from ding_like.entry.build import build, full_config
from ding_like.worker import Learner

SIZES, BATCH, LR, CLIP, NORM = [4, 64, 64], 256, 2.5e-4, 0.2, 0.5


def config() -> dict:
    """The work above as one dictionary; evaluation only at start and end."""
    return dict(
        env=dict(type="CartPole-v1", collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            type="ppo",
            discount_factor=0.99,
            model=dict(
                encoder_hidden_size_list=SIZES[1:],
                share_encoder=False,
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                activation="tanh",
            ),
            learn=dict(
                epoch_per_collect=4,
                batch_size=BATCH,
                learning_rate=LR,
                clip_ratio=CLIP,
                grad_clip_norm=NORM,
                learner=dict(hooks=[dict(type="benchmark_start")]),
            ),
            collect=dict(n_sample=1024),
            eval=dict(evaluator=dict(eval_freq=10**9)),
        ),
    )


class Bare(nn.Module):
    """The same network by hand: two tanh MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = mlp([*SIZES, 2], nn.Tanh), mlp([*SIZES, 1], nn.Tanh)


def bare_step(net: Bare, adam: FlatAdam, data: dict[str, Tensor]) -> tuple:
    """One PPO minibatch, written out: forward, clipped loss, backward, clip, Adam."""
    log_p = torch.log_softmax(net.actor(data["obs"]), -1)
    log_prob = log_p.gather(-1, data["action"][:, None])[:, 0]
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    std, mean = torch.std_mean(data["adv"])
    adv = (data["adv"] - mean) / (std + 1e-8)
    ratio_ = (log_prob - data["log_prob"]).exp()
    actor = -torch.minimum(ratio_ * adv, ratio_.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
    critic = 0.5 * (net.critic(data["obs"])[:, 0] - data["return_"]).square().mean()
    loss = actor + 0.5 * critic - 0.01 * entropy
    adam.zero_grad()
    loss.backward()
    adam.clip(NORM)
    adam.step()
    with torch.no_grad():  # what every implementation logs
        kl = (ratio_ - 1 - (log_prob - data["log_prob"])).mean()
        clipped = ((ratio_ - 1).abs() > CLIP).float().mean()
    return float(loss.detach()), kl, clipped


def update_variants(repeat: int) -> dict[str, Callable[[], float]]:
    """Microseconds of one minibatch: gathered and trained on by the library, and by hand."""
    parts = build(full_config(config()), seed=0)
    parts.collector.collect(parts.store.push)
    learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
    batches = list(parts.store.batches(1, BATCH))
    data = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0] if name != "index"}
    order = np.random.default_rng(0).permutation(1024)[:BATCH]
    net = Bare()
    adam = FlatAdam(net, LR)

    def gather() -> dict[str, np.ndarray]:
        return {k: v.take(order, 0) for k, v in data.items()}

    calls = {
        "library": lambda: learner.train(gather(), 0),
        "bare operations": lambda: bare_step(net, adam, torchify(gather())),
    }
    return {name: lambda call=call: 1e6 * seconds(call, repeat) for name, call in calls.items()}


def main() -> None:
    args = parser(__doc__, rounds=5)
    args.add_argument("--steps", type=int, default=102_400, help="env steps of a run (default 102,400)")
    options = args.parse_args()
    torch.manual_seed(0)
    updates = interleave(update_variants(200), 2 * options.rounds)
    step = Check("library / bare operations", ratio(updates, "library", "bare operations"), 1.1, at_least=False)
    report("PPO minibatch update, 256 samples", "us", updates, [step])
    runs = {"serial_pipeline": lambda: timed_run(config(), options.steps)}
    results = interleave(runs, options.rounds)
    checks = [Check("serial_pipeline, env steps/s", median(results, "serial_pipeline"), 22_000, at_least=True)]
    report("PPO on CartPole-v1, learning included", "env steps/s", results, checks, steps=options.steps)


if __name__ == "__main__":
    main()
