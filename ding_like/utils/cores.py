"""What this process may use: cores, and the memory of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores by affinity, at most those that the container's quota pays for; at least 1."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUP)
    return max(1, have if quota is None else min(have, int(quota)))


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
