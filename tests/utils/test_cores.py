"""Cores: what affinity allows and a container pays for."""

import os

import pytest

from ding_like.utils import cores


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "what\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_both_kinds_of_control_groups(tmp_path, files, quota):
    write(tmp_path, files)
    assert cores._quota(tmp_path) == quota


@pytest.mark.parametrize("quota, usable", [("max 100000", 8), ("250000 100000", 2), ("10000 100000", 1)])
def test_the_smaller_of_affinity_and_quota_counts_and_there_is_one(tmp_path, monkeypatch, quota, usable):
    write(tmp_path, {"cpu.max": quota})
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert cores.usable_cores() == usable
