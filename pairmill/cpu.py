"""The number of cores that this process may use."""

import os


def available_cores() -> int:
    """Return the cores of the process's affinity, limited by the cgroup's CPU quota (rounded up)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota_file, period_file in (
        ("/sys/fs/cgroup/cpu.max", None),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    ):
        try:
            with open(quota_file) as file:
                words = file.read().split()
            if period_file:
                with open(period_file) as file:
                    words += file.read().split()
            quota, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):
            continue
        if quota > 0:
            return max(1, min(cores, int(-(-quota // period))))
    return cores
