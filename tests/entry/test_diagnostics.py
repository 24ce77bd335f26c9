"""What a run says of its data and its time: lags and ages against plain bookkeeping, shares on a clock of our own."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.config import CfgDict
from ding_like.data import ArrayDict
from ding_like.entry import diagnostics, serial_pipeline
from ding_like.entry.curves import read_run
from ding_like.entry.diagnostics import Diagnostics, Origins, Phases
from ding_like.rl_utils.adder import get_nstep_return_data
from ding_like.worker import Replay, Rollout
from tests.helpers import Steps, metrics, result, tiny_config


def records(folder, section):
    return [line for line in metrics(folder) if line["section"] == section]


def made(store, log_freq=1, workers=0):
    """Diagnostics of a run whose counters the test sets."""
    parts = SimpleNamespace(collector=SimpleNamespace(envstep=0, waited=0.0, busy=[0.0] * workers), store=store)
    learner = SimpleNamespace(train_iter=0, log_freq=log_freq)
    return Diagnostics(parts, learner), parts.collector, learner


def replay(size):
    return Replay(CfgDict({**Replay.config, "replay_buffer_size": size}))


class Log:
    def __init__(self):
        self.records = []

    def log(self, values, envstep, train_iter, section):
        self.records.append((section, dict(values)))

    @property
    def data(self):
        return [values for section, values in self.records if section == diagnostics.DATA_SECTION]


# ------------------------------------------------------------------ where items come from
@settings(max_examples=40)
@given(size=st.integers(3, 40), seed=st.integers(0, 10**6), settle=st.integers(0, 3))
def test_items_of_a_replay_are_as_old_as_plain_bookkeeping_says(size, seed, settle):
    """Three columns, blocks of several lengths, many laps of the ring; the table takes pushes in at odd moments."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, max(2, size // 3), 12)
    store, truth = replay(size), {}
    origins = Origins(store)
    for i, block in enumerate(Steps(np.zeros((rows.sum() + 1, 3), int)).blocks(rows, nstep=1)):
        before = store.ring.end
        origins.push(get_nstep_return_data(block, 1, cum_reward=True, gamma=0.9), 7 * i, 100 + i)
        truth |= dict.fromkeys(range(before, store.ring.end), (7 * i, 100 + i))
        drawn = store.sample(9)["index"]
        if rng.random() < settle / 3:
            origins.settle()
        assert [tuple(row) for row in origins.find(drawn)] == [truth[s] for s in drawn.tolist()]


def test_items_drawn_before_they_were_overwritten_are_still_known():
    store = replay(4)
    origins = Origins(store)
    flat = dict(obs=np.zeros((4, 1), np.float32), reward=np.zeros(4))
    origins.push(flat, 1, 4)
    old = np.arange(4)
    origins.push(flat, 2, 8)
    assert origins.find(old).tolist() == [[1, 4]] * 4
    origins.settle()
    origins.push(flat, 3, 12)
    origins.push(flat, 4, 16)
    assert origins.find(np.arange(4, 16)).tolist() == [[2, 8]] * 4 + [[3, 12]] * 4 + [[4, 16]] * 4


@pytest.mark.parametrize("size", [6, 1000])
def test_origins_go_on_from_their_state(size):
    def push(origins, i):
        origins.push(dict(obs=np.zeros((4, 1), np.float32), reward=np.zeros(4)), i, 10 * i)

    straight, first, second = (Origins(replay(size)) for _ in range(3))
    for i in range(5):
        push(straight, i), push(first, i)
    second.load_state_dict(first.state_dict())
    second._store.load_state_dict(first._store.state_dict())
    for i in range(5, 8):
        push(straight, i), push(second, i)
    last = np.arange(32)[-min(size, 32) :]
    assert second.find(last).tolist() == straight.find(last).tolist() == [[s // 4, s // 4 * 10] for s in last]


def test_the_lag_of_a_rollout_counts_from_the_parameters_of_its_block():
    """Two epochs of two minibatches; the second round's first block was begun before the first round was trained on."""
    told, collector, learner = made(Rollout())
    log = Log()

    def round_(blocks, begin):
        for n in blocks:
            collector.envstep += n
            told.push(ArrayDict(reward=np.zeros(n)))
        if begin:
            told.ahead()
        told.before_batches()
        for batch in told._origins._store.batches(2, 3):
            told.note(batch)
            learner.train_iter += 1
        told.log(log)

    round_([6], begin=True)
    round_([4, 2], begin=True)
    round_([6], begin=False)
    lags = [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]
    assert [record["lag_max"] for record in log.data] == [max(one) for one in lags]
    # in the second round 4 of 6 items are of parameters 4 steps older than those of the other 2
    assert [record["lag"] for record in log.data] == pytest.approx([1.5, 1.5 + 4 * 4 / 6, 5.5])
    assert [record["age"] for record in log.data] == pytest.approx([0, 2 * 4 / 6, 0])
    assert [record["replay_ratio_now"] for record in log.data] == [2.0, 2.0, 2.0]


def test_of_a_replay_some_batches_stand_for_all():
    """Every third update of a log every 30: lags of its updates 0, 3, ..., all of one push."""
    told, collector, learner = made(replay(8), log_freq=30)
    log, collector.envstep = Log(), 8
    told.push(dict(obs=np.zeros((8, 1), np.float32), reward=np.zeros(8)))
    for batch in told._origins._store.batches(30, 4):
        told.note(batch)
        learner.train_iter += 1
    collector.envstep += 2
    told.log(log)
    shares = dict(lag_p50=12, lag_p90=24, lag_p99=27)
    assert log.data == [dict(lag=13.5, lag_max=27, **shares, age=0.0, replay_ratio=12.0, replay_ratio_now=12.0)]


def test_of_another_store_only_the_ratio_is_known():
    class Own:
        def push(self, items):
            return 4

    told, collector, learner = made(Own())
    log, collector.envstep = Log(), 8
    told.push({})
    told.before_batches()
    told.note(ArrayDict(obs=(np.zeros((6, 2)), np.zeros(6)), reward=np.zeros(6)))
    learner.train_iter = 1
    told.log(log)
    assert log.data == [{"replay_ratio": 0.75, "replay_ratio_now": 0.75}]


@settings(max_examples=30)
@given(
    rounds=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_lags_of_items_that_carry_their_origin_are_those_of_plain_bookkeeping(rounds, seed):
    """Blocks of parameters of any age, batches in any order, replayed ones too; what trains has no such field."""
    rng, truth, kept, log = np.random.default_rng(seed), [], [], Log()

    class Keeps:
        keeps_origin = True

        def push(self, items):
            kept.extend(zip(items["reward"].tolist(), items["origin"]))
            return len(items["reward"])

    told, collector, learner = made(Keeps(), log_freq=10**6)
    for blocks in rounds:
        told.collecting()
        assert collector.train_iter == learner.train_iter
        for n in blocks:
            collector.acted_at = int(rng.integers(0, learner.train_iter + 1))
            collector.envstep += n
            at = [collector.acted_at, collector.envstep]
            told.push({"reward": np.zeros(n)} if n % 2 else [{"reward": 0.0}] * n)
            kept[-n:] = [(at, origin) for _, origin in kept[-n:]]
        for _ in range(2):
            some = [kept[i] for i in rng.integers(0, len(kept), 5)]
            batch = ArrayDict(reward=np.zeros(5), origin=np.stack([origin for _, origin in some]))
            told.note(batch)
            truth += [(learner.train_iter - at[0], collector.envstep - at[1]) for at, _ in some]
            assert "origin" not in batch
            learner.train_iter += 1
    again, *_ = made(Keeps())
    again._collector, again._learner, learner.log_freq = collector, learner, 1
    again.load_state_dict(told.state_dict())
    again.log(log)
    lags, (record,) = np.sort([lag for lag, _ in truth]), log.data
    assert record["lag"] == pytest.approx(lags.mean()) and record["lag_max"] == lags[-1]
    assert record["age"] == pytest.approx(np.mean([age for _, age in truth]))
    for p in (50, 90, 99):
        assert record[f"lag_p{p}"] == np.percentile(lags, p, method="inverted_cdf")


# ------------------------------------------------------------------ time
@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr(diagnostics.time, "perf_counter", lambda: now.time)
    return now


def test_time_goes_to_what_the_loop_does(clock):
    phases = Phases()
    for phase, seconds in (("collect", 1), ("learn", 4), ("evaluate", 2), ("collect", 8), ("other", 16)):
        former = phases.enter(phase)
        clock.time += seconds
    assert former == "collect"
    assert phases.read() == {"collect": 9, "learn": 4, "evaluate": 2, "other": 16}


def test_rates_and_shares_are_those_since_the_last_record(clock):
    told, collector, learner = made(replay(9), log_freq=4, workers=2)
    log = Log()
    for turn in range(2):
        told.phases.enter("collect")
        clock.time += 2.0
        collector.envstep += 300
        collector.waited, collector.busy = 0.5 * (turn + 1), [1.0 * (turn + 1), 3.0 * (turn + 1)]
        told.phases.enter("learn")
        clock.time += 5.0
        learner.train_iter += 4 + turn
        told.phases.enter("other")
        clock.time += 1.0
        told.log(log)
        told.log(log)  # not due again
        clock.time += 0.5
        learner.train_iter += 4
        told.log(log)  # the data are, but of rates not a second has passed
    rates = [values for section, values in log.records if section == "rate"]
    assert len(rates) == 2
    for turn, (record, wall) in enumerate(zip(rates, (8.0, 8.5))):
        assert record == pytest.approx(
            {
                "envstep_per_s": 300 / wall,
                "collect_envstep_per_s": 300 / 3,  # the longest busy worker, as it works beside the learner
                "learn_iter_per_s": (4 + 5 * turn) / 5,
                "collect_share": 1.5 / wall,
                "wait_share": 0.5 / wall,
                "learn_share": 5 / wall,
                "evaluate_share": 0,
                "worker_0_busy": 1 / wall,
                "worker_1_busy": 3 / wall,
            }
        )


# ------------------------------------------------------------------ in a run
def test_a_run_logs_both_records_and_plots_can_read_them(in_tmp):
    serial_pipeline(tiny_config(), seed=0, max_train_iter=40)
    data = records("run", "data")
    assert [line["train_iter"] for line in data] == [6, 12, 18, 24, 30, 36]
    for before, line in zip([{"train_iter": 0, "envstep": 0}, *data], data):
        steps, updates = line["envstep"] - before["envstep"], line["train_iter"] - before["train_iter"]
        assert line["replay_ratio"] == 8 * line["train_iter"] / line["envstep"]
        assert line["replay_ratio_now"] == 8 * updates / steps
        assert 0 <= line["lag"] <= line["lag_max"] < line["train_iter"]
        assert 0 < line["age"] < line["envstep"]
    rates = read_run(in_tmp / "run", "learn_share", "rate")
    assert rates.x[-1] == result("run")["env_step"] and (rates.y > 0).all() and (rates.y <= 1).all()
    assert read_run(in_tmp / "run", "lag", "data").y.tolist() == [line["lag"] for line in data]


def test_what_was_collected_a_round_ago_is_a_round_of_updates_behind(in_tmp):
    """One update for each collect and a store that holds nothing but the last collect: no lag, no age."""
    small = dict(replay_buffer=dict(replay_buffer_size=8))
    policy = dict(nstep=1, learn=dict(update_per_collect=3), collect=dict(n_sample=8), other=small)
    serial_pipeline(tiny_config(**policy), seed=0, max_train_iter=30)
    for line in records("run", "data"):
        assert (line["lag"], line["lag_max"], line["age"]) == (1.0, 2, 0.0)  # updates 0, 1, 2 after the collect


@pytest.mark.system
def test_workers_are_seen_to_work_and_waited_for(in_tmp):
    """Async DQN: blocks are a round of updates behind; what is learned meanwhile is no waiting."""
    policy = dict(nstep=1, learn=dict(update_per_collect=3), collect=dict(n_sample=8, collector=dict(num_workers=2)))
    small = dict(replay_buffer=dict(replay_buffer_size=8))
    serial_pipeline(tiny_config(**policy, other=small), seed=0, max_train_iter=30, mode="async")
    lines = [json.loads(line) for line in (in_tmp / "run" / "metrics.jsonl").read_text().splitlines()]
    (rates,) = [line for line in lines if line["section"] == "rate"]
    assert 0 < rates["worker_0_busy"] < 1 and 0 < rates["worker_1_busy"] < 1 and 0 < rates["wait_share"] < 1
    shares = ("collect_share", "wait_share", "learn_share", "evaluate_share")
    assert all(rates[name] >= 0 for name in shares) and sum(rates[name] for name in shares) <= 1
    first, *later = records("run", "data")
    assert first["lag_max"] == 5
    for line in later:  # updates 3, 4, 5 after the parameters of the block
        assert (line["lag"], line["lag_max"], line["age"]) == (4.0, 5, 0.0)
