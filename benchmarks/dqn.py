"""DQN on CartPole-v1 with learning, and its learner step against the bare torch operations.

1 env, MLP 120-84, batch 128, one update per 4 env steps, 1,000 random steps first, ring of 10,000, target
copy every 500 env steps, Adam 2.5e-4: the work of `peers/train.py --algo dqn`, run by `serial_pipeline`
itself (evaluation not timed).

    python benchmarks/dqn.py [--rounds 5] [--steps 20000]
"""

import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from bare import BareEnvs, FlatAdam, dqn_step, mlp, numpy_actor
from common import Check, interleave, median, parser, ratio, report, seconds
from torch import Tensor, nn

from ding_like.data import torchify
from ding_like.entry.build import build, full_config
from ding_like.entry.serial_entry import serial_pipeline
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import Evaluator, Learner, LearnerHook

SIZES, BATCH, START, GAMMA, LR = [4, 120, 84, 2], 128, 1000, 0.99, 2.5e-4


def config(steps: int) -> dict:
    """The work above as one dictionary; evaluation only at start and end."""
    learner = dict(hooks=[dict(type="benchmark_start")])
    return dict(
        env=dict(type="CartPole-v1", collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            type="dqn",
            double=False,
            discount_factor=GAMMA,
            random_collect_size=START,
            model=dict(encoder_hidden_size_list=SIZES[1:-1], dueling=False, head_layer_num=0),
            learn=dict(batch_size=BATCH, learning_rate=LR, target_update_freq=125, learner=learner),
            collect=dict(n_sample=4),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            other=dict(
                eps=dict(type="linear", start=1.0, end=0.05, decay=steps // 2),
                replay_buffer=dict(replay_buffer_size=10_000),
            ),
        ),
    )


@HOOK_REGISTRY.register("benchmark_start")
class StartMark(LearnerHook):
    """When the last run began."""

    position = "before_run"
    at = 0.0

    def __call__(self, learner: Learner) -> None:
        StartMark.at = time.perf_counter()


def timed_run(cfg: dict, steps: int) -> float:
    """Env steps/s of `serial_pipeline`, random steps included, evaluations and set-up not.

    The config has the hook `benchmark_start` and evaluates at start and end only.
    """
    evaluations, evaluate = [], Evaluator.evaluate

    def timed(self: Evaluator) -> dict:
        start = time.perf_counter()
        result = evaluate(self)
        evaluations.append((start, time.perf_counter() - start))
        return result

    Evaluator.evaluate = timed
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            serial_pipeline(cfg, max_env_step=steps, exp_name=f"{folder}/run")
    finally:
        Evaluator.evaluate = evaluate
    (_, first), (end, _) = evaluations
    return steps / (end - first - StartMark.at)


def bare_loop(steps: int) -> float:
    """The same work by hand: numpy acting on parameter views, plain arrays for replay, flat fused Adam."""
    net = mlp(SIZES)
    adam, target = FlatAdam(net, LR), deepcopy(net)
    act, envs, rng = numpy_actor(net, 0.1), BareEnvs(1), np.random.default_rng(0)
    obs, next_obs = np.zeros((2, steps, 4), np.float32)
    action = np.zeros(steps, np.int64)
    start = time.perf_counter()
    for step in range(steps):
        obs[step] = envs.obs[0]
        chosen = act(envs.obs)
        envs.step(chosen)
        next_obs[step], action[step] = envs.obs[0], chosen[0]
        if step >= START and step % 4 == 0:
            rows = rng.integers(max(0, step - 10_000), step, BATCH)
            batch = {
                "obs": obs.take(rows, 0),
                "next_obs": next_obs.take(rows, 0),
                "action": action.take(rows),
            }
            batch |= {"reward": np.ones(BATCH, np.float32), "discount": np.full(BATCH, GAMMA, np.float32)}
            dqn_step(net, target, adam, torchify(batch))
        if step % 500 == 0:
            target.load_state_dict(net.state_dict())
    return steps / (time.perf_counter() - start)


class LayeredAdam:
    """torch's own Adam over the layers, for comparison with the flat one."""

    def __init__(self, net: nn.Module, lr: float) -> None:
        self._adam = torch.optim.Adam(net.parameters(), lr)
        self.zero_grad, self.step = self._adam.zero_grad, self._adam.step


def learner_variants(repeat: int) -> dict[str, Callable[[], float]]:
    """Microseconds of one update on one batch: the learner's whole step, and the bare operations."""
    parts = build(full_config(config(20_000)), seed=0)
    parts.collector.collect(parts.store.push, n_sample=START, random=True)
    learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
    batch = parts.store.sample(BATCH)
    tensors: dict[str, Tensor] = torchify(dict(dict.items(batch)))

    def bare(optimizer: type) -> Callable[[], object]:
        net = mlp(SIZES)
        adam, target = optimizer(net, LR), deepcopy(net)
        return lambda: dqn_step(net, target, adam, tensors)

    calls = {
        "learner step": lambda: learner.train(batch, 0),
        "bare operations, flat Adam": bare(FlatAdam),
        "bare operations, Adam over layers": bare(LayeredAdam),
    }
    return {name: lambda call=call: 1e6 * seconds(call, repeat) for name, call in calls.items()}


def main() -> None:
    args = parser(__doc__, rounds=5)
    args.add_argument("--steps", type=int, default=20_000, help="env steps of a run (default 20,000)")
    options = args.parse_args()
    torch.manual_seed(0)
    updates = interleave(learner_variants(500), 2 * options.rounds)
    step = Check(
        "learner step / bare operations, flat Adam",
        ratio(updates, "learner step", "bare operations, flat Adam"),
        1.25,
        at_least=False,
    )
    report("DQN learner step, batch 128", "us", updates, [step])
    runs = {
        "serial_pipeline": lambda: timed_run(config(options.steps), options.steps),
        "bare loop": lambda: bare_loop(options.steps),
    }
    results = interleave(runs, options.rounds)
    checks = [Check("serial_pipeline, env steps/s", median(results, "serial_pipeline"), 4050, at_least=True)]
    report("DQN on CartPole-v1, learning included", "env steps/s", results, checks, steps=options.steps)


if __name__ == "__main__":
    main()
