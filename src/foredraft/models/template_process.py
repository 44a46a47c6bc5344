"""The parent's end of template_worker.py: starts the process, asks it, and says why it failed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft.errors import TemplateError

_WORKER = Path(__file__).with_name("template_worker.py")


class TemplateProcess:
    """Renders one template in a process of its own, which starts with the first rendering and ends with this object.

    Safe to share between threads; renderings take turns.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, variables: Mapping[str, Any]) -> str:
        """The template's text.

        Raises:
            TemplateError: the template is broken, refuses the variables, or needs too much time, memory or text; or
                the variables are not JSON.
        """
        try:
            request = json.dumps({"source": self._source, "variables": variables}).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as exc:
            raise TemplateError(f"messages and tools have to be plain JSON values ({exc})") from exc
        with self._lock:
            # Taken out while it works: if the wait is interrupted, no later request may read the reply to this one.
            process, self._process = self._process or self._start(), None
            line = _ask(process, request)
            if not line:
                raise TemplateError(f"the model's chat template {_cause_of_death(process)}")
            self._process = process
        reply = json.loads(line)
        if "error" in reply:
            raise TemplateError(f"the model's chat template cannot be applied: {reply['error']}")
        text: str = reply["text"]
        return text

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: the directory of the worker holds modules of ours, which its imports must not find.
        command = [sys.executable, "-P", str(_WORKER)]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as exc:
            raise TemplateError(f"no process could be started for the model's chat template ({exc})") from exc
        weakref.finalize(self, _end, process)
        return process


def _ask(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """The reply's line; empty if the process died."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
    return process.stdout.readline()


def _cause_of_death(process: subprocess.Popen[bytes]) -> str:
    _end(process)
    if process.returncode == -signal.SIGPROF:
        return "runs too long; use generate, or another model file"
    return f"ended its process (status {process.returncode}); use generate, or another model file"


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()
