"""Number of CPUs that this process may use."""

import os
from functools import cache
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def n_cpus() -> int:
    """Return the number of CPUs that this process may use, at least 1.

    If a container limits CPU time instead of CPUs, the limit is rounded down to whole CPUs.
    """
    try:
        n = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not have it
        n = os.cpu_count() or 1
    quota = _quota()
    return n if quota is None else max(1, min(n, int(quota)))


@cache
def _quota() -> float | None:
    """Return the CPU time per second that the container may use; None without a limit.

    Source: the Linux kernel's documentation of control groups, version 2 (`cpu.max`) and 1
    (`cpu.cfs_quota_us` and `cpu.cfs_period_us`).
    """
    try:
        quota, period = (CONTROL_GROUPS / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = (
                (CONTROL_GROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text().strip()
                for name in ("quota", "period")
            )
        except OSError:
            return None
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None
    return share if share > 0 else None
