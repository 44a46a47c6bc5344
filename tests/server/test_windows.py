"""Situations against what was counted, in the window and before it."""

from __future__ import annotations

import pytest

from foredraft.governor.advice import Acceptance, Ratio
from foredraft.governor.pools import PoolConfig
from foredraft.server import metrics as names
from foredraft.server.counting import Metrics
from foredraft.server.windows import Governed, Window, situations
from foredraft.steps import DraftOutcome, StepRecord

ROUTES = {"chat": "interactive", "enrich": "batch"}
PROPOSERS = ("lookup", "draft_model")
POOLS = {"interactive": PoolConfig(itl_p95_ms=50, ttft_p95_ms=500), "batch": PoolConfig(mode="on")}
GOVERNED = Governed(POOLS, {("enrich", "lookup")}, (), {"chat": 6.0, "enrich": None})


def step(metrics: Metrics, routes: list[str], drafts: dict[int, tuple[str, int, bool]], reason: str = "no_match"):
    """A step of one answer for each of the routes; drafts: by index, proposer, accepted tokens, whether refused."""
    contexts = dict(enumerate(routes))
    outcomes = tuple(DraftOutcome(i, name, 4, accepted, refused) for i, (name, accepted, refused) in drafts.items())
    undrafted = {i: reason for i in contexts if i not in drafts}
    tokens = {i: 1 + (drafts[i][1] if i in drafts else 0) for i in contexts}
    metrics.step(StepRecord(0, len(routes), 0, len(routes), 4 * len(drafts), outcomes, undrafted, tokens, contexts, {}))
    for i, route in contexts.items():
        metrics.tokens(route, tokens[i], 0.02 * tokens[i])


def test_a_situation_is_what_happened_in_the_window():
    metrics = Metrics(ROUTES, PROPOSERS)
    for _ in range(10):
        step(metrics, ["chat", "enrich"], {0: ("lookup", 4, False)})
    metrics.first_token("chat", 3.0)
    before = metrics.read()
    for _ in range(6):
        step(metrics, ["chat", "enrich", "enrich"], {0: ("lookup", 3, True), 1: ("draft_model", 1, True)})
    step(metrics, ["chat", "chat"], {})
    metrics.first_token("chat", 0.2)
    window = Window(before, metrics.read())
    chat, enrich = situations(window, ROUTES, PROPOSERS, GOVERNED, {"batch": Ratio(0.9)})
    assert (chat.pool, chat.route, chat.mode, enrich.mode) == ("interactive", "chat", "auto", "on")
    assert chat.concurrency == enrich.concurrency == pytest.approx((6 * 3 + 2) / 7)
    assert chat.drafts_per_step == pytest.approx(6 / 8)
    assert enrich.drafts_per_step == pytest.approx(0.5)
    assert chat.tokens_per_step == pytest.approx((6 * 4 + 2) / 8)
    assert 15 < chat.itl_p95_ms <= 20
    assert 100 < chat.ttft_p95_ms <= 250
    assert (chat.itl_objective_ms, chat.ttft_objective_ms) == (50, 500)
    assert (enrich.itl_objective_ms, enrich.ttft_p95_ms) == (None, None)
    assert (chat.crossover, enrich.crossover, chat.ratio, enrich.ratio) == (6.0, None, None, Ratio(0.9))
    assert chat.acceptance == {"lookup": Acceptance(18, 24, 40, 40), "draft_model": Acceptance(0, 0)}
    assert enrich.acceptance["draft_model"] == Acceptance(6, 12)
    assert enrich.acceptance["lookup"].is_quarantined


def test_a_window_without_traffic_says_nothing():
    metrics = Metrics(ROUTES, PROPOSERS)
    step(metrics, ["chat"], {})
    reading = metrics.read()
    chat, _ = situations(Window(reading, reading), ROUTES, PROPOSERS, GOVERNED, {})
    unknown = (chat.concurrency, chat.itl_p95_ms, chat.ttft_p95_ms, chat.drafts_per_step, chat.tokens_per_step)
    assert unknown == (None,) * 5


def test_a_route_whose_requests_ask_for_off_is_off():
    metrics = Metrics(ROUTES, PROPOSERS)
    before = metrics.read()
    for reason in ("off", "off", "no_match"):
        step(metrics, ["chat"], {}, reason)
    (chat, _) = situations(Window(before, metrics.read()), ROUTES, PROPOSERS, GOVERNED, {})
    assert chat.mode == "off"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([0.015] * 100, 0.01475),  # all in one bucket: in proportion, as histogram_quantile has it
        ([0.005] * 94 + [0.09] * 6, 0.075 + 0.025 / 6),
        ([9.0] * 10, 1.0),  # beyond the last bound
    ],
)
def test_percentiles_are_those_of_prometheus(seconds, expected):
    metrics = Metrics(ROUTES, PROPOSERS)
    before = metrics.read()
    for each in seconds:
        metrics.tokens("chat", 1, each)
    found = Window(before, metrics.read()).percentile(0.95, names.INTER_TOKEN_LATENCY, "interactive", "chat")
    assert found == pytest.approx(expected)
