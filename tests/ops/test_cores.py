"""Cores that may be used: every kind of control group that can set a quota."""

from pathlib import Path

import pytest

from foredraft.ops.cores import _cpu_quotas, available_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_at_least_one_core() -> None:
    assert available_cores() >= 1


@pytest.mark.parametrize(
    ("files", "groups", "quotas"),
    [
        ({}, [], []),
        ({"cpu.max": "150000 100000\n"}, [], [1.5]),
        ({"cpu.max": "max 100000\n"}, ["0::/"], []),
        ({"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, ["0::/a/b"], [2.0]),
        ({"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "50000 100000\n"}, ["0::/a/b"], [0.5, 3.0]),
        ({"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, ["4:cpu,cpuacct:/a"], [4.0]),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, ["4:cpu:/a"], []),
        ({"memory/a/cpu.cfs_quota_us": "100000\n"}, ["5:memory:/a"], []),
        ({"cpu.max": "nonsense"}, ["0::/"], []),
    ],
)
def test_quotas(tmp_path: Path, files: dict[str, str], groups: list[str], quotas: list[float]) -> None:
    for name, text in files.items():
        write(tmp_path / name, text)
    assert list(_cpu_quotas(tmp_path, groups)) == quotas
