"""Managers that are closed at the end of a test."""

import pytest

from tests.envs.worker_helpers import subprocesses


@pytest.fixture
def made():
    """`made(*fns, ...)` makes a manager that is closed at the end."""
    managers = []

    def make(*fns, **kwargs):
        managers.append(subprocesses(*fns, **kwargs))
        return managers[-1]

    yield make
    for manager in managers:
        manager.close()
