"""How many cores this process may use."""

from __future__ import annotations

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
