"""Whole runs under -m parallel and -m async: the numbers of the serial run, exact resume, graceful ends."""

import functools
from pathlib import Path

import pytest

from ding_like.config import deep_merge_defaults
from ding_like.entry import serial_pipeline
from ding_like.utils import ENV_REGISTRY, HOOK_REGISTRY
from tests.distributed.parts import Trace, truth, within
from tests.entry.resuming import OFTEN, Break, assert_equal_runs, broken_and_resumed, last_point
from tests.entry.test_resume import loaded, on_policy
from tests.helpers import metrics, result, single, tiny_config

pytestmark = pytest.mark.usefixtures("in_tmp")
MODES = {
    "local": ("parallel", "local"),
    "server": ("parallel", "server"),
    "alternating": ("parallel", "alternating"),
    "async": ("async", "local"),
}


@pytest.fixture(autouse=True)
def _hook():
    HOOK_REGISTRY.register("break", Break)
    Break.at = None
    with within(120):
        yield


def configured(made, sampler="local", **collector):
    collector = {"sampler": sampler, "num_workers": 2, **collector}
    collect = {"collect": {"collector": collector}, "learn": {"learner": {"hooks": [{"type": "break"}]}}}
    return deep_merge_defaults(made, {"resume": OFTEN, "policy": collect})


def dqn(**over):
    over = deep_merge_defaults(dict(nstep=3, norm_obs={"use_norm": True}, random_collect_size=20), over)
    return single(tiny_config("run", **over))


def r2d2():
    model = {"encoder_hidden_size_list": [8], "lstm_type": "gru"}
    made = single(tiny_config("run", nstep=2, burnin_step=3, learn_unroll_len=6, model=model, collect={"n_sample": 4}))
    made["policy"]["type"], made["policy"]["learn"]["batch_size"] = "r2d2", 4
    return made


def segments():
    model = {"encoder_hidden_size_list": [8], "lstm_type": "pytorch", "share_encoder": False}
    return on_policy(model=model, learn_unroll_len=8, collect={"n_sample": 8}, learn={"batch_size": 2})


def units():
    return on_policy(norm_obs={"use_norm": True}, learn={"value_norm": True})


RUNS = {
    "units": (units, [6, 19]),
    "dqn": (dqn, [13, 25]),
    "ppo": (on_policy, [6, 19]),
    "r2d2": (r2d2, [7, 15]),
    "segments": (segments, [5, 13]),
}


@pytest.mark.system
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_broken_off_twice_ends_as_one_never_stopped(name, mode):
    make, at = RUNS[name]
    mode, sampler = MODES[mode]
    made = configured(make(), sampler)
    serial_pipeline(made, exp_name="straight", max_train_iter=30, mode=mode)
    broken_and_resumed(made, at, max_train_iter=30, mode=mode)
    assert_equal_runs(Path("straight"), Path("broken"))
    one, other = result("straight"), result("broken")
    assert {**one, "wall_time_s": 0} == {**other, "wall_time_s": 0}


def plain(folder):
    """The metrics without rates and times."""
    return [{k: v for k, v in line.items() if not k.endswith(("_s", "_ms", "rate"))} for line in metrics(folder)]


@pytest.mark.parametrize("mode", ["local", "server", "alternating", "async"])
def test_resume_points_change_nothing_also_of_what_is_in_flight(mode):
    mode, sampler = MODES[mode]
    made = configured(dqn(), sampler)
    serial_pipeline(made, exp_name="with", max_train_iter=20, mode=mode)
    serial_pipeline(
        deep_merge_defaults(made, {"resume": {"enabled": False}}), exp_name="without", max_train_iter=20, mode=mode
    )
    assert plain("with") == plain("without")


@pytest.mark.parametrize("mode", ["local", "server", "alternating", "async with lag 0"])
def test_a_small_run_has_the_numbers_of_the_serial_one(mode):
    """Equal to the bit here, as every worker has one column and NumPy multiplies row by row."""
    lag = {"lag": 0} if "lag" in mode else {}
    mode, sampler = MODES[mode.split()[0]]
    made = configured(dqn(), sampler, **lag)
    serial_pipeline(made, exp_name="serial", max_train_iter=30)
    serial_pipeline(made, exp_name="other", max_train_iter=30, mode=mode)
    one, other = plain("serial"), plain("other")
    assert [line.keys() for line in one] == [line.keys() for line in other]
    for a, b in zip(one, other):
        for key, value in a.items():
            assert b[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value)


def steps_are_true(folder, nstep):
    batch = loaded(folder).sample(2000)
    for (episode, t, _), (later, after, _), reward in zip(batch["obs"], batch["next_obs"], batch["reward"]):
        assert episode == later and 1 <= after - t <= nstep
        rewards = [truth(int(episode), int(t) + k)[0] for k in range(int(after - t))]
        assert abs(reward - sum(0.99**k * r for k, r in enumerate(rewards))) < 1e-3


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("mode", ["local", "async"])
def test_with_another_number_of_workers_it_goes_on_truncated_and_says_so(mode, nstep, caplog):
    caplog.set_level("INFO", "ding_like")
    ENV_REGISTRY.register("trace", Trace)
    mode, sampler = MODES[mode]
    made = configured(single(tiny_config("run", nstep=nstep)), sampler, num_workers=1)
    made["env"]["type"] = "trace"
    serial_pipeline(made, exp_name="run", max_train_iter=20, mode=mode)
    made["policy"]["collect"]["collector"]["num_workers"] = 2
    serial_pipeline(made, exp_name="run", max_train_iter=60, mode=mode, resume=True)
    assert "not exact" in caplog.text and "its env columns were in 1 workers, now they are in 2" in caplog.text
    steps_are_true(Path("run"), nstep)
    point = last_point(Path("run"))
    assert point[".collector.not_exact"] is None


def test_the_server_sampler_goes_on_exactly_with_another_number_of_workers():
    make = functools.partial(configured, dqn(), "server")
    serial_pipeline(make(), exp_name="straight", max_train_iter=30, mode="parallel")
    serial_pipeline(make(num_workers=1), exp_name="changed", max_train_iter=16, mode="parallel")
    serial_pipeline(make(), exp_name="changed", max_train_iter=30, mode="parallel", resume=True)
    assert_equal_runs(Path("straight"), Path("changed"))
