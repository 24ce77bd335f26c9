"""What this process may use: cores, and the memory of its container."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores by affinity, at most those that the container's quota pays for; at least 1."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUP)
    return max(1, have if quota is None else min(have, int(quota)))


def cores_for(workers: int) -> list[int | None]:
    """A core for each of so many processes that compute without a pause, where they fill all cores there are.

    The kernel wakes two of them on one core while another idles, and moves one away milliseconds later. None where they
    leave cores free, or the container has a part of each: then it has to choose.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [None] * workers
    cores = sorted(os.sched_getaffinity(0))
    if workers < len(cores) or usable_cores() < len(cores):
        return [None] * workers
    return [cores[number % len(cores)] for number in range(workers)]


def stay_on(core: int | None) -> None:
    """Keep this process on a core, where that is allowed."""
    if core is not None:
        with suppress(OSError):
            os.sched_setaffinity(0, {core})


def _quota(root: Path) -> float | None:
    """Cores that control groups allow, of the second version (`cpu.max`) or the first; None: no limit."""
    try:
        if (root / "cpu.max").is_file():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
    except (OSError, ValueError):  # not there, or in another form
        return None


def free_of_container() -> float:
    """Bytes that control groups still allow, files that the kernel keeps in memory counted as free; inf: no limit."""
    return _free(CGROUP)


def _free(root: Path) -> float:
    """Of control groups of the second version (`memory.max`) or the first."""
    first = root / "memory"
    try:
        if (root / "memory.max").is_file():
            limit, used, stat = (root / name for name in ("memory.max", "memory.current", "memory.stat"))
            prefix = ""
        else:
            limit, used = first / "memory.limit_in_bytes", first / "memory.usage_in_bytes"
            stat, prefix = first / "memory.stat", "total_"
        allowed = limit.read_text().strip()
        if allowed == "max":
            return math.inf
        kept = dict(line.split() for line in stat.read_text().splitlines())
        cached = sum(int(kept.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
        return max(0, int(allowed) - int(used.read_text()) + cached)
    except (OSError, ValueError):  # not there, or in another form
        return math.inf
