"""How fast this machine reads memory: what the time of a pass is held against."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

WORKING_SET = 256 << 20  # bytes, far more than any cache holds
PARTS = 32  # each is timed on its own


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def read_bandwidth(threads: int, repeats: int = 5) -> float:
    """Bytes per second of reading memory with all threads at once (a maximum over float32, which numpy vectorizes).

    The sum of every thread's fastest part, since other programs may share the machine.
    """
    parts = np.ones((PARTS, threads, WORKING_SET // 4 // PARTS // threads), np.float32)
    start = threading.Barrier(threads + 1)
    best = [0.0] * threads

    def read(thread: int) -> None:
        start.wait()
        for _ in range(repeats):
            for part in parts[:, thread]:
                best[thread] = max(best[thread], part.nbytes / seconds(part.max))

    readers = [threading.Thread(target=read, args=(thread,)) for thread in range(threads)]
    for reader in readers:
        reader.start()
    start.wait()
    for reader in readers:
        reader.join()
    return sum(best)
