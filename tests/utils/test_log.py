import json
import logging
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import ding_like.utils.log as log
from ding_like.utils.log import Logger, get_logger, warn_once
from ding_like.utils.progress import Progress


def _lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _scalars(folder):
    """(tag, step, value) of all event files, in the order of writing."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted((folder / "log").glob("events.*")):
        data = path.read_bytes()
        while data:  # a record: length (8 bytes), its checksum (4), the event, its checksum (4)
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_each_call_is_one_json_line_with_its_counters(tmp_path):
    with Logger(tmp_path, tensorboard=False, console=False) as logger:
        logger.log({"loss": np.float32(0.5), "n": np.int64(3), "name": "x", "ok": True}, 100, 7, "learner")
        logger.log({"loss": 1}, 200, 8, "learner")
    first, second = _lines(tmp_path)
    assert 0 <= first.pop("wall_time_s") < 60
    assert first == {
        "section": "learner", "envstep": 100, "train_iter": 7, "loss": 0.5, "n": 3, "name": "x", "ok": True
    }  # fmt: skip
    assert (second["envstep"], second["loss"]) == (200, 1)


def test_a_line_is_on_disk_before_close(tmp_path):
    logger = Logger(tmp_path, tensorboard=False, console=False)
    logger.log({"loss": 1.0}, 1, 1, "learner")
    assert len(_lines(tmp_path)) == 1
    logger.close()


def test_torch_scalars_are_numbers(tmp_path):
    torch = pytest.importorskip("torch")
    with Logger(tmp_path, tensorboard=False, console=False) as logger:
        logger.log({"loss": torch.tensor(2.0, requires_grad=True), "one": torch.ones(1)}, 1, 1, "learner")
    assert (_lines(tmp_path)[0]["loss"], _lines(tmp_path)[0]["one"]) == (2.0, 1.0)


def test_numbers_that_are_not_finite_are_null_and_leave_tensorboard_alone(tmp_path):
    with Logger(tmp_path, console=False) as logger:
        logger.log({"a": float("nan"), "b": np.float64("inf"), "c": 1.0}, 10, 1, "learner")
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert (_lines(tmp_path)[0]["a"], _lines(tmp_path)[0]["b"]) == (None, None)
    assert [tag for tag, _, _ in _scalars(tmp_path)] == ["learner/c"]


def test_tensorboard_steps_are_env_steps_strictly_increasing_per_tag_and_the_last_value_wins(tmp_path):
    """B57: 4 epochs at one env step are one point; the last step is the run's last env step."""
    with Logger(tmp_path, console=False) as logger:
        for envstep in range(100, 1001, 100):
            for epoch in range(4):
                logger.log({"loss": envstep + epoch, "second": -epoch}, envstep, envstep // 25 + epoch, "learner")
        logger.log({"loss": 5.0}, 900, 99, "learner")
        logger.log({"eval_value": 9.0}, 1000, 99, "eval")
    scalars = _scalars(tmp_path)
    for tag, wanted in (
        ("learner/loss", [e + 3 for e in range(100, 1001, 100)]),
        ("learner/second", [-3] * 10),
    ):
        points = [(step, value) for name, step, value in scalars if name == tag]
        assert [step for step, _ in points] == list(range(100, 1001, 100))
        assert [value for _, value in points] == wanted
    assert ("eval/eval_value", 1000, 9.0) in scalars
    assert len(_lines(tmp_path)) == 42  # the file keeps every call


def test_close_is_idempotent_and_a_closed_logger_says_so(tmp_path):
    logger = Logger(tmp_path, console=False)
    logger.log({"a": 1}, 1, 1, "learner")
    logger.close()
    logger.close()
    assert len(_scalars(tmp_path)) == 1
    with pytest.raises(ValueError, match=r"log of section 'eval': the logger is closed"):
        logger.log({"a": 1}, 2, 1, "eval")


def test_no_folder_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Logger(None, console=False) as logger:
        logger.log({"a": 1}, 1, 1, "learner")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"td": np.ones(3)}, TypeError, "log: td is a ndarray, wanted a number; log its mean"),
        ({"x": [1]}, TypeError, "log: x is a list, wanted a number"),
        ({"x": None}, TypeError, "log: x is a NoneType, wanted a number"),
        ({"envstep": 1}, ValueError, "log: the key 'envstep' is the record's own; choose another name"),
    ],
)
def test_a_value_that_is_no_scalar_raises_by_name_and_writes_nothing(tmp_path, values, error, message):
    with Logger(tmp_path, tensorboard=False, console=False) as logger:
        with pytest.raises(error, match=message):
            logger.log(values, 1, 1, "learner")
        assert _lines(tmp_path) == []


def test_evaluations_are_console_lines(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with Logger(None) as logger:
        logger.log({"eval_value": 123.456, "n_episode": 8}, 12000, 500, "eval")
        logger.log({"loss": 1.0}, 12000, 500, "learner")
    assert [r.getMessage() for r in caplog.records] == [
        "eval | envstep 12,000 | train_iter 500 | eval_value 123.5 | n_episode 8"
    ]


def test_warn_once_says_each_key_once(caplog, monkeypatch):
    monkeypatch.setattr(log, "_warned", set())
    for key in ("a", "b", "a"):
        warn_once(key, f"about {key}")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "about a"),
        ("WARNING", "about b"),
    ]


def test_loggers_hang_below_the_package():
    assert get_logger().name == "ding_like"
    assert get_logger("collector").name == "ding_like.collector"
    assert get_logger("ding_like.worker").name == "ding_like.worker"


def test_lines_go_to_stderr_and_a_programs_own_logging_is_left_alone():
    code = (
        "import logging, sys; {setup}; from ding_like.utils.log import get_logger, setup_console;"
        "setup_console(); setup_console(); get_logger().info('hello'); get_logger().warning('careful')"
    )
    done = [
        subprocess.run([sys.executable, "-c", code.format(setup=setup)], capture_output=True, text=True, check=True)
        for setup in ("pass", "logging.basicConfig(format='own %(message)s', level='WARNING')")
    ]
    assert [d.stdout for d in done] == ["", ""]
    assert done[0].stderr == "hello\nwarning: careful\n"
    assert done[1].stderr == "own careful\n"


def test_plain_progress_lines_come_at_their_pace_with_rate_return_and_eta(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with Progress(max_env_step=10000, plain_every_s=10, terminal=False) as progress:
        for step in range(0, 3001, 100):  # 100 steps a second
            progress.update(step, step // 10, return_=20.0 if step == 500 else None)
            clock[0] += 1.0
    assert [r.getMessage() for r in caplog.records] == [
        "envstep 1,000/10,000 | 100 steps/s | return 20 | train_iter 100 | ETA 0:01:30",
        "envstep 2,000/10,000 | 100 steps/s | return 20 | train_iter 200 | ETA 0:01:20",
        "envstep 3,000/10,000 | 100 steps/s | return 20 | train_iter 300 | ETA 0:01:10",
    ]


def test_without_limits_there_is_no_eta_and_the_nearer_limit_counts(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    for limits in ({"max_env_step": int(1e10)}, {"max_env_step": 100000, "max_train_iter": 20}):
        progress = Progress(**limits, plain_every_s=1, terminal=False)
        progress.update(0, 0)
        clock[0] += 1.0
        progress.update(100, 10)
    first, second = [r.getMessage() for r in caplog.records]
    assert first == "envstep 100 | 100 steps/s | train_iter 10"
    assert second == "envstep 100/100,000 | 100 steps/s | train_iter 10 | ETA 0:00:01"


def test_on_a_terminal_it_draws_one_line_at_most_four_times_a_second(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    progress = Progress(max_env_step=1000, terminal=True)
    draws = []
    monkeypatch.setattr(progress._live, "update", lambda line, refresh: draws.append(line.plain))
    for step in range(1000):
        progress.update(step, 0)
        clock[0] += 0.001
    progress.close()
    progress.close()
    assert len(draws) == 3
    assert draws[0].startswith("envstep 250/1,000 | 1,000 steps/s | train_iter 0 | ETA 0:00:00")


def _full(*_, **__):
    raise OSError(28, "No space left on device")


def test_events_that_cannot_be_written_are_dropped_once_and_the_run_goes_on(tmp_path, caplog, monkeypatch):
    """A writer whose thread died of a full disk would wait for ever; here the failure is seen where it happens."""
    logger = Logger(tmp_path, console=False)
    logger.log({"a": 1.0}, 1, 1, "learner")
    logger.log({"a": 2.0}, 2, 2, "learner")
    monkeypatch.setattr(logger._events._writer, "write_event", _full)
    for step in range(3, 50):
        logger.log({"a": 1.0}, step, step, "learner")
    logger.close()
    assert len(_lines(tmp_path)) == 49
    assert len(caplog.records) == 1
    assert "log cannot be written: No space left on device; the run goes on without it" in caplog.text


def test_events_that_cannot_be_flushed_at_the_end_are_said(tmp_path, caplog, monkeypatch):
    logger = Logger(tmp_path, console=False)
    logger.log({"a": 1.0}, 1, 1, "learner")
    logger.log({"a": 2.0}, 2, 2, "learner")
    monkeypatch.setattr(logger._events._writer, "close", _full)
    logger.close()
    assert "the run goes on without it" in caplog.text


def test_metrics_that_cannot_be_written_are_an_error_that_names_the_file(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    logger = Logger(tmp_path, tensorboard=False, console=False)
    with pytest.raises(log.RunFolderError, match=r"metrics\.jsonl cannot be written: No space .*; free some space"):
        logger.log({"a": 1.0}, 1, 1, "learner")
    logger.close()


# ------------------------------------------------------------------ going on after a kill
def _log_steps(logger, start, stop):
    for step in range(start, stop):
        logger.log({"loss": float(step)}, 10 * step, step, "learner")
        if step % 3 == 0:
            logger.log({"eval_value": -float(step)}, 10 * step, step, "eval")


def _without_time(folder):
    return [{k: v for k, v in line.items() if k != "wall_time_s"} for line in _lines(folder)]


def _points(folder):
    """The points of each tag, in the order in which a reader of the folder meets them."""
    tags = {}
    for tag, step, value in _scalars(folder):
        tags.setdefault(tag, []).append((step, value))
    return tags


@pytest.mark.parametrize("kills", [(0,), (7,), (4, 11), (1, 2, 13)])
def test_a_killed_and_resumed_run_logs_what_one_never_stopped_does(tmp_path, kills):
    """B55: no record twice, no tag with an overlap or a gap, the times continued."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    straight.mkdir()
    killed.mkdir()
    with Logger(straight, console=False) as logger:
        _log_steps(logger, 0, 20)
    state, start = None, 0
    for kill in kills:
        logger = Logger(killed, console=False, resume=state)
        _log_steps(logger, start, kill)
        state, start = logger.state_dict(), kill
        _log_steps(logger, kill, kill + 4)  # after the resume point, lost; some of it is in the event file
        logger._events and logger._events.flush()
        with (killed / "metrics.jsonl").open("a") as file:
            file.write('{"section": "ev')  # the kill came while a line was written
    with Logger(killed, console=False, resume=json.loads(json.dumps(state))) as logger:
        _log_steps(logger, start, 20)
    assert _without_time(killed) == _without_time(straight)
    assert _points(killed) == _points(straight)
    times = [line["wall_time_s"] for line in _lines(killed)]
    assert times == sorted(times)


def test_a_finished_run_that_goes_on_has_its_last_points_once(tmp_path):
    """B55: `close` writes the newest value of each tag, which the state of before holds as pending."""
    with Logger(tmp_path, console=False) as logger:
        _log_steps(logger, 0, 5)
        state = logger.state_dict()
        _log_steps(logger, 5, 8)
    with Logger(tmp_path, console=False, resume=state) as logger:
        _log_steps(logger, 5, 10)
    assert _points(tmp_path)["learner/loss"] == [(10 * step, float(step)) for step in range(10)]


def test_times_go_on_from_the_seconds_before(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    logger = Logger(tmp_path, tensorboard=False, console=False)
    clock[0] = 130.0
    state = logger.state_dict()
    assert state == {"metrics_bytes": 0, "elapsed": 30.0, "pending": {}, "events": {}}
    clock[0] = 7.0  # another process
    logger = Logger(tmp_path, tensorboard=False, console=False, resume=state)
    clock[0] = 9.5
    logger.log({"a": 1}, 1, 1, "learner")
    assert _lines(tmp_path)[0]["wall_time_s"] == 32.5


@pytest.mark.parametrize("damage", ["shorter", "missing"])
def test_metrics_that_were_changed_since_the_resume_point_are_named(tmp_path, damage):
    with Logger(tmp_path, tensorboard=False, console=False) as logger:
        logger.log({"a": 1}, 1, 1, "learner")
        state = logger.state_dict()
    path = tmp_path / "metrics.jsonl"
    size = path.stat().st_size
    path.write_text("{}\n") if damage == "shorter" else path.unlink()
    found = "holds 3 bytes" if damage == "shorter" else "is missing"
    with pytest.raises(
        log.RunFolderError, match=rf"metrics\.jsonl {found}, and held {size} bytes when the resume point"
    ):
        Logger(tmp_path, tensorboard=False, console=False, resume=state)


def test_a_lost_event_file_is_said_and_the_run_goes_on(tmp_path, caplog):
    with Logger(tmp_path, console=False) as logger:
        _log_steps(logger, 0, 5)
        state = logger.state_dict()
    (name,) = state["events"]
    (tmp_path / "log" / name).unlink()
    with Logger(tmp_path, console=False, resume=state) as logger:
        _log_steps(logger, 5, 8)
    assert "a gap in TensorBoard's curves" in caplog.text
    assert [step for step, _ in _points(tmp_path)["learner/loss"]] == [40, 50, 60, 70]


def test_a_state_says_what_is_on_disk(tmp_path):
    """What it counts survives a kill: the events are flushed, though their writer waits for seconds."""
    logger = Logger(tmp_path, console=False)
    _log_steps(logger, 0, 5)
    state = logger.state_dict()
    assert state["metrics_bytes"] == (tmp_path / "metrics.jsonl").stat().st_size
    assert len(_points(tmp_path)["learner/loss"]) == 4
    assert state["pending"] == {"learner/loss": [40, 4.0], "eval/eval_value": [30, -3.0]}
    logger.close()


def test_a_logger_without_a_folder_keeps_its_time_alone():
    state = Logger(None, console=False).state_dict()
    assert (state["metrics_bytes"], state["events"]) == (0, {})
    Logger(None, console=False, resume=state).close()


def test_listeners_get_every_call_and_are_closed_once(tmp_path):
    class Listener:
        closed = 0

        def __call__(self, *call):
            calls.append(call)

        def close(self):
            self.closed += 1

    calls, listener = [], Listener()
    with Logger(tmp_path, tensorboard=False, console=False) as logger:
        logger.listeners += [listener, lambda *call: calls.append("plain")]
        logger.log({"a": np.float32(0.5), "b": "x"}, np.int64(8), 2, "learner")
        logger.close()
    assert calls == [({"a": 0.5, "b": "x"}, 8, 2, "learner"), "plain"]
    assert type(calls[0][0]["a"]) is float and listener.closed == 1
