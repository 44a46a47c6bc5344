"""What is kept across restarts: there after SIGKILL, whole where the disk is full, refused where it is damaged."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foredraft.errors import StoreError
from foredraft.governor.store import VERSION, AuditEntry, Store

NUM_KILLS, NUM_WRITES = 5, 25
WRITER = """
import itertools, sys
from pathlib import Path
from foredraft.governor.store import AuditEntry, Store

with Store(Path(sys.argv[1])) as store:
    for i in itertools.count(int(sys.argv[2])):
        store.change_pool({"k_max": i}, AuditEntry("writer", "change", "batch", {}, {"k_max": i}))
        store.save_experiment(str(i), {"number": i})
        print(i, flush=True)
"""


def entry(pool: str = "batch", **after: object) -> AuditEntry:
    return AuditEntry("anna", "change", pool, {"mode": "auto"}, after, "it was slow")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_what_was_saved_is_there_after_a_restart(path):
    with Store(path) as store:
        store.change_pool({"mode": "on"}, entry(mode="on"))
        store.change_pool({"mode": "off", "proposers": ("lookup",), "k_max": None}, entry(mode="off"))
        store.change_pool({"k_max": 3}, entry("chat", k_max=3))
        store.change_pool({}, AuditEntry("ben", "reset", "chat", {"k_max": 3}, {"k_max": None}))
        store.note(AuditEntry("ben", "release", "chat", {"proposer": "lookup"}, {}))
        store.save_experiment("b", {"verdict": None})
        store.save_experiment("a", {"windows": [1, 2.5]})
        store.save_experiment("b", {"verdict": "harm"})
    with Store(path) as store:
        assert store.pool_changes() == {"batch": {"mode": "off", "proposers": ["lookup"], "k_max": None}}
        audit = store.audit(10)
        assert [(each["id"], each["who"], each["action"], each["pool"]) for each in audit] == [
            (5, "ben", "release", "chat"),
            (4, "ben", "reset", "chat"),
            (3, "anna", "change", "chat"),
            (2, "anna", "change", "batch"),
            (1, "anna", "change", "batch"),
        ]
        assert (audit[1]["before"], audit[1]["after"], audit[1]["reason"]) == ({"k_max": 3}, {"k_max": None}, "")
        assert audit[4]["reason"] == "it was slow"
        assert store.audit(2) == audit[:2]
        assert store.experiments() == {"a": {"windows": [1, 2.5]}, "b": {"verdict": "harm"}}


def test_without_a_path_it_ends_with_the_store():
    with Store() as store:
        store.change_pool({"mode": "on"}, entry(mode="on"))
        assert store.pool_changes() == {"batch": {"mode": "on"}}
    with Store() as store:
        assert store.pool_changes() == {}


def test_what_was_acknowledged_survives_kill_9(path):
    acknowledged = 0
    for _ in range(NUM_KILLS):
        arguments = [sys.executable, "-c", WRITER, path, str(acknowledged + 1)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
            lines = [writer.stdout.readline() for _ in range(NUM_WRITES)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        told = {line.rstrip() for line in lines if line.endswith("\n")}
        acknowledged = max(map(int, told))
        with Store(path) as store:  # its integrity is checked here
            found = store.pool_changes()["batch"]["k_max"]
            assert acknowledged <= found <= acknowledged + 1
            assert store.experiments().keys() >= told
            audit = store.audit(10_000)
            assert [each["after"]["k_max"] for each in audit] == list(range(found, 0, -1))
            acknowledged = found
    assert acknowledged >= NUM_KILLS * NUM_WRITES


def test_several_threads_and_stores_write_at_once(path):
    with Store(path) as first, Store(path) as second, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: (first, second)[i % 2].note(entry(k_max=i)), range(40)))
        assert sorted(each["after"]["k_max"] for each in first.audit(100)) == list(range(40))


def make_garbage(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look like one" * 100)


def make_damaged(path: Path) -> None:
    with Store(path) as store:
        for i in range(100):
            store.save_experiment(str(i), {"filler": "x" * 500})
    content = bytearray(path.read_bytes())
    content[5000:9000] = b"\xa5" * 4000
    path.write_bytes(content)


def make_truncated(path: Path) -> None:
    make_damaged(path)
    path.write_bytes(path.read_bytes()[:6000])


def make_newer(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()


def make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_garbage, "cannot be used (file is not a database)"),
        (make_damaged, ""),
        (make_truncated, ""),
        (make_newer, f"is of version {VERSION + 1}, this program knows up to {VERSION}"),
        (make_foreign, "is another program's database"),
        (Path.mkdir, "cannot be used (unable to open database file)"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_left_alone(path, make, message):
    make(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert str(caught.value).startswith(f"{path} {message}")
    assert before is None or path.read_bytes() == before


def test_a_file_nowhere_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="unable to open"):
        Store(tmp_path / "missing" / "state.db")


def test_a_write_for_which_the_disk_has_no_room_leaves_nothing_behind(path):
    with Store(path) as store:
        store.change_pool({"mode": "on"}, entry(mode="on"))
        [[pages]] = store._connection.execute("PRAGMA page_count").fetchall()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to run out of room
        with pytest.raises(StoreError, match="full"):
            store.change_pool({"proposers": ["x" * 10_000]}, entry(proposers=["x" * 10_000]))
        assert store.pool_changes() == {"batch": {"mode": "on"}}
        assert len(store.audit(10)) == 1
        store._connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        store.change_pool({"mode": "off"}, entry(mode="off"))
    with Store(path) as store:
        assert store.pool_changes() == {"batch": {"mode": "off"}}
        assert len(store.audit(10)) == 2
