"""The samplers: worker processes that collect against this process alone, and against what the envs themselves cost.

`wall` is what the clock says. `cpu` is what it would say if every process had a core for itself: the CPU time of this
process plus that of the busiest worker, which wait for each other; with `alternating` and `async` they do not, and the
longest counts, or what the cores can do together. A wake-up's time is in none. On a machine that others use `wall` says
little, and `cpu` is too low for all but bare loops, as others empty the caches.

    python -W ignore benchmarks/samplers.py [cartpole null busy pong hand_off auto async] [--rounds 5] [--workers 2]
"""

import gc
import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from common import Check, interleave, median, parser, ratio, report, seconds
from peers.busy import Busy
from torch import nn

from ding_like.entry import sampling
from ding_like.entry.build import Components, build, full_config
from ding_like.envs.make import make_env
from ding_like.utils import ENV_REGISTRY
from ding_like.utils.child import Child
from ding_like.utils.cores import usable_cores
from ding_like.worker import Learner

KINDS = ("wall", "cpu")
RLPYT = 20_600  # env steps/s of rlpyt's parallel CPU sampler, 2 cores, CartPole, MLP; measured once for this project
MLP = {
    "dqn": dict(encoder_hidden_size_list=[64, 64], dueling=False, head_layer_num=0),
    "ppo": dict(
        encoder_hidden_size_list=[64, 64],
        share_encoder=False,
        actor_head_layer_num=0,
        critic_head_layer_num=0,
        activation="tanh",
    ),
}
NATURE = dict(encoder_hidden_size_list=[32, 64, 64, 512], dueling=False, head_layer_num=0)
ATARI = [dict(type="atari", noop_max=30, frame_skip=4, screen_size=84, grayscale=True), dict(type="frame_stack", n=4)]
PONG = dict(type="ALE/Pong-v5", env_kwargs=dict(repeat_action_probability=0.0), wrappers=ATARI)


ENV_REGISTRY.register("bench_busy", Busy)


def burn_of(us: float) -> int:
    """How far to count in so many microseconds of CPU time."""
    env, times = Busy(20_000), []
    for _ in range(50):
        start = time.process_time()
        env.step(0)
        times.append(time.process_time() - start)
    return int(20_000 * us * 1e-6 / statistics.median(times))


# ---------------------------------------------------------------------- measuring
class Bench:
    """Variants that run in turn; each gives env steps/s in both ways."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.variants: dict[str, Callable[[], float]] = {}
        self.cpu: dict[str, list[float]] = {}
        self.parts: list[Components] = []

    def add(
        self, name: str, run: Callable[[], int], blocks: int = 1, workers: tuple[int, ...] = (), beside: bool = False
    ) -> None:
        """`run()` makes a block of env steps, in this process and those workers, and returns how many.

        Args:
            beside: the workers work while this process does.
        """
        cpu = self.cpu[name] = []

        def timed() -> float:
            theirs, mine, start = [_cpu(pid) for pid in workers], time.process_time(), time.perf_counter()
            total = sum(run() for _ in range(blocks))
            wall = time.perf_counter() - start
            mine, theirs = time.process_time() - mine, [_cpu(pid) - at for pid, at in zip(workers, theirs)]
            busiest = max(theirs, default=0.0)
            longest = max(mine, busiest, (mine + sum(theirs)) / usable_cores()) if beside else mine + busiest
            cpu.append(total / longest)
            return total / wall

        self.variants[name] = timed

    def collect(
        self, name: str, cfg: dict, sampler: str, workers: int = 1, blocks: int = 1, random: bool = False
    ) -> None:
        """Blocks of `n_sample` items into the policy's store."""
        cfg["policy"]["collect"]["collector"] = dict(sampler=sampler, num_workers=workers)
        parts = build(full_config(cfg), seed=0, mode="serial" if sampler == "serial" else "parallel")
        self.parts.append(parts)
        collector, store = parts.collector, parts.store

        def run() -> int:
            before = collector.envstep
            collector.collect(store.push, random=random)
            list(store.batches(0, 1 << 30))  # a rollout is forgotten
            return int(collector.envstep - before)

        self.add(name, run, blocks, worker_pids(parts), beside=sampler == "alternating")

    def results(self) -> dict[str, list[float]]:
        """The figures of every variant; ends the workers."""
        gc.collect()
        gc.freeze()
        try:
            wall = interleave(self.variants, self.rounds)
        finally:
            for parts in self.parts:
                parts.close()
        return {f"{name}, {kind}": each for name in wall for kind, each in zip(KINDS, (wall[name], self.cpu[name][1:]))}


def worker_pids(parts: Components) -> tuple[int, ...]:
    manager = parts.managers[0]
    if hasattr(manager, "slots"):
        return tuple(slot.child.pid for slot in manager.workers)
    return tuple(worker.child.pid for worker in manager._crew.workers) if hasattr(manager, "_crew") else ()


def _cpu(pid: int) -> float:
    """CPU seconds of a process: Linux reads another one's clock too (`clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2)


def checks(name: str, results: dict, over: str, under: str, target: float, factor: float = 1.0) -> list[Check]:
    """The ratio of two variants, by the wall and by CPU time."""
    return [
        Check(f"{name}, {kind}", factor * ratio(results, f"{over}, {kind}", f"{under}, {kind}"), target, at_least=True)
        for kind in KINDS
    ]


def tell(measure: str, unit: str, results: dict, told: list[Check]) -> None:
    report(measure, unit, results, told, cores=usable_cores())


def config(policy: str, env: dict, columns: int, rows: int, **model: Any) -> dict:
    """A run's config: so many columns, blocks of so many rows; MLP of 64x64 unless there is another model."""
    section: dict = dict(type=policy, model=model or MLP[policy], collect=dict(n_sample=rows * columns))
    if policy == "dqn":
        section["other"] = dict(replay_buffer=dict(replay_buffer_size=100_000), eps=dict(start=0.1, end=0.1))
    return dict(env=dict(**env, collector_env_num=columns, evaluator_env_num=1), policy=section)


# ---------------------------------------------------------------------- the measures
def cartpole(rounds: int, workers: int) -> None:
    """8 columns in this process against 8 in every worker, and what else 8 a worker can be collected with."""
    env = dict(type="CartPole-v1")
    total = 8 * workers
    for policy in ("ppo", "dqn"):
        for rows in (64, 128):
            bench, blocks = Bench(rounds), 1536 // rows
            bench.collect("serial, 8 columns", config(policy, env, 8, rows), "serial", 1, 2 * blocks)
            bench.collect("serial, all columns", config(policy, env, total, rows), "serial", 1, blocks)
            bench.collect("local", config(policy, env, total, rows), "local", workers, 2 * blocks)
            if rows == 128:
                for sampler in ("server", "alternating"):
                    bench.collect(sampler, config(policy, env, total, rows), sampler, workers, blocks)
            results = bench.results()
            told = checks("local / serial with 8 columns", results, "local", "serial, 8 columns", 1.6)
            rates = {kind: median(results, f"local, {kind}") / RLPYT for kind in KINDS}
            told += [Check(f"local / rlpyt, {kind}", rate, 2.5, at_least=True) for kind, rate in rates.items()]
            what = f"CartPole-v1, {policy} 64x64, {workers} workers of 8 columns, blocks of {rows} rows"
            tell(what, "env steps/s", results, told)


def null(rounds: int, workers: int) -> None:
    """An env that does nothing: what is left is ours."""
    env = dict(type="bench_busy", env_kwargs=dict(count=0))
    small = dict(encoder_hidden_size_list=[8], dueling=False, head_layer_num=0)
    bench, total = Bench(rounds), 64 * workers
    for name, random, policy in (("random policy", True, "dqn"), ("dqn 8", False, "dqn"), ("ppo 64x64", False, "ppo")):
        model = MLP["ppo"] if policy == "ppo" else small
        for sampler in ("local", "server"):
            cfg = config(policy, env, total, 128, **model)
            bench.collect(f"{sampler}, {name}", cfg, sampler, workers, 8 if sampler == "local" else 4, random)
    bare = Busy(0)

    def run() -> int:
        for _ in range(8192):
            if bare.step(0)[3]:
                bare.reset()
        return 8192

    bench.add("the env alone, one process", run, 16)
    results = bench.results()
    times = {name: [1e6 / value for value in values] for name, values in results.items()}
    told = [
        Check(f"{name}, {kind}", median(times, f"{name}, {kind}"), 1.0, at_least=False)
        for name in ("local, random policy", "local, dqn 8")
        for kind in KINDS
    ]
    tell(f"null env, {workers} workers of 64 columns, blocks of 128 rows", "us an env step", times, told)


def busy(rounds: int, workers: int) -> None:
    """Envs of 100 and 400 us: how much of the cores is left to them."""
    for us in (100, 400):
        burn, total = burn_of(us), 16 * workers
        env = dict(type="bench_busy", env_kwargs=dict(count=burn))
        bench, raw = Bench(rounds), Busy(burn)
        rows = 6400 // us
        for policy in ("dqn", "ppo"):
            bench.collect(f"local, {policy}", config(policy, env, total, rows), "local", workers, 4)
        for sampler in ("server", "alternating", "serial"):
            bench.collect(sampler, config("dqn", env, total, rows), sampler, workers, 2)

        def run(raw: Busy = raw, steps: int = 8 * rows) -> int:
            for _ in range(steps):
                if raw.step(0)[3]:
                    raw.reset()
            return steps

        bench.add("the env alone, one process", run, 8)
        results, told = bench.results(), []
        for policy in ("dqn", "ppo"):
            under = "the env alone, one process"
            told += checks(f"local, {policy} / (cores x env)", results, f"local, {policy}", under, 0.9, 1 / workers)
        tell(f"env of {us} us, {workers} workers of 16 columns, blocks of {rows} rows", "env steps/s", results, told)


def pong(rounds: int, workers: int) -> None:
    """Pong with the Nature network: against bare loops of env and forward, one on each core."""
    bench, columns, rows = Bench(rounds), 8 * workers, 8
    for sampler in ("local", "server", "alternating", "serial"):
        cfg = config("dqn", PONG, columns, rows, **NATURE)
        cfg["policy"]["other"]["replay_buffer"] = dict(replay_buffer_size=2000, frame_stack=4)
        bench.collect(sampler, cfg, sampler, workers, 4)
    envs, rng = [make_env(PONG) for _ in range(columns)], np.random.default_rng(0)
    for env in envs:
        env.reset(seed=0)
    net = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6),
    )  # fmt: skip
    frames = rng.integers(0, 255, (columns, 4, 84, 84), np.uint8)

    @torch.inference_mode()
    def bare(act: bool, step: bool, batch: int) -> int:
        """Rows of so many columns by the plain operations."""
        actions = rng.integers(0, 6, batch)
        for _ in range(rows):
            if act:
                actions = net(torch.from_numpy(frames[:batch]).float() / 255.0).argmax(1).numpy()
            for column, action in enumerate(actions.tolist() if step else ()):
                frames[column], _, terminated, truncated, _ = envs[column].step(action)
                if terminated or truncated:
                    frames[column] = envs[column].reset()[0]
        return rows * batch

    bench.add("env alone", partial(bare, False, True, columns), 4)
    bench.add("forward alone", partial(bare, True, False, columns), 4)
    bench.add("bare loop, a worker's columns", partial(bare, True, True, columns // workers), 8)
    results, told = bench.results(), []
    for kind in KINDS:
        pairs = zip(results[f"env alone, {kind}"], results[f"forward alone, {kind}"])
        results[f"env and forward apart, {kind}"] = [1 / (1 / env + 1 / forward) for env, forward in pairs]
    for name in ("bare loop, a worker's columns", "env and forward apart"):
        told += checks(f"local / (cores x {name})", results, "local", name, 0.8, 1 / workers)
        told += checks(f"serial / {name}", results, "serial", name, 0.8)
    what = f"Pong 84x84x4, Nature network, {workers} workers of 8 columns, blocks of {rows} rows"
    tell(what, "env steps/s", results, told)


def _echo(conn: Any) -> None:
    while True:
        kind, value = conn.recv()
        if kind == "close":
            return
        conn.send((kind, value))


def hand_off(rounds: int, workers: int) -> None:
    """A message to every worker and its answer: of one, of all at once."""
    children = [Child(f"echo {i}", _echo) for i in range(workers)]

    def trip(some: list[Child]) -> None:
        for child in some:
            child.send("step")
        for child in some:
            child.recv()

    variants = {"one worker": children[:1], f"{workers} workers": children}
    timed = {name: lambda some=some: 1e6 * seconds(partial(trip, some), 2000) for name, some in variants.items()}
    results = interleave(timed, rounds)
    for child in children:
        child.close()
    known, found = sampling.HAND_OFF_S * 1e6, median(results, f"{workers} workers")
    told = [
        Check("HAND_OFF_S of entry/sampling.py / measured, either way", max(known / found, found / known), 2, False)
    ]
    tell("a hand-off: message and answer", "us", results, told)


def async_(rounds: int, workers: int) -> None:
    """DQN that learns while one worker collects, against collecting and learning alone."""
    for updates in (4, 8, 16):
        bench, steps = Bench(rounds), 256
        bench.collect("collect alone", _dqn(steps, updates), "serial", 1, 4)
        for name, mode in (("in turn", "serial"), ("async", "async")):
            parts = build(full_config(_dqn(steps, updates)), seed=0, mode=mode)
            bench.parts.append(parts)
            learner = Learner(parts.cfg.policy.learn.learner, parts.policy.learn_mode)
            parts.collector.collect(parts.store.push, n_step=2048, random=True)
            bench.add(name, partial(_round, parts, learner), 8, worker_pids(parts), beside=mode == "async")
        bench.add("learn alone", partial(_round, parts, learner, steps), 8)
        results = bench.results()
        told = []
        for kind in KINDS:
            taken = {name: [1e6 / rate for rate in results[f"{name}, {kind}"]] for name in bench.variants}
            longer = [max(both) for both in zip(taken["collect alone"], taken["learn alone"])]
            share = statistics.median(a / b for a, b in zip(taken["async"], longer))
            told.append(Check(f"async / the longer of collect and learn, {kind}", share, 1.2, at_least=False))
        report(
            f"async DQN, CartPole-v1, 1 worker of 8 columns, {updates} updates every {steps} steps",
            "env steps/s",
            results,
            told,
        )


def _dqn(steps: int, updates: int) -> dict:
    cfg = config("dqn", dict(type="CartPole-v1"), 8, steps // 8)
    cfg["policy"]["collect"]["collector"] = dict(num_workers=1)
    cfg["policy"]["learn"] = dict(update_per_collect=updates, batch_size=128)
    return cfg


def _round(parts: Components, learner: Learner, only_learn: int = 0) -> int:
    """A round as the loop of a run makes it. Returns its env steps."""
    before = parts.collector.envstep
    if not only_learn:
        parts.collector.collect(parts.store.push)
        if parts.lag:
            parts.collector.begin()
    for batch in parts.store.batches(int(parts.policy.learn_mode.get_attribute("updates")), 128):
        learner.train(batch, before)
    return only_learn or int(parts.collector.envstep - before)


def auto(rounds: int, workers: int) -> None:
    """What `auto` chooses, against what is measured with every sampler."""
    names = ("serial", "local", "server", "alternating")
    busy_env = dict(type="bench_busy", env_kwargs=dict(count=burn_of(100)))
    cases: dict[str, Callable[[], dict]] = {
        "CartPole, ppo, 16 columns": lambda: config("ppo", dict(type="CartPole-v1"), 8 * workers, 64),
        "100 us, dqn, 16 columns": lambda: config("dqn", busy_env, 8 * workers, 32),
        "Pong, dqn, 8 columns": lambda: config("dqn", PONG, 4 * workers, 8, **NATURE),
    }
    for case, make in cases.items():
        bench = Bench(rounds)
        for sampler in names:
            cfg = make()
            cfg["policy"].setdefault("other", {})
            if "Pong" in case:
                cfg["policy"]["other"]["replay_buffer"] = dict(replay_buffer_size=2000, frame_stack=4)
            bench.collect(sampler, cfg, sampler, workers, 8 if "CartPole" in case else 2)
        cfg = make()
        cfg["policy"]["collect"]["collector"] = dict(sampler="auto", num_workers=workers)
        parts = build(full_config(cfg), seed=0, mode="parallel")
        chosen = str(parts.cfg.policy.collect.collector.sampler)
        parts.close()
        results = bench.results()
        best = max(names, key=lambda name: median(results, f"{name}, cpu"))
        share = median(results, f"{chosen}, cpu") / median(results, f"{best}, cpu")
        told = [Check(f"auto: {chosen}; best by cpu: {best}; speed of the one to the other", share, 0.9, at_least=True)]
        tell(f"auto for {case}", "env steps/s", results, told)


MEASURES = {f.__name__.rstrip("_"): f for f in (cartpole, null, busy, pong, hand_off, auto, async_)}


def main() -> None:
    args = parser(__doc__, rounds=5)
    args.add_argument("measures", nargs="*", help=f"of {' '.join(MEASURES)}; default: all")
    args.add_argument("--workers", type=int, default=2)
    options = args.parse_args()
    logging.getLogger("ding_like").setLevel(logging.ERROR)
    for name in options.measures or MEASURES:
        MEASURES[name](options.rounds, options.workers)


if __name__ == "__main__":
    main()
