"""Markers and isolation: every test without a marker is `quick`; registries and torch threads are put back."""

import signal

import pytest
import torch
from hypothesis import settings

from ding_like.utils import REGISTRIES, log

settings.register_profile("tests", deadline=None)  # a busy machine is no fault
settings.load_profile("tests")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in a shell's background: programs that tests interrupt inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

TIERS = ("quick", "system", "learning", "long")


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True, scope="session")
def _one_torch_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """What a test registers, or warns of once, does not reach the next test."""
    monkeypatch.setattr(log, "_warned", set())
    before = {kind: dict(registry._entries) for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():  # built-in modules register once, on their first use
        built_in = {k: v for k, v in registry._entries.items() if k in registry._builtin}
        toys = {k: v for k, v in registry._entries.items() if v.__module__.startswith("dizoo_configs.")}  # likewise
        registry._entries = {**built_in, **toys, **before[kind]}


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """The test runs in an empty folder, its modules importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
