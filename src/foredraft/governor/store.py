"""What a server keeps across restarts: changed pool settings, who changed them, and experiments. SQLite, WAL.

A change and its entry in the audit trail are one transaction, on the disk when the call returns: neither `kill -9` nor
a power cut takes back what was acknowledged. A file that is damaged, of a newer version, or another program's is left
as it is.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from foredraft.errors import StoreError

VERSION = 1
_APPLICATION = 0x464F5245  # "FORE": whose file it is
_BUSY_MS = 5000
_SCHEMA = """
CREATE TABLE pool_changes (pool TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
    pool TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, reason TEXT NOT NULL
);
CREATE TABLE experiments (id TEXT PRIMARY KEY, time TEXT NOT NULL, record TEXT NOT NULL);
"""


@dataclass(frozen=True)
class AuditEntry:
    """Who did what to a pool, and why. before, after: values by name, of what was changed only."""

    who: str
    action: str
    pool: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    reason: str = ""


class Store:
    """One database; without a path it is in memory and gone at the end. Safe to use from several threads.

    Raises:
        StoreError: the file cannot be used; every other method raises it where reading or writing fails. Nothing of a
            write that failed is there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._explained():
            self._connection = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_BUSY_MS / 1000,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._explained():
                self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def pool_changes(self) -> dict[str, dict[str, Any]]:
        """What was set other than in the configuration, by pool and key."""
        rows = self._read("SELECT pool, settings FROM pool_changes ORDER BY pool")
        return {pool: self._parsed(settings) for pool, settings in rows}

    def change_pool(self, settings: Mapping[str, Any], entry: AuditEntry) -> None:
        """Keep all that is now set other than in the configuration (nothing is fine), with the entry that says why."""
        with self._transaction() as run:
            run("DELETE FROM pool_changes WHERE pool = ?", (entry.pool,))
            if settings:
                run("INSERT INTO pool_changes VALUES (?, ?)", (entry.pool, json.dumps(settings)))
            self._insert(entry)

    def note(self, entry: AuditEntry) -> None:
        """Add an entry to the audit trail."""
        with self._transaction():
            self._insert(entry)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        """The newest entries, newest first: the fields of AuditEntry, `id` (rising) and `time` (ISO 8601, UTC)."""
        names = ("id", "time", "who", "action", "pool", "before", "after", "reason")
        rows = self._read(f"SELECT {', '.join(names)} FROM audit ORDER BY id DESC LIMIT ?", (limit,))
        found = [dict(zip(names, row, strict=True)) for row in rows]
        parsed = self._parsed
        return [{**each, "before": parsed(each["before"]), "after": parsed(each["after"])} for each in found]

    def save_experiment(self, id: str, record: Mapping[str, Any]) -> None:
        """Keep an experiment's record, values as JSON has them; one of the same id is replaced."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO experiments VALUES (?, ?, ?)", (id, _now(), json.dumps(record)))

    def experiments(self) -> dict[str, dict[str, Any]]:
        """Records by id, in the order in which they were saved."""
        rows = self._read("SELECT id, record FROM experiments ORDER BY rowid")
        return {id: self._parsed(record) for id, record in rows}

    def _open(self) -> None:
        """Check whose file this is, and make the tables of a new one."""
        run = self._connection.execute
        run(f"PRAGMA busy_timeout = {_BUSY_MS}")
        [[application]], [[version]] = run("PRAGMA application_id").fetchall(), run("PRAGMA user_version").fetchall()
        [[num_tables]] = run("SELECT count(*) FROM sqlite_master").fetchall()
        if (application or num_tables) and application != _APPLICATION:
            raise StoreError(f"{self.path} is another program's database; give another file")
        if version > VERSION:
            raise StoreError(
                f"{self.path} is of version {version}, this program knows up to {VERSION}; use a newer foredraft, or "
                "another file"
            )
        if (damage := run("PRAGMA quick_check(1)").fetchall()) != [("ok",)]:
            raise StoreError(f"{self.path} is damaged ({damage[0][0]}); move it away, or restore it")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        if version == 0:
            with self._transaction() as write:
                if run("PRAGMA user_version").fetchall() == [(0,)]:  # nobody else was faster
                    for statement in _SCHEMA.split(";\n"):
                        write(statement)
                    write(f"PRAGMA application_id = {_APPLICATION}")
                    write(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._explained(), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _insert(self, entry: AuditEntry) -> None:
        values = asdict(entry) | {"time": _now(), "before": json.dumps(entry.before), "after": json.dumps(entry.after)}
        self._connection.execute(
            "INSERT INTO audit (time, who, action, pool, before, after, reason) "
            "VALUES (:time, :who, :action, :pool, :before, :after, :reason)",
            values,
        )

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._explained(), self._lock:
            return self._connection.execute(query, values).fetchall()

    def _parsed(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:  # SQLite does not notice damage within a text
            raise StoreError(f"{self.path} is damaged ({error}); move it away, or restore it") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path or 'the state in memory'} cannot be used ({error})") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
