"""Experiments on the pools of a running server, fed by the engine's steps.

One runs at a time. The engine's thread feeds it and switches the pool, between two steps; the pool has its own settings
back after every end: finished, stopped, failed, or with the server. A change of the pool by somebody else ends the
experiment and stays. No setting of it is written down before its end, so what a killed server restarts with is the
pool's own too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from foredraft.errors import ConfigError
from foredraft.governor.experiment import Experiment, ExperimentConfig, changes
from foredraft.governor.pools import PoolConfig
from foredraft.governor.store import AuditEntry
from foredraft.provenance import provenance
from foredraft.server.engine_thread import EngineThread
from foredraft.server.errors import ApiError
from foredraft.server.live_pools import LivePools
from foredraft.steps import StepRecord

log = logging.getLogger("foredraft")
TICK_S = 0.1  # while nothing runs, nothing but a tick ends a window


@dataclass
class _Running:
    id: str
    experiment: Experiment
    given: PoolConfig  # what the pool was given last
    provenance: Mapping[str, Any]
    task: asyncio.Task[None] | None = None
    is_over: bool = False  # and the pool has its own settings back


class ExperimentRunner:
    """Runs experiments. `step` is the engine's thread's; all else is the event loop's.

    What comes of one is kept in the state file, and the better arm's settings become the pool's own. on_end: gets the
    record then.
    """

    def __init__(
        self,
        engine: EngineThread,
        pools: LivePools,
        on_end: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine, self._pools, self._on_end, self._clock = engine, pools, on_end, clock
        self._records = {record["id"]: record for record in pools.past_experiments}
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._lock = threading.Lock()  # of the experiment that runs

    @property
    def records(self) -> list[dict[str, Any]]:
        """All experiments, oldest first; the last may still run."""
        running = self._running
        return [*self._records.values(), *([self._described(running)] if running else [])]

    def record(self, name: str) -> dict[str, Any]:
        """One experiment.

        Raises:
            ApiError: 404.
        """
        found = next((record for record in self.records if record["id"] == name), None)
        if found is None:
            raise ApiError(404, f"there is no experiment {name[:100]!r}", code="experiment_not_found")
        return found

    async def start(self, config: ExperimentConfig, who: str) -> dict[str, Any]:
        """Begin; returns the record as it is. who: for the audit trail.

        Raises:
            ConfigError: there is no such pool, or an arm names a proposer that is not loaded.
            StoreError: nothing can be kept of it.
            ApiError: 409 while another one runs; 503 where the engine does not take requests.
        """
        self._engine.check_ready()
        self._check(config)
        async with self._starting:
            if self._running and self._running.is_over and self._running.task:
                await asyncio.wait({self._running.task})  # only its record is still on its way
            if self._running:
                message = f"experiment {self._running.id} runs; wait for its end, or stop it first"
                raise ApiError(409, message, code="experiment_running")
            name = uuid.uuid4().hex
            origin = await asyncio.to_thread(self._prepare, name, config, who)
            own, routes = self._pools.settings[config.pool], self._pools.routes(config.pool)
            experiment = Experiment(config, own, routes, self._clock())
            self._running = running = _Running(name, experiment, own, origin)
            running.task = asyncio.get_running_loop().create_task(self._follow(running))
        log.info("experiment %s on pool %s begins: %s against %s", name, config.pool, *config.arms)
        return self._described(running)

    def _check(self, config: ExperimentConfig) -> None:
        known, loaded = self._pools.settings, self._pools.proposers
        if config.pool not in known:
            raise ConfigError(f"there is no pool {config.pool!r:.80}; known are {', '.join(known)}", "pool")
        for name in (name for arm in config.arms for name in changes(arm).get("proposers", ())):
            if name not in loaded:
                raise ConfigError(f"an arm names proposer {name!r:.80}; loaded are {', '.join(loaded)}", "arms")

    def _prepare(self, name: str, config: ExperimentConfig, who: str) -> Mapping[str, Any]:
        """Note that an experiment begins; returns its provenance."""
        origin = provenance(self._engine.llm.files, {})
        after = {"experiment": name, "arms": config.arms}
        self._pools.note(AuditEntry(who, "experiment", config.pool, {}, after))
        return origin

    async def stop(self, name: str, reason: str) -> dict[str, Any]:
        """End an experiment, if it runs; returns its record once the pool has its own settings back.

        Raises:
            ApiError: 404.
        """
        self.record(name)
        running = self._running
        if running and running.id == name and running.task:
            self._engine.post(partial(self._apply, running, lambda experiment: experiment.end("stopped", reason)))
            await asyncio.wait({running.task})  # which goes on if whoever waits here goes away
        return self.record(name)

    async def close(self) -> None:
        """End what runs. To be called while the engine's thread still runs."""
        if running := self._running:
            await self.stop(running.id, "the server stopped")

    def step(self, record: StepRecord) -> None:
        """The engine ended a step, in whose thread this is called."""
        if running := self._running:
            self._apply(running, lambda experiment: experiment.step(record, self._clock()))

    def tokens(self, route: str, num_tokens: int, seconds: float | None) -> None:
        """As Experiment.tokens."""
        if running := self._running:
            with self._lock:
                running.experiment.tokens(route, num_tokens, seconds)

    def first_token(self, route: str, seconds: float) -> None:
        """As Experiment.first_token."""
        if running := self._running:
            with self._lock:
                running.experiment.first_token(route, seconds)

    def _apply(self, running: _Running, change: Callable[[Experiment], None]) -> None:
        """In the engine's thread: tell the experiment something, then give the pool what it should have now."""
        if running.is_over:
            return
        experiment, pools = running.experiment, self._engine.llm.governor.pools
        pool = experiment.config.pool
        with self._lock:
            if pools[pool] is not running.given:
                experiment.end("stopped", f"the settings of pool {pool} were changed meanwhile, which stays")
                running.is_over = True
                return
            try:
                change(experiment)
            except Exception as error:  # ours, and no reason to stop serving
                log.exception("experiment %s failed", running.id)
                experiment.end("failed", f"the experiment failed: {error!r:.200}; the server's log says more")
            running.given = pools[pool] = experiment.setting or experiment.own
            running.is_over = experiment.setting is None

    def _tick(self, experiment: Experiment) -> None:
        if self._engine.has_failed:
            experiment.end("failed", "the engine failed; the server's log says how")
        experiment.tick(self._clock())

    async def _follow(self, running: _Running) -> None:
        """Keep time for an experiment, and at its end keep what came of it."""
        while not running.is_over:
            self._engine.post(partial(self._apply, running, self._tick))
            await asyncio.sleep(TICK_S)
        record = self._described(running)
        log.info("experiment %s is over: %s", running.id, record["verdict"] or record["status"])
        try:
            await asyncio.to_thread(self._conclude, record)
            self._on_end(record)
        except Exception:
            log.exception("what came of experiment %s could not be kept", running.id)
        self._records[running.id], self._running = record, None

    def _conclude(self, record: Mapping[str, Any]) -> None:
        self._pools.save_experiment(record)
        winner = {"better": 1, "worse": 0}.get(record["verdict"])
        if winner is not None:
            config = record["config"]
            values, who = changes(config["arms"][winner]), f"experiment {record['id']}"
            self._pools.change(config["pool"], values, who, record["reason"])

    def _described(self, running: _Running) -> dict[str, Any]:
        with self._lock:
            return {"id": running.id, **running.experiment.record(), "provenance": running.provenance}
