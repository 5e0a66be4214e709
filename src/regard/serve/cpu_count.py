"""The number of CPUs that this process may use: its affinity and the quota of its container."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = CGROUP) -> int:
    """CPUs of the process's affinity, at most those that the cgroup's quota is worth."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, cpus if quota is None else min(cpus, round(quota)))


def _quota(cgroup: Path) -> float | None:
    """The CPUs that the quota of version 2 or 1 of cgroups allows; None without one."""
    try:
        given, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            given = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        quota, length = int(given), int(period)
    except ValueError:  # "max"
        return None
    return quota / length if quota > 0 and length > 0 else None
