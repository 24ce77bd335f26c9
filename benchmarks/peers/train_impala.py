"""Our side of the IMPALA cells: the work of another framework's run on CartPole-v1, learning included.

    train_impala.py --work rllib|ding [--secs 10] [--seed 0]

rllib: as `train_others.py --what rllib_impala`: 2 actors of 4 envs, unrolls of 50, an update for every 500 env steps, two
       networks 64x64 tanh. Here `-m async` without a barrier.
ding:  as `ding_parts.py --algo impala`, DI-engine's own config: one process of 8 envs, unrolls of 8, 4 updates of 16
       trajectories for every 128 env steps, a network 64x64. Here `-m serial`, three of four trajectories replayed.
"""

import argparse
import tempfile
import time

from common import emit, threads

import ding_like
from ding_like.config import deep_merge_defaults
from ding_like.entry.serial_entry import serial_pipeline
from ding_like.utils import HOOK_REGISTRY
from ding_like.worker import LearnerHook

WARM_UP = 3.0  # seconds that are not counted: a new process is slow at first
NET = dict(encoder_hidden_size_list=[64, 64], actor_head_layer_num=0, critic_head_layer_num=0)
WORKS = {
    "rllib": dict(
        learn_unroll_len=50,
        model=dict(NET, share_encoder=False, activation="tanh"),
        learn=dict(batch_size=10, optimizer="adam", learning_rate=5e-4),
        collect=dict(n_sample=10, collector=dict(num_workers=2)),
    ),
    "ding": dict(
        learn_unroll_len=8,
        discount_factor=0.9,
        model=NET,
        learn=dict(batch_size=16, optimizer="adam", learning_rate=5e-4, entropy_weight=1e-4, lambda_=0.95),
        collect=dict(n_sample=16),
        other=dict(replay_buffer=dict(replay_share=0.75, replay_buffer_size=1000)),
    ),
}
MODES = {"rllib": "async", "ding": "serial"}


@HOOK_REGISTRY.register("bench_clock")
class Clock(LearnerHook):
    """Counts env steps and updates from the end of the warm-up on, and stops the run after some seconds."""

    position = "after_iter"

    def __init__(self, seconds):
        self.seconds, self.born, self.first, self.last = seconds, time.perf_counter(), None, None
        Clock.made = self

    def __call__(self, learner):
        now = time.perf_counter()
        self.last = now, learner.envstep, learner.train_iter
        if self.first is None:
            if now - self.born > WARM_UP:
                self.first = self.last
        elif now - self.first[0] > self.seconds:
            learner.run.stop("measured")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORKS, required=True)
    parser.add_argument("--secs", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    threads(1)
    hook = dict(type="bench_clock", seconds=args.secs)
    cfg = dict(
        env=dict(type="CartPole-v1", collector_env_num=8, evaluator_env_num=1, n_evaluator_episode=1, stop_value=None),
        policy=dict(
            type="impala",
            learn=dict(learner=dict(hooks=[hook])),
            eval=dict(evaluator=dict(eval_freq=10**9)),
        ),
        resume=dict(enabled=False),
    )
    cfg["policy"] = deep_merge_defaults(cfg["policy"], WORKS[args.work])
    with tempfile.TemporaryDirectory(prefix="ours_") as folder:
        serial_pipeline(cfg, seed=args.seed, exp_name=f"{folder}/run", mode=MODES[args.work])
    (start, before, done), (end, after, updates) = Clock.made.first, Clock.made.last
    seconds, steps = end - start, after - before
    emit(
        measure="train",
        peer="ding_like",
        algo="impala",
        work=args.work,
        secs=seconds,
        sps=steps / seconds,
        updates=updates - done,
        env_steps=steps,
        version=ding_like.__version__,
    )


if __name__ == "__main__":
    main()
