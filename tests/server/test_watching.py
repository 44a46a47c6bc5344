"""A request as metrics and log see it: a plain ASGI app in place of the real one, and real steps of an engine."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from fakes import new_engine, new_sequence, proposers
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.server.counting import Metrics
from foredraft.server.logs import LogConfig, RequestLog, request_id
from foredraft.server.watching import Watch, Watching
from prometheus_page import series

PARAMS = SamplingParams(max_tokens=9, ignore_eos=True)
PATH = "/v1/completions"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics({"chat": "main"}, ["right"])


@pytest.fixture
def logged(caplog) -> Iterator[list[dict[str, object]]]:
    """The fields of the requests that have been logged."""
    fields: list[dict[str, object]] = []
    handler = logging.Handler()
    handler.emit = lambda record: fields.append(record.fields)
    logger = logging.getLogger("foredraft.requests")
    logger.addHandler(handler)
    with caplog.at_level(logging.INFO, "foredraft.requests"):
        yield fields
    logger.removeHandler(handler)


def call(app, metrics: Metrics, path: str = PATH, config: LogConfig | None = None) -> list[dict[str, object]]:
    """What the app sends for one request."""
    sent: list[dict[str, object]] = []

    async def send(message):
        sent.append(message)

    watching = Watching(app, metrics, RequestLog(config or LogConfig()), "chat", {PATH})
    asyncio.run(watching({"type": "http", "path": path}, None, send))
    return sent


def answering(status: int, before=lambda watch: None):
    async def app(scope, receive, send):
        before(scope.get("watch"))
        await send({"type": "http.response.start", "status": status, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b""})

    return app


def outcomes(metrics: Metrics) -> dict[str, float]:
    return {key[1]: value for key, value in series(metrics).items() if key[0] == "requests_total" and value}


def finished(watch: Watch, reason: str = "length") -> None:
    sequence = new_sequence([1], PARAMS)
    sequence.finish_reason = reason
    watch.open([sequence])


@pytest.mark.parametrize(
    ("status", "before", "outcome"),
    [
        (200, lambda watch: finished(watch, "stop"), "stop"),
        (200, lambda watch: finished(watch, "length"), "length"),
        (200, lambda watch: finished(watch, None), "disconnected"),
        (200, lambda watch: finished(watch, "abort"), "disconnected"),
        (200, lambda watch: setattr(watch, "outcome", "deadline"), "deadline"),
        (400, lambda watch: None, "invalid"),
        (408, lambda watch: None, "deadline"),
        (429, lambda watch: None, "queue_full"),
        (500, lambda watch: None, "error"),
        (503, lambda watch: None, "shutdown"),
    ],
)
def test_how_a_request_ended(status, before, outcome, metrics, logged):
    call(answering(status, before), metrics)
    assert outcomes(metrics) == {outcome: 1}
    assert [(fields["outcome"], fields["status"]) for fields in logged] == [(outcome, status)]


def test_a_client_that_leaves_before_anything_is_sent(metrics, logged):
    async def app(scope, receive, send):
        pass

    call(app, metrics)
    assert outcomes(metrics) == {"disconnected": 1}
    assert logged[0]["status"] == 499


def test_a_fault_of_ours_is_counted_and_goes_on_its_way(metrics, logged):
    async def app(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(app, metrics)
    assert outcomes(metrics) == {"error": 1}


def test_other_paths_are_let_through(metrics, logged):
    sent = call(answering(200), metrics, path="/health")
    assert sent[0]["headers"] == [(b"a", b"b")]
    assert not outcomes(metrics)
    assert not logged


def test_a_request_has_a_name_in_its_answer_and_in_the_log(metrics, logged):
    seen = []
    sent = call(answering(400, lambda watch: seen.append(request_id.get())), metrics)
    assert sent[0]["headers"] == [(b"a", b"b"), (b"x-request-id", seen[0].encode())]
    assert request_id.get() is None


def test_texts_of_a_request_stay_out_of_the_log_unless_asked_for(metrics, logged):
    def with_texts(watch: Watch) -> None:
        watch.prompt, watch.answer = "secret", "42"

    call(answering(400, with_texts), metrics)
    call(answering(400, with_texts), metrics, config=LogConfig(prompts=True))
    assert "prompt" not in logged[0]
    assert (logged[1]["prompt"], logged[1]["answer"]) == ("secret", "42")


def test_tokens_are_timed_by_the_steps_that_decided_them(metrics, logged):
    """Two choices of one prompt: 9 tokens each in blocks of 5 and 4, the clock a second further at each step."""
    now = 100.0
    watch = Watch(metrics, RequestLog(LogConfig()), "chat", clock=lambda: now)
    engine = new_engine(proposers=proposers())
    speculation = Speculation("on", 4, ("right",))
    leader = new_sequence([1] * 9, PARAMS, speculation)
    other = new_sequence([1] * 9, PARAMS, speculation, choice=1, leader=leader)
    watch.open([leader, other])
    for sequence in (leader, other):
        engine.add(sequence)
    steps = 0
    while not engine.is_idle:
        chunks = engine.step()
        now += 1
        steps += 1
        watch.tokens(chunks)
    watch.ended(200)
    found, labels = series(metrics), ("main", "chat")
    assert steps == 3  # the other choice starts when the first one's prompt has been read
    assert found["time_to_first_token_seconds_count", *labels] == 1
    assert found["time_to_first_token_seconds_sum", *labels] == 1
    assert found["generation_tokens_total", *labels] == 18
    assert found["inter_token_latency_seconds_count", *labels] == 8  # none before the first step's tokens
    assert found["inter_token_latency_seconds_sum", *labels] == 2
    assert found["prompt_tokens_total", *labels] == 9
    assert found["prefix_cache_hits_total", *labels] == 0
    assert logged == [
        {
            "route": "chat",
            "outcome": "length",
            "status": 200,
            "total_ms": 3000.0,
            "ttft_ms": 1000.0,
            "num_prompt_tokens": 9,
            "num_cached_tokens": 0,
            "num_output_tokens": 18,
            "num_draft_tokens": leader.stats.num_draft_tokens + other.stats.num_draft_tokens,
            "num_accepted": leader.stats.num_accepted + other.stats.num_accepted,
        }
    ]


def test_a_dropped_sequence_may_still_be_counted_in_while_its_request_is_logged(metrics, logged):
    class Changing(Counter[str]):
        def items(self):
            raise RuntimeError("dictionary changed size during iteration")

    def dropped(watch: Watch) -> None:
        sequence = new_sequence([1], PARAMS)
        sequence.stats = SpeculationStats(num_tokens=3, num_drafts_by_proposer=Changing(right=1))
        watch.open([sequence])

    call(answering(200, dropped), metrics)
    assert [fields["num_output_tokens"] for fields in logged] == [3]
