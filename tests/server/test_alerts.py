"""Alerts: from counters to log, metrics, webhook and quarantine, while serving goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import new_engine
from foredraft.governor.advice import Ratio
from foredraft.governor.adviser import BEGIN_S, END_S
from foredraft.governor.governor import Governor
from foredraft.governor.pools import PoolConfig
from foredraft.governor.report import RouteReport
from foredraft.server.alerts import AlertConfig, Alerts
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.steps import DraftOutcome, StepRecord
from prometheus_page import read, series
from receiver import receiving
from serving import serving, wait_for

PAIR = ("chat", "draft_model")


class Told(Governor):
    """A governor that knows what the test says."""

    def __init__(self) -> None:
        super().__init__({"interactive": PoolConfig(mode="on", itl_p95_ms=50)}, {"chat": "interactive"})
        self.reports: list[RouteReport] = []

    def report(self) -> list[RouteReport]:
        return self.reports


class Site:
    """Alerts over counters that a test moves, at times that it sets."""

    def __init__(self, engine: EngineThread, config: AlertConfig) -> None:
        self.governor = engine.llm.engine.governor
        self.metrics = Metrics({"chat": "interactive", "default": "default"}, ["lookup", "draft_model"])
        self.now = 0.0
        self.alerts = Alerts(config, engine, self.metrics, clock=lambda: self.now)

    def run(self, steps: int, accepted: int, is_rejected: bool = False, itl_s: float = 0.02) -> None:
        """Steps of one answer with drafts of four tokens."""
        draft = DraftOutcome(0, "draft_model", 4, tuple(range(accepted)), is_rejected)
        for _ in range(steps):
            self.metrics.step(StepRecord(0, 1, 0, 1, 4, (draft,), {}, {0: accepted + 1}, {0: "chat"}, {}))
            self.metrics.tokens("chat", accepted + 1, itl_s * (accepted + 1))

    async def look(self, after_s: float) -> None:
        self.now += after_s
        await self.alerts.look()

    @property
    def found(self) -> dict[tuple[str, ...], float]:
        return series(self.metrics)


@asynccontextmanager
async def site(config: AlertConfig = AlertConfig()) -> AsyncIterator[Site]:  # noqa: B008 (frozen)
    engine = new_engine()
    engine.governor = Told()
    thread = EngineThread(SimpleNamespace(engine=engine, model_name="letters"))  # type: ignore[arg-type]
    thread.start()
    try:
        yield Site(thread, config)
    finally:
        await thread.stop()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(r.getMessage(), r.fields["rule"]) for r in caplog.records if r.name == "foredraft.alerts"]


async def collapse(site: Site) -> None:
    await site.look(0.0)
    site.run(100, accepted=4)
    await site.look(15.0)
    site.run(90, accepted=0, is_rejected=True)
    await site.look(15.0)
    await site.look(15.0)


def test_a_collapse_is_told_once_and_ends_in_quarantine(caplog):
    caplog.set_level(logging.INFO, "foredraft.alerts")

    async def go() -> None:
        async with site() as here:
            await collapse(here)
            assert here.governor.quarantined == {PAIR}
            assert told(caplog) == [("advice has begun", "quarantine")]
            fields = caplog.records[0].fields
            assert fields["reason"] == "alpha of draft_model is 0.00 over 90 trials; it was 1.00 over 400"
            assert (fields["severity"], fields["proposer"], fields["pool"]) == (
                "critical",
                "draft_model",
                "interactive",
            )
            found = here.found
            assert found["quarantined_proposers", "interactive", "draft_model", "chat"] == 1
            assert found["quarantined_proposers", "interactive", "lookup", "chat"] == 0
            assert found["advice_active", "interactive", "chat", "quarantine"] == 1
            assert found["alerts_total", "interactive", "chat", "quarantine"] == 1

            here.governor.quarantined.clear()  # as an operator does who has looked into it
            await here.look(15.0)
            assert here.found["quarantined_proposers", "interactive", "draft_model", "chat"] == 0
            await here.look(END_S)
            assert told(caplog)[1:] == [("advice has ended", "quarantine")]
            assert here.found["advice_active", "interactive", "chat", "quarantine"] == 0
            assert here.governor.quarantined == set()

    asyncio.run(go())


def test_quarantine_can_be_left_to_people():
    async def go() -> None:
        async with site(AlertConfig(quarantine=False)) as here:
            await collapse(here)
            assert here.governor.quarantined == set()
            assert here.found["advice_active", "interactive", "chat", "quarantine"] == 1

    asyncio.run(go())


def test_a_missed_objective_is_advice_once_it_lasts(caplog):
    caplog.set_level(logging.INFO, "foredraft.alerts")

    async def go() -> None:
        async with site() as here:
            here.governor.pools["interactive"] = PoolConfig(mode="off", itl_p95_ms=50)
            await here.look(0.0)
            for _ in range(3):
                here.run(50, accepted=2, itl_s=0.08)
                await here.look(BEGIN_S / 2)
            assert told(caplog) == [("advice has begun", "turn_on")]
            assert "ITL p95 is 98.8 ms, the objective 50 ms" in caplog.records[0].fields["reason"]
            assert here.found["pool_mode", "off", "interactive"] == 1
            assert here.found["pool_mode", "auto", "interactive"] == 0

    asyncio.run(go())


def concluded(modes: str, verdict: str | None = "worse") -> dict[str, Any]:
    """The record of an experiment on the pool "interactive" in which B was slower."""
    arms = {arm: {"mode": mode} for arm, mode in zip("AB", modes.split(), strict=True)}
    ratio = {"estimate": 0.8, "low": 0.5, "high": 0.9}
    return {"config": {"pool": "interactive"}, "verdict": verdict, "ratio": ratio, "arm_settings": arms}


def test_what_an_experiment_says_of_speculation():
    async def go() -> None:
        async with site() as here:
            here.alerts.learn(concluded("off on"))
            assert here.alerts.ratios == {"interactive": Ratio(0.8, (0.5, 0.9))}
            here.alerts.learn(concluded("on off"))
            found = here.alerts.ratios["interactive"]
            assert (found.value, *found.interval) == pytest.approx((1.25, 1 / 0.9, 2.0))
            for others in (concluded("on auto"), concluded("off on", None)):  # which say nothing of it
                here.alerts.learn(others)
                assert here.alerts.ratios == {"interactive": found}

    asyncio.run(go())


def test_the_last_test_of_a_pool_counts():
    async def go() -> None:
        async with site() as here:
            here.alerts.learn(concluded("off on", "no difference"))
            for _ in range(2):
                await here.look(BEGIN_S)
            assert here.found["advice_active", "interactive", "chat", "turn_off"] == 1
            assert here.found["advice_active", "default", "default", "turn_off"] == 0

    asyncio.run(go())


def test_what_the_governor_has_learned_is_exported():
    async def go() -> None:
        async with site() as here:
            here.governor.reports = [
                RouteReport("chat", "interactive", "draft_model", 0.7, 50.0, 0.04, 3, False),
                RouteReport("chat", "interactive", "lookup", None, 0.0, None, 3, False),
            ]
            await here.look(0.0)
            found = here.found
            assert found["governor_alpha_ratio", "interactive", "draft_model", "chat"] == 0.7
            assert found["governor_calibration_error_ratio", "interactive", "draft_model", "chat"] == 0.04
            assert found["governor_switches_total", "interactive", "chat"] == 3  # of the route, not of each proposer
            unknown = found["governor_alpha_ratio", "interactive", "lookup", "chat"]
            assert unknown != unknown  # NaN
            here.governor.reports = [RouteReport("chat", "interactive", "lookup", 0.5, 1.0, None, 5, False)]
            await here.look(15.0)
            assert here.found["governor_switches_total", "interactive", "chat"] == 5

    asyncio.run(go())


def test_a_fault_does_not_end_the_watch(caplog):
    async def go() -> None:
        async with site(AlertConfig(interval_s=1)) as here:
            here.governor.report = lambda: here.governor.missing  # type: ignore[method-assign, attr-defined]
            async with here.alerts.running(), asyncio.timeout(30):
                while not any(record.exc_info for record in caplog.records):
                    await asyncio.sleep(0.01)
                del here.governor.report
                here.governor.quarantined.add(PAIR)
                while not here.found["alerts_total", "interactive", "chat", "quarantine"]:
                    await asyncio.sleep(0.01)

    asyncio.run(go())
    assert "alerts could not be judged" in caplog.text


def test_a_server_tells_its_webhook_and_goes_on(tiny_llm):
    governor = tiny_llm.engine.governor
    with receiving(204) as receiver:
        config = AlertConfig(interval_s=1, webhook_url=receiver.url)
        with serving(tiny_llm, alerts=config) as served:
            governor.quarantined.add(("default", "lookup"))
            wait_for(lambda: bool(receiver.messages))
            assert served.complete(max_tokens=3, ignore_eos=True).status_code == 200
            page = "webhook_messages_total", "sent"
            wait_for(lambda: read(served.http.get("/metrics").text)[page] == 1)
    governor.quarantined.clear()
    ((_, message),) = receiver.messages
    assert {key: message[key] for key in ("version", "state", "rule", "pool", "route", "proposer", "model")} == {
        "version": 1,
        "state": "begun",
        "rule": "quarantine",
        "pool": "default",
        "route": "default",
        "proposer": "lookup",
        "model": "tiny.gguf",
    }
    assert {"time", "host", "severity", "reason", "action"} <= message.keys()


def test_a_receiver_that_never_answers_does_not_hold_up_the_end(tiny_llm):
    governor = tiny_llm.engine.governor
    with receiving(None) as receiver:
        with serving(tiny_llm, alerts=AlertConfig(interval_s=1, webhook_url=receiver.url)) as served:
            governor.quarantined.add(("default", "lookup"))
            wait_for(lambda: bool(receiver.messages))
            assert served.complete(max_tokens=3, ignore_eos=True).status_code == 200
        assert not receiver.go.is_set()  # the server has ended, and nobody has answered
    governor.quarantined.clear()
