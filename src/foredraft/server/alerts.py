"""Alerts: the rules of advice applied to the server's counters, told to logs, metrics and a webhook.

One task of the event loop, which holds up nobody: the engine's thread is asked between two steps, and messages to the
webhook are queued.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from foredraft.config import check, option
from foredraft.governor.advice import Advice, Ratio
from foredraft.governor.adviser import Adviser
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.server.webhook import Webhook, check_url
from foredraft.server.windows import Governed, History, situations

log = logging.getLogger("foredraft.alerts")

VERSION = 1  # of the webhook's messages


@dataclass(frozen=True)
class AlertConfig:
    """The section [alerts] of a configuration file."""

    interval_s: float = option(15.0, "Seconds between two looks at how pools are doing.", minimum=1, maximum=3600)
    webhook_url: str | None = option(
        None, "Where to post a message, in JSON, when advice begins or ends: http or https; redirects are not followed."
    )
    quarantine: bool = option(
        True, "Whether a proposer whose acceptance collapses drafts no more for the route; requests go on without it."
    )

    def __post_init__(self) -> None:
        check(self)
        if self.webhook_url is not None:
            check_url(self.webhook_url)


class Alerts:
    """Judges the routes of `metrics` every interval. Used by the event loop's thread alone.

    ratios: what the last A/B test of a pool found, by pool, where one of the arms was off.
    """

    def __init__(
        self,
        config: AlertConfig,
        engine: EngineThread,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._engine, self._metrics, self._clock = config, engine, metrics, clock
        self._adviser = Adviser()
        self._history = History()
        self._webhook = Webhook(config.webhook_url, metrics.webhook) if config.webhook_url else None
        self._source = {"host": socket.gethostname(), "model": engine.llm.model_name}
        self.ratios: dict[str, Ratio] = {}

    def learn(self, record: Mapping[str, Any]) -> None:
        """An experiment has ended, with this record (governor/experiment.py). Without a verdict it says nothing."""
        found, are_off = record["ratio"], [record["arm_settings"][arm]["mode"] == "off" for arm in "AB"]
        if not found or record["verdict"] is None or are_off[0] == are_off[1]:
            return
        value, low, high = found["estimate"], found["low"], found["high"]
        interval = (low, high) if low and high else None
        if are_off[1]:  # the ratio is of arm B over arm A
            value, interval = 1 / value, interval and (1 / interval[1], 1 / interval[0])
        self.ratios[record["config"]["pool"]] = Ratio(value, interval)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look every interval, until the end of the context; messages that are still queued then are given up."""
        tasks = [asyncio.create_task(self._look_on())]
        if self._webhook:
            tasks.append(asyncio.create_task(self._webhook.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_on(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # serving goes on, and so do alerts
                log.exception("alerts could not be judged")
            await asyncio.sleep(self._config.interval_s)

    async def look(self) -> None:
        """Judge how things stand now, and tell what has begun and ended since the last time."""
        governed = await self._engine.call(self._governed)
        now = self._clock()
        self._history.add(now, self._metrics.read(), governed.quarantined)
        found = list(situations(self._history, self._metrics.routes, self._metrics.proposers, governed, self.ratios))
        changes = self._adviser.evaluate(found, now)
        collapsed = {
            (each.route, proposer)
            for each in found
            for proposer, acceptance in each.acceptance.items()
            if acceptance.has_collapsed
        }
        quarantined = await self._engine.call(partial(self._quarantine, collapsed))
        modes = {name: pool.mode for name, pool in governed.pools.items()}
        self._metrics.governed(modes, quarantined, governed.reports)
        self._metrics.advice(self._adviser.active, [advice.key for advice in changes.begun])
        for advice in changes.begun:
            self._tell("begun", advice)
        for advice in changes.ended:
            self._tell("ended", advice)

    def _governed(self) -> Governed:
        """In the engine's thread: a copy of what its governor knows."""
        governor = self._engine.llm.engine.governor
        crossovers = {route: governor.crossover(route) for route in self._metrics.routes}
        return Governed(dict(governor.pools), frozenset(governor.quarantined), governor.report(), crossovers)

    def _quarantine(self, collapsed: set[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """In the engine's thread: let them draft no more, if the configuration says so; returns who does not."""
        quarantined = self._engine.llm.engine.governor.quarantined
        if self._config.quarantine:
            quarantined |= collapsed
        return frozenset(quarantined)

    def _tell(self, state: str, advice: Advice) -> None:
        fields: dict[str, Any] = {name: value for name, value in asdict(advice).items() if value is not None}
        level = logging.WARNING if state == "begun" else logging.INFO
        log.log(level, "advice has %s", state, extra={"fields": fields})
        if self._webhook:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            self._webhook.send({"version": VERSION, "state": state, "time": when, **asdict(advice), **self._source})
