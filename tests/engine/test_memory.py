"""How memory is found and shared out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foredraft.engine import memory
from foredraft.errors import ConfigError
from foredraft.kv.cache import PagedKV

MIB = 1 << 20


PAGE = PagedKV.page_bytes(2, 2, 32)


def system(root: Path, available_mib: int, **group: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:  {available_mib * 1024} kB\nHuge: 0\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    for name, content in group.items():
        (root / "sys/fs/cgroup" / f"memory.{name}").write_text(content + "\n")
    return root


def test_available_is_the_systems_estimate(tmp_path):
    assert memory.available_bytes(system(tmp_path, 700)) == 700 * MIB


@pytest.mark.parametrize(
    ("limit", "used", "cached", "expected"),
    [("max", 0, 0, 700), (500, 100, 0, 400), (500, 400, 250, 350), (2000, 0, 0, 700), (500, 600, 0, 0)],
)
def test_available_is_less_where_a_control_group_allows_less(tmp_path, limit, used, cached, expected):
    allowed = limit if limit == "max" else str(limit * MIB)
    stat = f"anon 1\ninactive_file {cached * MIB}\nactive_file 5"
    root = system(tmp_path, 700, max=allowed, current=str(used * MIB), stat=stat)
    assert memory.available_bytes(root) == expected * MIB


def test_this_machine_has_memory():
    assert memory.available_bytes() > MIB


def test_pages_are_what_the_contexts_need_or_what_there_is(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100 * MIB)
    assert PAGE == 2 * 2 * 2 * 32 * memory.PAGE_SIZE * 2
    assert memory.num_pages(PAGE, 100, 3, None) == 3 * 4
    assert memory.num_pages(PAGE, 10**6, 1000, None) == 25 * MIB // PAGE
    assert memory.num_pages(PAGE, 10**6, 1000, 10 * PAGE + 1) == 10
    assert memory.num_pages(2 * PAGE, 10**6, 1000, 10 * PAGE) == 5
    assert memory.num_pages(PAGE, 100, 1, 10 * PAGE) == 4


@pytest.mark.parametrize("kv_memory", [101 * MIB, 0, -1, 100])
def test_memory_that_is_not_there_or_too_little_is_refused(monkeypatch, kv_memory):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100 * MIB)
    with pytest.raises(ConfigError, match="kv_memory"):
        memory.num_pages(PAGE, 100, 1, kv_memory)


def test_no_memory_at_all_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    with pytest.raises(ConfigError, match="free some memory"):
        memory.num_pages(PAGE, 100, 1, None)


def test_without_proc_all_physical_memory_counts(tmp_path):
    assert memory.available_bytes(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
