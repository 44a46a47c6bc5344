"""The pools of a running server: as configured, as they are now, and how they change so that it is known and kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from foredraft.config import keys
from foredraft.errors import ConfigError, RequestError, StoreError
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.store import AuditEntry, Store
from foredraft.proposers import ALWAYS
from foredraft.server.engine_thread import EngineThread

log = logging.getLogger("foredraft")
_KEYS = keys(PoolConfig)


class LivePools:
    """Settings of pools by name. Safe to use from any thread.

    A change is saved, with its entry in the audit trail, and then sent to the engine, where it holds from the next step
    on, also for requests that run. What cannot be saved is not changed. Where the state file cannot be used, the server
    goes on as configured, and `problem` says why nothing can be changed.

    To be made before the engine's thread starts: it brings back what was changed before a restart.

    Raises:
        ConfigError: a pool allows a proposer that is not loaded.
    """

    def __init__(self, engine: EngineThread, configured: Mapping[str, PoolConfig], state_file: Path | None) -> None:
        self._engine, self._governor = engine, engine.llm.engine.governor
        self.proposers = (*ALWAYS, *engine.llm.proposers)
        self.state_file = state_file
        self.problem: str | None = None
        self._lock = threading.Lock()
        self.configured = {DEFAULT: PoolConfig(), **configured}
        for name, settings in self.configured.items():
            try:
                self._check(settings)
            except ConfigError as error:
                raise ConfigError(f"[pools.{name}] {error}") from None
        self.settings = dict(self.configured)
        self._store: Store | None = None
        self.past_experiments: list[dict[str, Any]] = []  # records of the time before this server was started
        try:
            self._store = self._opened(state_file)
        except StoreError as error:
            self.problem = str(error)
            log.warning("pools are as configured and cannot be changed: %s", error)
        self._governor.pools.update(self.settings)

    def routes(self, name: str) -> list[str]:
        """The routes that lead to a pool."""
        return [route for route, pool in self._governor.routes.items() if pool == name]

    def changed(self, name: str) -> list[str]:
        """The keys of a pool that are not as configured."""
        return list(_difference(self.settings[name], self.configured[name]))

    def change(self, name: str, values: Mapping[str, Any], who: str, reason: str) -> None:
        """Set some of a pool's keys.

        Raises:
            RequestError: there is no such pool.
            ConfigError: a value is not allowed.
            StoreError: it cannot be saved.
        """
        with self._lock:
            self._set(name, _with(self._known(name), values), "change", who, reason)

    def reset(self, name: str, who: str, reason: str) -> None:
        """Set all of a pool's keys back to what is configured. Raises as `change` does."""
        with self._lock:
            self._known(name)
            self._set(name, self.configured[name], "reset", who, reason)

    def note(self, entry: AuditEntry) -> None:
        """Add an entry to the audit trail.

        Raises:
            StoreError: it cannot be saved; so with the methods below.
        """
        with self._saving() as store:
            store.note(entry)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        return self._usable().audit(limit)

    def save_experiment(self, record: Mapping[str, Any]) -> None:
        """Keep a record, which has an "id"."""
        with self._saving() as store:
            store.save_experiment(record["id"], record)

    def close(self) -> None:
        if self._store:
            self._store.close()

    def _opened(self, state_file: Path | None) -> Store:
        """The store, once all that the server starts with has been read from it."""
        store = Store(state_file)
        try:
            changes, self.past_experiments = store.pool_changes(), list(store.experiments().values())
        except StoreError:
            store.close()
            raise
        self._bring_back(changes)
        return store

    def _bring_back(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Change pools as they were changed before the server was started; what no longer fits stays as configured."""
        for name, values in changes.items():
            try:
                settings = _with(self._known(name), values)
                self._check(settings)
            except (ConfigError, RequestError) as error:
                log.warning("pool %s was changed, which no longer fits the configuration: %s", name, error)
                continue
            self.settings[name] = settings
            fields = {key: _shown(getattr(settings, key)) for key in self.changed(name)}
            log.warning("pool %s is not as configured: it was changed before", name, extra={"fields": fields})

    def _known(self, name: str) -> PoolConfig:
        if name not in self.settings:
            raise RequestError(f"there is no pool {name[:100]!r}; known are {', '.join(self.settings)}", "name")
        return self.settings[name]

    def _check(self, settings: PoolConfig) -> None:
        for name in settings.proposers:
            if name not in self.proposers:
                raise ConfigError(f"proposers names {name!r:.80}; loaded are {', '.join(self.proposers)}", "proposers")
        settings.check_sharing(self.proposers)

    def _set(self, name: str, after: PoolConfig, action: str, who: str, reason: str) -> None:
        self._check(after)
        before = self.settings[name]
        was, becomes = _difference(before, after), _difference(after, before)
        entry = AuditEntry(who, action, name, was, becomes, reason)
        with self._saving() as store:
            store.change_pool(_difference(after, self.configured[name]), entry)
        self.settings[name] = after
        self._engine.post(partial(self._governor.pools.__setitem__, name, after))
        fields = {"who": who, "reason": reason, **{key: _shown(value) for key, value in becomes.items()}}
        log.info("pool %s: %s", name, action, extra={"fields": fields})

    def _usable(self) -> Store:
        if self._store is None:
            raise StoreError(f"nothing can be saved, so nothing can be changed: {self.problem}")
        return self._store

    @contextmanager
    def _saving(self) -> Iterator[Store]:
        store = self._usable()
        try:
            yield store
        except StoreError as error:
            self.problem = str(error)
            log.warning("what cannot be saved is not changed: %s", error)
            raise
        self.problem = None


def _with(settings: PoolConfig, values: Mapping[str, Any]) -> PoolConfig:
    """Settings with other values, given as JSON has them; null for what is not set."""
    for key in values:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r:.80}; known are {', '.join(_KEYS)}", key)
    taken: dict[str, Any] = {key: None if value is None else _KEYS[key].take(value) for key, value in values.items()}
    return replace(settings, **taken)


def _difference(these: PoolConfig, those: PoolConfig) -> dict[str, Any]:
    """The values of `these` that are others in `those`."""
    other = asdict(those)
    return {key: value for key, value in asdict(these).items() if value != other[key]}


def _shown(value: object) -> str:
    """A setting for the log."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else "not set" if value is None else str(value)
