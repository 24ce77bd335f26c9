"""Actors without a barrier: each hands over what it would have collected alone, and nobody waits for another."""

import functools
import time
from collections import Counter, defaultdict, deque

import numpy as np
import pytest
import torch

from ding_like.config import ConfigError
from ding_like.data import tree_index, tree_leaves, tree_map
from ding_like.entry import serial_pipeline
from ding_like.entry.build import build, full_config
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.impala import IMPALAPolicy
from ding_like.policy.r2d2 import R2D2Policy
from ding_like.utils import HOOK_REGISTRY
from tests.distributed.parts import Collecting, Elementwise, Leaky, is_gone, policy_maker, processes, within
from tests.distributed.test_golden import EPS, Seen, Whole, check_q, gru, moved, same
from tests.entry.resuming import Break, Crash
from tests.envs.toys import Count
from tests.envs.worker_toys import Diary, Fate
from tests.helpers import metrics, result, single, tiny_config

ENVS = [Diary] * 5
FIXED = dict(eps=dict(start=0.3, end=0.3, decay=1))  # a schedule would depend on who came first
CASES = {
    "1-step": policy_maker(DQNPolicy, Elementwise, other=FIXED),
    "3-step": policy_maker(DQNPolicy, Elementwise, nstep=3, other=FIXED),
    "trajectories": policy_maker(Whole, Elementwise, other=FIXED, collect={"max_traj_len": 9}),
    "windows": policy_maker(R2D2Policy, Leaky, nstep=2, burnin_step=2, learn_unroll_len=5, other=FIXED),
    "segments": policy_maker(IMPALAPolicy, Elementwise, learn_unroll_len=4),
}


@pytest.fixture(autouse=True)
def _in_time():
    with within(60):
        yield


def columns_of(run):
    """The rows of every env column, in the order they came: lists of arrays by field."""
    found = defaultdict(list)
    for block, (first, fresh, _) in zip(run.blocks, run.told):
        for b in range(block["reward"].shape[1]):
            found[first + b].append(tree_map(lambda a, b=b, fresh=fresh: a[fresh:, b], block))
    return {b: tree_map(lambda *parts: np.concatenate(parts), *parts) for b, parts in sorted(found.items())}


def fingerprints(items):
    """Every item, as bytes."""
    leaves = tree_leaves(items)
    return Counter(b"".join(np.ascontiguousarray(leaf[i]).tobytes() for leaf in leaves) for i in range(len(leaves[0])))


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_a_column_and_their_items_are_those_of_the_serial_sampler(name, slots):
    """Complete, in order and unmixed, bit for bit; the serial run has gone on longer.

    On a busy machine a worker may have had no turn yet.
    """
    with Collecting("free", 3, CASES[name], ENVS, n_sample=10, slots=slots) as run:
        run.collect(12)
    with Collecting("serial", 0, CASES[name], ENVS, n_sample=400) as wanted:
        wanted.collect()
    mine, theirs = columns_of(run), columns_of(wanted)
    assert mine.keys() <= theirs.keys() and sum(len(one["reward"]) for one in mine.values()) == run.collector.envstep
    for b, rows in mine.items():
        same(rows, tree_index(theirs[b], slice(len(rows["reward"]))), f"column {b}")
    count = Counter()
    for items in run.items:
        count += fingerprints(items)
    assert count.total() >= 12 * 10 and not count - functools.reduce(
        lambda a, b: a + b, map(fingerprints, wanted.items)
    )
    ends = sum(int((rows["terminated"] | rows["truncated"]).sum()) for rows in mine.values())
    assert run.collector.episode_count == ends > 3


@pytest.mark.parametrize("model", [None, gru])
def test_the_values_recomputed_with_the_parameters_told_are_those_that_acting_saw(model):
    over = {} if model is None else dict(nstep=2, burnin_step=1, learn_unroll_len=6)
    with Collecting("free", 2, policy_maker(Seen, model, other=EPS, **over), ENVS) as run:
        weights = {}
        for k in range(12):
            moved(run.policy, k)
            run.collector.train_iter = k
            weights[k] = tree_map(torch.clone, run.policy.get_model().state_dict())
            run.collect()
            time.sleep(0.01)
        assert len({step for *_, step in run.told}) > 4
        for block, (_, fresh, step) in zip(run.blocks, run.told):
            run.policy.get_model().load_state_dict(weights[step])
            check_q(run.policy, block, slice(fresh, None))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_worker_is_so_many_blocks_ahead_and_no_more(slots):
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 1), 1, 2)
    with Collecting("free", 1, make, [Count] * 2, n_sample=8, slots=slots) as run:
        lags = []
        for k in range(12):
            run.collector.train_iter = k
            run.collect()
            lags.append(k - run.collector.acted_at)
            end, beat = time.monotonic() + 5, run.manager.workers[0].beat.tree
            while beat[0] < (wanted := 4 * (k + 1 + slots)) and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(0.005)
            assert beat[0] == wanted  # rows: of the blocks taken, and of those that wait
        assert lags == [min(k, slots) for k in range(12)]


def test_a_slow_actor_delays_nobody():
    fns = [Count, functools.partial(Fate, "hang", 5, "step"), Count]
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 1), 1, 2)
    with Collecting("free", 3, make, fns, n_sample=6) as run:
        run.collect(20)
        counts = Counter(first for first, *_ in run.told)
        assert counts[1] <= 2 and min(counts[0], counts[2]) >= 10  # its third block holds the step that hangs
        pids = processes(run.manager)
        began = time.monotonic()
    assert time.monotonic() - began < 5 and all(is_gone(pid) for pid in pids)


def test_blocks_that_wait_are_taken_the_oldest_first(monkeypatch):
    make = policy_maker(DQNPolicy, functools.partial(Elementwise, 1), 1, 2)
    with Collecting("free", 3, make, [Count] * 3, n_sample=3, slots=4) as run:
        run.collect()
        time.sleep(0.3)  # each has filled all that it may
        lanes, taken = run.collector._rows, []
        real = lanes.next
        monkeypatch.setattr(lanes, "next", lambda: taken.append(real()) or taken[-1])
        run.collect(n_sample=12)
        done_at = [done["done_at"] for _, done in taken]
        assert done_at == sorted(done_at) and {lane.slot.number for lane, _ in taken} == {0, 1, 2}


def in_columns(lanes, monkeypatch):
    """Blocks are taken once all that were asked for are there, those of the first columns first."""
    real = lanes.next

    def first():
        while any(len(lane.answers) < lane._ordered - lane._taken for lane in lanes.lanes):
            lanes._listen()
            time.sleep(0.001)
        for k, lane in enumerate(lanes.lanes):
            lane.answers = deque((k, done) for _, done in lane.answers)
        return real()

    monkeypatch.setattr(lanes, "next", first)


def test_random_steps_are_as_many_as_were_asked_for_and_the_normaliser_sees_every_row_once(monkeypatch):
    make = policy_maker(DQNPolicy, Elementwise, norm_obs={"use_norm": True}, other=EPS)
    with Collecting("free", 2, make, ENVS, n_sample=10) as run:
        in_columns(run.collector._rows, monkeypatch)
        for n in (23, 21):
            before = run.collector.envstep
            run.collect(n_step=n, random=True)
            assert n <= run.collector.envstep - before < n + 2 * 3  # a block of the larger worker is not cut
            assert run.collector._rows.under_way == 0
        run.collect(6)
        taken = run.collector.envstep
        run.collect()
        assert float(run.policy.get_model().statistics[0].count) == pytest.approx(taken, abs=0.01)


class Spoilt(Count):
    """`Count` to 1000 whose 104th reward is none."""

    def step(self, action):
        obs, reward, *ends = super().step(action)
        return obs, float("nan") if self.t == 104 else reward, *ends


@pytest.mark.parametrize("workers", [2, 4])
def test_a_number_that_is_not_finite_is_named_by_its_column_and_row(workers):
    """Whoever went ahead, the row is that of the column."""
    make = policy_maker(IMPALAPolicy, functools.partial(Elementwise, 1), 1, 2, learn_unroll_len=5)
    fns = [functools.partial(Count, 1000)] * 3 + [functools.partial(Spoilt, 1000)]
    told = r"reward of env column 3 .* \(row 103 of that column\)"
    with Collecting("free", workers, make, fns, n_sample=8) as run, pytest.raises(FloatingPointError, match=told):
        run.collect(100)


# ---------------------------------------------------------------- whole runs
def impala():
    learn = dict(batch_size=4, learner=dict(hook=dict(log_show_after_iter=5), hooks=[dict(type="break")]))
    section = dict(type="impala", learn_unroll_len=5, learn=learn, eval=dict(evaluator=dict(eval_freq=10**6)))
    collect = dict(n_sample=4, collector=dict(num_workers=2))
    return {**single(tiny_config("run")), "policy": {**section, "collect": collect}}


@pytest.mark.usefixtures("in_tmp")
def test_a_run_that_broke_off_goes_on_from_its_counters_and_says_that_it_is_not_exact(caplog):
    caplog.set_level("INFO", "ding_like")
    HOOK_REGISTRY.register("break", Break)
    Break.at, made = 17, {**impala(), "resume": {"every": 0.0, "share": 1.0}}
    with pytest.raises(Crash):
        serial_pipeline(made, exp_name="run", max_train_iter=40, mode="async")
    assert "this run is not repeatable" in caplog.text
    serial_pipeline(made, exp_name="run", max_train_iter=40, mode="async", resume=True)
    assert "resuming run at env step" in caplog.text and "not exact: actors without a barrier" in caplog.text
    assert result("run")["train_iter"] == 40 and result("run")["env_step"] >= 40 * 4 * 5
    data = [line for line in metrics("run") if line["section"] == "data"]
    assert [line["train_iter"] for line in data] == sorted({line["train_iter"] for line in data}) and len(data) > 3
    for line in data:
        assert 0 <= line["lag_p50"] <= line["lag_p90"] <= line["lag_p99"] <= line["lag_max"] < 40
        assert line["age"] >= 0 and line["replay_ratio_now"] > 0


def test_a_policy_that_says_so_is_free_where_the_config_leaves_it_to_it():
    HOOK_REGISTRY.register("break", Break)
    for mode, barrier, free in (("async", None, True), ("async", True, False), ("parallel", None, False)):
        made = impala()
        made["policy"]["collect"]["collector"].update(barrier=barrier, sampler="local")
        parts = build(full_config(made), 0, mode=mode)
        parts.close()
        assert (type(parts.collector).__name__ == "FreeCollector") == free
        assert parts.lag == (1 if mode == "async" and barrier else 0)


@pytest.mark.parametrize(
    ("mode", "policy", "says"),
    [
        ("serial", {}, "collector.barrier: got False"),
        ("parallel", {}, "collector.barrier: got False"),
        ("async", {"type": "ppo", "nstep": 1, "learn": {"value_norm": True}}, "value_norm: got True"),
    ],
)
def test_what_has_no_sense_without_a_barrier_is_refused_by_name(mode, policy, says):
    made = single(tiny_config("run"))
    section = {"type": "dqn", "eval": made["policy"]["eval"], **policy}
    made["policy"] = {**section, "collect": {"collector": {"barrier": False, "num_workers": 1}}}
    with pytest.raises(ConfigError, match=says):
        build(full_config(made), 0, mode=mode)
