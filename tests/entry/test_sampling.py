"""Modes, samplers and env managers that do or do not go together, and what closing leaves of an error."""

import pytest

from ding_like.config import ConfigError
from ding_like.entry import serial_pipeline
from ding_like.entry.build import Components, full_config
from ding_like.entry.sampling import choose_sampler
from tests.helpers import tiny_config


def chosen(mode, manager=None, **collector):
    main, create = tiny_config(collect=dict(collector=collector))
    if manager is not None:
        create["env_manager"] = dict(type=manager)
    cfg = full_config((main, create))
    return choose_sampler(cfg, mode), cfg


@pytest.mark.parametrize(
    ("mode", "manager", "asked", "wanted"),
    [
        ("serial", None, "auto", "serial"),
        ("serial", None, "local", "serial"),
        ("serial", "subprocess", "auto", "serial"),
        ("parallel", None, "auto", "auto"),
        ("parallel", None, "alternating", "alternating"),
        ("parallel", "subprocess", "auto", "server"),
        ("parallel", "async_subprocess", "local", "local"),
        ("parallel", "vector", "auto", "serial"),
        ("async", None, "auto", "local"),
    ],
)
def test_the_sampler_follows_from_mode_manager_and_config(mode, manager, asked, wanted):
    name, cfg = chosen(mode, manager, sampler=asked)
    assert name == wanted == cfg.policy.collect.collector.sampler
    assert cfg.env_manager.type == (manager if manager == "vector" else "base")
    assert choose_sampler(cfg, mode) == wanted  # again: a saved config says the same


@pytest.mark.parametrize(
    ("mode", "manager", "asked", "says"),
    [
        ("async", None, "server", "sampler: got 'server', wanted 'local'"),
        ("parallel", "vector", "server", "got 'server' with env_manager.type 'vector'"),
    ],
)
def test_what_does_not_go_together_is_named(mode, manager, asked, says):
    with pytest.raises(ConfigError, match=says):
        chosen(mode, manager, sampler=asked)


@pytest.mark.parametrize(("given", "kept"), [(7, 7), (20, 20)])
def test_settings_of_a_manager_of_workers_reach_the_sampler(given, kept):
    main, create = tiny_config()
    create["env_manager"] = dict(type="subprocess")
    main["env"]["manager"] = dict(max_restarts=given, on_worker_death="restart")
    cfg = full_config((main, create))
    choose_sampler(cfg, "parallel")
    collector = cfg.policy.collect.collector
    assert (collector.max_restarts, collector.on_worker_death) == (kept, "restart")


def test_a_run_goes_on_in_the_mode_it_ran_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    serial_pipeline(tiny_config(), exp_name="run", max_train_iter=2)
    with pytest.raises(ConfigError, match="ran with -m serial, this is -m parallel"):
        serial_pipeline(
            tiny_config(collect=dict(collector=dict(sampler="serial"))), exp_name="run", resume=True, mode="parallel"
        )


class Closing:
    def __init__(self, error=None):
        self.error, self.closed = error, False

    def close(self):
        self.closed = True
        if self.error is not None:
            raise self.error


def test_all_envs_are_closed_and_the_error_of_the_run_stays_the_one_that_is_raised():
    managers = (Closing(RuntimeError("first")), Closing())
    parts = Components(*[None] * 6, managers)
    with pytest.raises(RuntimeError, match="first"):
        parts.close()
    assert managers[1].closed
    error = ValueError("the cause")
    parts.close_after(error)
    assert error.__notes__ == ["Closing the envs failed too: RuntimeError: first"]
