import gzip
import json
import logging
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traces
from foredraft.errors import TraceError
from foredraft.governor.plan import Candidate
from foredraft.governor.trace import FORMAT, VERSION, TraceWriter, read_trace
from foredraft.governor.trace_format import Between, TraceStep
from traces import outcome, plan, record, snapshot, write

LOOKUP = Candidate("lookup", (0.5, 0.25), True)
STEPS = [
    TraceStep(snapshot((LOOKUP,), step=0), plan(2), record(outcome(2, 1, True), num_tokens={1: 2})),
    TraceStep(snapshot((LOOKUP,), step=1), plan(), None),
    TraceStep(snapshot((LOOKUP,), step=2), plan(), record(num_tokens={1: 1})),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.trace.gz"


def gzipped(path: Path, *lines: object) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in lines).encode()))
    return path


def test_round_trip(path):
    write(path, STEPS)
    trace = read_trace(path)
    assert list(trace) == list(trace) == STEPS
    assert trace.header == {"format": FORMAT, "version": VERSION, "provenance": {"foredraft": "test"}}
    assert not trace.is_cut_off


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30)
@given(st.lists(traces.steps(), max_size=3))
def test_any_steps(path, steps):
    steps = [TraceStep(step.snapshot, step.plan, step.record) for step in steps]
    write(path, steps)
    assert list(read_trace(path)) == steps


def test_steps_without_a_decision_are_summed(path):
    with TraceWriter(path, {}) as writer:
        writer.step(record(num_tokens={1: 1, 2: 3}, seconds=0.5))
        writer.step(record(num_tokens={1: 1}, seconds=0.25))
        for step in STEPS[::2]:
            writer.plan(step.snapshot, step.plan)
            writer.step(step.record)
    assert [step.before for step in read_trace(path)] == [Between(2, 5, 0.75), Between()]


def test_cut_off_at_every_byte(path):
    """What can be read is always the beginning, and only a file without its first line is none."""
    write(path, STEPS)
    whole, found = path.read_bytes(), []
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            trace = read_trace(path)
        except TraceError:
            assert not found
            continue
        steps = list(trace)
        assert steps == STEPS[: len(steps)]
        assert trace.is_cut_off
        found.append(len(steps))
    assert found == sorted(found)
    assert set(found) == {0, 1, 2, 3}


def test_any_byte_changed(path):
    """Never a traceback; and most changes are found, for gzip has a checksum."""
    write(path, STEPS)
    whole, num_unnoticed = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            num_unnoticed += list(read_trace(path)) == STEPS
        except TraceError:
            continue
    assert num_unnoticed < 10  # the time, the name of the system: parts of gzip's own header


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a trace"),
        (b"prompt,answer\n", "is not a trace"),
        (gzip.compress(b"not json\n"), "is not a trace"),
        (gzip.compress(b"[" * 100_000 + b"\n"), "is not a trace"),
        (gzip.compress(b"{}\n"), "is not a trace"),
        (gzip.compress(b'{"format": "other", "version": 1}\n'), "is not a trace"),
        (gzip.compress(b'{"format": "foredraft trace", "version": "1"}\n'), "is not a trace"),
        (gzip.compress(b'{"format": "foredraft trace", "version": 0}\n'), "is not a trace"),
        (gzip.compress(b"x" * (17 << 20)), "is not a trace, or is damaged"),
        (gzip.compress(b'{"format": "foredraft trace", "version": 99}\nwhatever\n'), "version 99"),
    ],
)  # fmt: skip
def test_other_files(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(TraceError, match=reason):
        read_trace(path)


def test_a_damaged_step(path):
    write(path, STEPS[:1])
    [head, step] = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(head + step + b'{"snapshot": 3}\n'))
    trace = iter(read_trace(path))
    assert next(trace) == STEPS[0]
    with pytest.raises(TraceError, match=r"is damaged: its step 2 cannot be read"):
        next(trace)


def test_two_files_in_one(path):
    write(path, STEPS)
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(TraceError, match="damaged"):
        list(read_trace(path))


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_files_that_cannot_be_read(tmp_path, name):
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / name)


@pytest.mark.parametrize("name", ["no/folder", "."])
def test_files_that_cannot_be_written(tmp_path, name):
    with pytest.raises(TraceError, match="cannot be written"):
        TraceWriter(tmp_path / name, {})


def test_an_older_trace_is_kept(path):
    for step in STEPS[::2]:
        write(path, [step])
    assert list(read_trace(path)) == STEPS[2:]
    assert list(read_trace(path.with_name(f"{path.name}.old"))) == STEPS[:1]


def test_a_full_disk_ends_the_trace_with_one_warning(caplog):
    write(Path("/dev/full"), STEPS * 100)
    [warning] = caplog.records
    assert (warning.levelno, "No space left on device" in warning.message) == (logging.WARNING, True)


def test_what_cannot_be_written_ends_the_trace(path, caplog):
    """A fault of ours, such as a number of an unknown kind, is nothing to end a server for."""
    with TraceWriter(path, {}) as writer:
        for value in (1, object(), 2):
            writer.plan(snapshot(step=value), plan())
    assert [entry.levelno for entry in caplog.records] == [logging.ERROR, logging.WARNING]
    trace = read_trace(path)
    assert [step.snapshot.step for step in trace] == [1]
    assert not trace.is_cut_off


def test_a_trace_is_no_larger_than_it_may_be(path, caplog):
    chance = random.Random(0)
    noise = [Candidate("lookup", tuple(chance.random() for _ in range(64)), True) for _ in range(64)]
    large = [TraceStep(snapshot(*((each,) for each in noise), step=number), plan(), None) for number in range(200)]
    write(path, large, max_mib=1)
    [warning] = caplog.records
    assert "it has reached 1 MiB" in warning.message
    assert (1 << 20) < path.stat().st_size < (1 << 20) + (1 << 16)
    trace = read_trace(path)
    assert 10 < sum(1 for _ in trace) < 200
    assert not trace.is_cut_off


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from test_trace import STEPS, TraceWriter
writer = TraceWriter(Path(sys.argv[1]), {})
for step in STEPS * 7:
    writer.plan(step.snapshot, step.plan)
    if step.record:
        writer.step(step.record)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_every_step_that_ended(path):
    here = [str(Path(__file__).parent), str(Path(traces.__file__).parent)]
    done = subprocess.run([sys.executable, "-c", KILLED, path, *here])
    assert done.returncode == -signal.SIGKILL
    trace = read_trace(path)
    assert list(trace) == STEPS * 7
    assert trace.is_cut_off
