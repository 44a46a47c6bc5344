"""Situations against what was counted, in the window and before it."""

from __future__ import annotations

import pytest

from foredraft.governor.advice import Acceptance, Ratio
from foredraft.governor.pools import PoolConfig
from foredraft.server import metrics as names
from foredraft.server.counting import Metrics
from foredraft.server.windows import MOST_S, WINDOW_S, Governed, History, Window, situations
from foredraft.steps import DraftOutcome, StepRecord

ROUTES = {"chat": "interactive", "enrich": "batch"}
PROPOSERS = ("lookup", "draft_model")
POOLS = {"interactive": PoolConfig(itl_p95_ms=50, ttft_p95_ms=500), "batch": PoolConfig(mode="on")}
GOVERNED = Governed(POOLS, (), (), {"chat": 6.0, "enrich": None})


def step(metrics: Metrics, routes: list[str], drafts: dict[int, tuple[str, int, bool]], reason: str = "no_match"):
    """A step of one answer for each of the routes; drafts: by index, proposer, accepted tokens, whether refused."""
    contexts = dict(enumerate(routes))
    outcomes = tuple(
        DraftOutcome(i, name, 4, tuple(range(accepted)), refused) for i, (name, accepted, refused) in drafts.items()
    )
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
    history = History()
    history.add(0.0, metrics.read())
    for _ in range(6):
        step(metrics, ["chat", "enrich", "enrich"], {0: ("lookup", 3, True), 1: ("draft_model", 1, True)})
    step(metrics, ["chat", "chat"], {})
    metrics.first_token("chat", 0.2)
    history.add(WINDOW_S, metrics.read(), {("enrich", "lookup")})
    chat, enrich = situations(history, ROUTES, PROPOSERS, GOVERNED, {"batch": Ratio(0.9)})
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
    history = History()
    history.add(0.0, metrics.read())
    chat, _ = situations(history, ROUTES, PROPOSERS, GOVERNED, {})
    unknown = (chat.concurrency, chat.itl_p95_ms, chat.ttft_p95_ms, chat.drafts_per_step, chat.tokens_per_step)
    assert unknown == (None,) * 5


def test_a_route_whose_requests_ask_for_off_is_off():
    metrics = Metrics(ROUTES, PROPOSERS)
    history = History()
    history.add(0.0, metrics.read())
    for reason in ("off", "off", "no_match"):
        step(metrics, ["chat"], {}, reason)
    history.add(15.0, metrics.read())
    chat, _ = situations(history, ROUTES, PROPOSERS, GOVERNED, {})
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


def test_a_window_moves_on():
    metrics, history = Metrics(ROUTES, PROPOSERS), History()
    for number in range(10):
        history.add(15.0 * number, metrics.read())
        step(metrics, ["chat"], {})
    assert history.window.added(names.STEPS) == WINDOW_S / 15
    history.add(1e6, metrics.read())
    assert history.window.added(names.STEPS) == 1  # the last step, however long ago


def acceptance(*phases: tuple[int, int, int]) -> Acceptance:
    """Of lookup for chat after phases of 15 s each: drafts accepted whole (4 tokens), refused at once, repetitions."""
    metrics, history = Metrics(ROUTES, PROPOSERS), History()
    history.add(0.0, metrics.read())
    now = 0.0
    for good, bad, count in phases:
        for _ in range(count):
            for _ in range(good):
                step(metrics, ["chat"], {0: ("lookup", 4, False)})
            for _ in range(bad):
                step(metrics, ["chat"], {0: ("lookup", 0, True)})
            now += 15.0
            history.add(now, metrics.read())
    return history.acceptance("interactive", "chat", "lookup")


def test_acceptance_reaches_back_as_far_as_it_needs_to():
    assert acceptance((30, 0, 10)) == Acceptance(120, 120, 1080, 1080)  # the last 15 s are enough
    assert acceptance((5, 1, 10)) == Acceptance(100, 105, 100, 105)  # five of them
    assert acceptance((0, 1, 100)) == Acceptance(0, int(MOST_S / 15), 0, 100 - int(MOST_S / 15))  # all there is


def test_a_collapse_is_seen_though_the_governor_asks_no_more():
    stopped = acceptance((30, 0, 10), (20, 50, 1), (0, 0, 4), (0, 2, 20))  # after 50 refusals only probes
    assert stopped.has_collapsed
    assert stopped.num_accepted == 0
    assert not acceptance((30, 0, 10), (20, 50, 1), (0, 0, 4)).has_collapsed


def test_who_comes_out_of_quarantine_begins_anew():
    metrics, history = Metrics(ROUTES, PROPOSERS), History()
    pair = ("chat", "lookup")
    history.add(0.0, metrics.read())
    for accepted, count in ((4, 100), (0, 90)):
        for _ in range(count):
            step(metrics, ["chat"], {0: ("lookup", accepted, not accepted)})
        history.add(15.0 if accepted else 30.0, metrics.read())
    assert history.acceptance("interactive", *pair) == Acceptance(0, 90, 400, 400)
    history.add(45.0, metrics.read(), {pair})
    assert history.acceptance("interactive", *pair) == Acceptance(0, 0, 400, 490, is_quarantined=True)
    step(metrics, ["chat"], {0: ("lookup", 4, False)})
    history.add(60.0, metrics.read())
    assert history.acceptance("interactive", *pair) == Acceptance(4, 4, 400, 490)
