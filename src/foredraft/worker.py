"""A script of ours in a process of its own, for work on what strangers wrote: one line in, one line out.

Where loops, recursion and memory cannot be bounded from inside, the operating system's limits, which the script sets
for itself, end the process and nothing else.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path


class WorkerError(Exception):
    """There is no answer. `is_too_long`: it was ended by its limit on time."""

    def __init__(self, reason: str, is_too_long: bool = False) -> None:
        super().__init__(reason)
        self.is_too_long = is_too_long


class NoWorkerError(WorkerError):
    """The process could not be started: not the request's fault."""


class Worker:
    """The process, started with the first request and after it has ended; it ends with this object.

    Safe to share between threads; requests take turns. first: makes the line that a new process is sent before any
    request, and does not answer.
    """

    def __init__(self, script: Path, first: Callable[[], bytes] = bytes) -> None:
        self._script, self._first = script, first
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., Worker] | None = None

    def ask(self, request: bytes) -> bytes:
        """The answer to a request, both a line.

        Raises:
            WorkerError: there is no answer; the next request gets a new process.
        """
        with self._lock:
            # Taken out while it works: if the wait is interrupted, no later request may read the reply to this one.
            process, self._process = self._process, None
            lines = request
            if process is None:
                process, lines = self._start(), self._first() + request
            line = _ask(process, lines)
            if not line:
                assert self._end is not None
                self._end()
                raise _cause_of_death(process)
            self._process = process
        return line

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: the directory of the script holds modules of ours, which its imports must not find.
        command = [sys.executable, "-P", str(self._script)]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as exc:
            raise NoWorkerError(f"no process could be started ({exc})") from exc
        self._end = weakref.finalize(self, _end, process)
        return process


def _ask(process: subprocess.Popen[bytes], lines: bytes) -> bytes:
    """The reply's line; empty if the process died."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(lines)
        process.stdin.flush()
    return process.stdout.readline()


def _cause_of_death(process: subprocess.Popen[bytes]) -> WorkerError:
    """Of a process that has ended."""
    return WorkerError(f"status {process.returncode}", is_too_long=process.returncode == -signal.SIGPROF)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()
