from __future__ import annotations

import gc
import textwrap
import weakref

import pytest

from foredraft.worker import NoWorkerError, Worker, WorkerError

SCRIPT = """
import os, signal, sys
first = next(sys.stdin.buffer)
for number, line in enumerate(sys.stdin.buffer):
    if line == b"die\\n":
        os._exit(7)
    if line == b"late\\n":
        os.kill(os.getpid(), signal.SIGPROF)
    sys.stdout.buffer.write(b"%s %d %s" % (first.strip(), number, line))
    sys.stdout.flush()
"""


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    return Worker(script, lambda: b"hello\n")


def test_one_process_answers_line_by_line(worker):
    assert [worker.ask(line) for line in (b"a\n", b"b\n")] == [b"hello 0 a\n", b"hello 1 b\n"]


def test_after_its_end_the_next_request_gets_a_new_one(worker):
    worker.ask(b"a\n")
    with pytest.raises(WorkerError, match="status 7") as caught:
        worker.ask(b"die\n")
    assert not caught.value.is_too_long
    with pytest.raises(WorkerError) as caught:
        worker.ask(b"late\n")
    assert caught.value.is_too_long
    assert worker.ask(b"b\n") == b"hello 0 b\n"


def test_nothing_is_kept_of_a_process_that_has_ended(worker):
    worker.ask(b"a\n")
    ended = weakref.ref(worker._process)
    with pytest.raises(WorkerError):
        worker.ask(b"die\n")
    gc.collect()
    assert ended() is None


def test_a_process_that_cannot_be_started_is_nobodys_fault(worker, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(NoWorkerError, match="no process could be started"):
        worker.ask(b"a\n")
