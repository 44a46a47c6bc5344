"""The memory that is really there, and how it is shared out at start: weights first, then pages for keys and values."""

from __future__ import annotations

import os
from pathlib import Path

from foredraft.errors import ConfigError
from foredraft.kv.cache import PAGE_SIZE

DEFAULT_SHARE = 0.25  # of the memory that is free once the weights are in


def available_bytes(root: Path = Path("/")) -> int:
    """What this process may still take: the system's estimate, or less where a control group allows less.

    root: of the file system that holds proc and sys. Systems without them (macOS) count all physical memory.
    """
    if not (root / "proc/meminfo").exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    group = root / "sys/fs/cgroup"
    limit = group / "memory.max"
    if limit.exists() and (allowed := limit.read_text().strip()) != "max":
        # Files that were read, such as the weights before they were repacked, count as used but give way.
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.current").read_text()) - int(counts["inactive_file"])
        available = min(available, int(allowed) - used)
    return max(available, 0)


def num_pages(per_page: int, context_length: int, max_sequences: int, kv_memory: int | None) -> int:
    """Pages for each of the models (target, draft model and drafters), which hold the same tokens.

    per_page: bytes of a page of each, together. kv_memory: bytes for all of them; None takes what `max_sequences` full
        contexts need, up to a quarter of what is available.

    Raises:
        ConfigError: the memory asked for is not there, or it does not hold one page.
    """
    available = available_bytes()
    wanted = max_sequences * -(-context_length // PAGE_SIZE)
    if kv_memory is None:
        pages = min(wanted, int(available * DEFAULT_SHARE) // per_page)
    elif kv_memory > available:
        raise ConfigError(
            f"kv_memory is {kv_memory >> 20} MiB, but {available >> 20} MiB are available; ask for less or free some"
        )
    else:
        pages = min(wanted, kv_memory // per_page)
    if pages < 1:
        raise ConfigError(
            f"the memory for keys and values does not hold a page of {PAGE_SIZE} tokens ({per_page >> 10} KiB); "
            "raise kv_memory or free some memory"
        )
    return pages
