"""Cores: what affinity allows and a container pays for."""

import math
import os

import pytest

from ding_like.utils import cores, shared_memory


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


MANY = "anon 700\ninactive_file 90\nactive_file 10\ntotal_inactive_file 60\ntotal_active_file 40\n"


@pytest.mark.parametrize(
    "files, free",
    [
        ({"memory.max": "1000\n", "memory.current": "800\n", "memory.stat": MANY}, 300),
        ({"memory.max": "500\n", "memory.current": "800\n", "memory.stat": MANY}, 0),
        ({"memory.max": "max\n", "memory.current": "800\n", "memory.stat": MANY}, math.inf),
        (
            {
                "memory/memory.limit_in_bytes": "2000\n",
                "memory/memory.usage_in_bytes": "800\n",
                "memory/memory.stat": MANY,
            },
            1300,
        ),
        ({"memory.max": "what\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_memory_that_both_kinds_of_control_groups_leave(tmp_path, monkeypatch, files, free):
    write(tmp_path, files)
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    assert cores.free_of_container() == free
    monkeypatch.setattr(shared_memory, "_free_of_machine", lambda: 1000.0)
    assert shared_memory._free_memory() == min(free, 1000)


def test_workers_that_fill_the_cores_get_one_each_and_others_choose(monkeypatch):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda pid: {4, 2, 7}, raising=False)
    monkeypatch.setattr(cores, "usable_cores", lambda: 3)
    assert cores.cores_for(3) == [2, 4, 7]
    assert cores.cores_for(4) == [2, 4, 7, 2]
    assert cores.cores_for(2) == [None, None]
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)  # a part of each
    assert cores.cores_for(3) == [None] * 3
