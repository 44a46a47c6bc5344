"""Counters against what a run really did, and series that no request can make."""

from __future__ import annotations

import re
import threading

import pytest

from fakes import BrokenProposer, new_engine, new_sequence, proposers
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.server.counting import Metrics
from foredraft.server.metrics import OUTCOMES, ROW_KINDS
from foredraft.steps import NO_DRAFT_REASONS, PHASES, DraftOutcome, StepRecord
from prometheus_page import series

ROUTES = {"chat": "interactive", "enrich": "batch"}


def test_a_run_is_counted_as_the_requests_count_themselves():
    metrics = Metrics(ROUTES, ["random", "tree"])
    engine = new_engine(proposers=proposers())
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    plans = {"chat": [("random",), ("tree",), ("random",)], "enrich": [("tree",), ()]}
    totals = {}
    sequences = []
    for route, each in plans.items():
        for names in each:
            speculation = Speculation("on", 4, names) if names else Speculation("off")
            sequence = new_sequence([1, 2, len(sequences)], params, speculation, route=route)
            sequences.append((route, names, sequence))
            engine.add(sequence)
    seconds = 0.0
    while not engine.is_idle:
        engine.step()
        metrics.step(engine.last_record)
        seconds += sum(engine.last_record.phase_seconds.values())
    found = series(metrics)
    for route, names, sequence in sequences:
        if names:
            totals.setdefault((route, *names), SpeculationStats()).add(sequence.stats)
    for (route, name), stats in totals.items():
        labels = (ROUTES[route], name, route)  # pool, proposer, route
        assert found["spec_decode_num_drafts_total", *labels] == stats.num_drafts
        assert found["spec_decode_num_draft_tokens_total", *labels] == stats.num_draft_tokens
        assert found["spec_decode_num_accepted_tokens_total", *labels] == stats.num_accepted
        assert found["spec_decode_num_rejected_drafts_total", *labels] == stats.num_ended_by_rejection
        per_position = "spec_decode_num_accepted_tokens_per_pos_total"
        for position, count in enumerate(stats.accepted_per_position):
            assert found[per_position, labels[0], str(position), *labels[1:]] == count
        assert stats.num_accepted > 0
        assert stats.num_ended_by_rejection > 0
    assert found["spec_decode_num_steps_without_draft_total", "batch", "off", "enrich"] == 30
    assert found["engine_steps_total",] == engine.num_steps
    assert sum(found["engine_rows_total", kind] for kind in ROW_KINDS) == sum(
        len(batch.tokens) for batch in engine._target.batches
    )
    assert sum(found["engine_step_seconds_total", phase] for phase in PHASES) == pytest.approx(seconds)


def test_a_failing_proposer_shows_as_the_reason():
    metrics = Metrics({"chat": "interactive"}, ["broken"])
    engine = new_engine(proposers={"broken": BrokenProposer("raises")})
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    engine.add(new_sequence([1], params, Speculation("on", 4, ("broken",)), route="chat"))
    while not engine.is_idle:
        engine.step()
        metrics.step(engine.last_record)
    found = series(metrics)
    assert found["spec_decode_num_steps_without_draft_total", "interactive", "failed", "chat"] == 4
    assert found["spec_decode_num_drafts_total", "interactive", "broken", "chat"] == 0


def test_latencies_are_per_token():
    metrics = Metrics({"chat": "interactive"}, [])
    metrics.first_token("chat", 0.3)
    metrics.prompt("chat", 40, 32)
    metrics.tokens("chat", 3, None)
    metrics.tokens("chat", 4, 0.040)
    found = series(metrics)
    labels = ("interactive", "chat")
    assert found["time_to_first_token_seconds_count", *labels] == 1
    assert found["time_to_first_token_seconds_sum", *labels] == 0.3
    assert found["prompt_tokens_total", *labels] == 40
    assert found["prefix_cache_hits_total", *labels] == 32
    assert found["generation_tokens_total", *labels] == 7
    assert found["inter_token_latency_seconds_count", *labels] == 4
    assert found["inter_token_latency_seconds_sum", *labels] == pytest.approx(0.040)
    assert found["inter_token_latency_seconds_bucket", "0.0075", *labels] == 0
    assert found["inter_token_latency_seconds_bucket", "0.015", *labels] == 4


def test_requests_and_load():
    metrics = Metrics(ROUTES, [])
    metrics.request_ended("chat", "stop")
    metrics.request_ended("chat", "stop")
    metrics.request_ended("enrich", "queue_full")
    metrics.load(waiting={"chat": 3}, running={"chat": 2, "enrich": 1}, kv_use=0.25)
    metrics.load(waiting={}, running={"enrich": 1}, kv_use=0.5)
    found = series(metrics)
    assert found["requests_total", "stop", "interactive", "chat"] == 2
    assert found["requests_total", "queue_full", "batch", "enrich"] == 1
    assert found["num_sequences_waiting", "interactive", "chat"] == 0
    assert found["num_sequences_running", "interactive", "chat"] == 0
    assert found["num_sequences_running", "batch", "enrich"] == 1
    assert found["kv_cache_usage_ratio",] == 0.5


def test_decisions_are_counted_by_route_and_step():
    metrics = Metrics(ROUTES, ["lookup"])
    routes = {0: "chat", 1: "chat", 2: "enrich"}

    def step(undrafted: dict[int, str], *drafts: DraftOutcome) -> None:
        metrics.step(StepRecord(0, 3, 0, 3, 0, drafts, undrafted, {}, routes, {}))

    step({1: "not_worth_it", 2: "not_worth_it"}, DraftOutcome(0, "lookup", 4, (0, 1), True))
    step({0: "no_match", 1: "not_worth_it", 2: "off"})  # one was asked for, in vain
    step({0: "no_budget", 1: "no_proposer"})  # nothing was open
    found = series(metrics)
    decisions = "governor_decisions_total"
    assert (found[decisions, "draft", "interactive", "chat"], found[decisions, "no_draft", "interactive", "chat"]) == (
        2,
        0,
    )
    assert (found[decisions, "draft", "batch", "enrich"], found[decisions, "no_draft", "batch", "enrich"]) == (0, 2)


def test_advice_and_messages():
    metrics = Metrics(ROUTES, ["lookup", "draft_model"])
    lookup, model, on = (
        ("change_drafter", "interactive", "chat", "lookup"),
        ("change_drafter", "interactive", "chat", "draft_model"),
        ("turn_on", "batch", "enrich", None),
    )
    metrics.advice([lookup, model, on], [lookup, model, on])
    metrics.advice([lookup], [])
    metrics.webhook("failed")
    found = series(metrics)
    assert found["advice_active", "interactive", "chat", "change_drafter"] == 1
    assert found["advice_active", "batch", "enrich", "turn_on"] == 0
    assert found["alerts_total", "interactive", "chat", "change_drafter"] == 2
    assert found["alerts_total", "batch", "enrich", "turn_on"] == 1
    assert (found["webhook_messages_total", "failed"], found["webhook_messages_total", "sent"]) == (1, 0)
    with pytest.raises(KeyError, match="lost"):
        metrics.webhook("lost")


def test_all_series_are_there_before_anything_happens():
    names = series(Metrics(ROUTES, ["lookup", "draft_model"]))
    for route, pool in ROUTES.items():
        assert all(("requests_total", outcome, pool, route) in names for outcome in OUTCOMES)
        assert all(
            ("spec_decode_num_steps_without_draft_total", pool, reason, route) in names for reason in NO_DRAFT_REASONS
        )
        for proposer in ("lookup", "draft_model"):
            assert ("spec_decode_num_drafts_total", pool, proposer, route) in names
    assert not any(name.endswith("_created") for name, *_ in names)


def test_what_is_not_in_the_configuration_makes_no_series():
    metrics = Metrics({"chat": "interactive"}, ["lookup"])
    before = series(metrics)
    with pytest.raises(KeyError, match="ninja"):
        metrics.request_ended("ninja", "stop")
    with pytest.raises(KeyError, match="ninja"):
        metrics.request_ended("chat", "ninja")
    with pytest.raises(KeyError, match="ninja"):
        metrics.tokens("ninja", 1, None)
    assert series(metrics) == before


def test_two_apps_do_not_share_counts():
    one, other = Metrics({"chat": "a"}, []), Metrics({"chat": "a"}, [])
    one.request_ended("chat", "stop")
    assert series(other)["requests_total", "stop", "a", "chat"] == 0


def test_threads_lose_no_counts():
    metrics = Metrics({"chat": "a"}, [])
    threads = [threading.Thread(target=lambda: [metrics.tokens("chat", 2, 0.01) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert series(metrics)["generation_tokens_total", "a", "chat"] == 4000


def test_the_page_is_what_prometheus_reads():
    page = Metrics({'a "quoted"\nroute': "pool"}, []).render().decode()
    assert re.search(r'route="a \\"quoted\\"\\nroute"', page)
    assert page.endswith("\n")


def test_latencies_are_told_on():
    metrics = Metrics(ROUTES, [])
    heard: list[tuple[object, ...]] = []
    metrics.on_first_token = metrics.on_tokens = lambda *what: heard.append(what)
    metrics.first_token("chat", 0.5)
    metrics.tokens("enrich", 3, None)
    metrics.tokens("enrich", 2, 0.25)
    assert heard == [("chat", 0.5), ("enrich", 3, None), ("enrich", 2, 0.25)]
