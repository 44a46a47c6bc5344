"""How many processor cores this process may really use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def available_cores() -> int:
    """Cores that this process may use: its affinity mask, and no more than the quotas of its control groups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, int(quota)) for quota in _cpu_quotas(Path("/sys/fs/cgroup"), _control_groups()))])


def _control_groups() -> list[str]:
    """This process's control groups, as lines "number:controllers:path" (cgroups(7)); empty where there are none."""
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def _cpu_quotas(root: Path, groups: list[str]) -> Iterator[float]:
    """Cores' worth of time that each group and the groups around it may use, in versions 1 and 2 of control groups."""
    for line in ["0::/", *groups]:  # a container sees its own group as the root
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "cpu" if controllers else root
        for group in [top / path.lstrip("/"), *(top / path.lstrip("/")).parents]:
            if not group.is_relative_to(top):
                break
            try:
                if controllers:
                    quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                else:
                    quota, period = (group / "cpu.max").read_text().split()
                if quota.strip() not in ("max", "-1"):
                    yield int(quota) / int(period)
            except (OSError, ValueError):
                continue  # this group has no quota, or not in this way
