"""Follows each request from its arrival to its end, for metrics and log: when its tokens came, and how it ended.

Times are taken where a step's tokens come from the engine, so a client that reads slowly does not count as latency.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foredraft.engine.sequence import Chunk, Sequence
from foredraft.server.counting import Metrics
from foredraft.server.logs import RequestLog, RequestSummary, request_id

CLIENT_GONE = 499  # what is logged where no status was sent, as nginx does
_OUTCOMES = {408: "deadline", 429: "queue_full", 503: "shutdown", CLIENT_GONE: "disconnected"}


def outcome_of(status: int) -> str:
    """How a request ended that was answered with an error."""
    return _OUTCOMES.get(status, "invalid" if status < 500 else "error")


class Watch:
    """One request. Used by the event loop's thread alone.

    `route` is set once the request's own is known. `outcome` is set by whoever knows better than the status tells, such
    as after a stream has begun; `prompt` and `answer` by whoever has the texts, for logs that are asked to show them.
    """

    def __init__(self, metrics: Metrics, log: RequestLog, route: str, clock: Callable[[], float] = time.perf_counter):
        self._metrics, self._log, self._clock = metrics, log, clock
        self.route = route
        self._start = clock()
        self._ttft: float | None = None
        self._last: dict[int, float] = {}  # context id: when its newest tokens came
        self._sequences: dict[int, Sequence] = {}
        self.outcome: str | None = None
        self.prompt = self.answer = ""

    def open(self, sequences: Iterable[Sequence]) -> None:
        """The request has become these sequences."""
        self._sequences = {sequence.context.id: sequence for sequence in sequences}

    def tokens(self, chunks: Iterable[Chunk]) -> None:
        """One step of the engine decided these, for any of the sequences."""
        now = self._clock()
        if self._ttft is None:
            self._ttft = now - self._start
            self._metrics.first_token(self.route, self._ttft)
        for context_id, count in Counter(chunk.context_id for chunk in chunks).items():
            last, sequence = self._last.get(context_id), self._sequences[context_id]
            self._metrics.tokens(self.route, count, None if last is None else now - last)
            if last is None and sequence.leader is None:
                self._metrics.prompt(self.route, sequence.context.prompt_len, sequence.num_cached_tokens or 0)
            self._last[context_id] = now

    def ended(self, status: int) -> None:
        """The request is over, answered with `status`. To be called once."""
        # Numbers only: where a sequence was dropped, the engine may still be counting.
        stats = [sequence.stats for sequence in self._sequences.values()]
        leaders = [sequence for sequence in self._sequences.values() if sequence.leader is None]
        outcome = self.outcome or self._outcome(status)
        self._metrics.request_ended(self.route, outcome)
        self._log.ended(
            RequestSummary(
                route=self.route,
                outcome=outcome,
                status=status,
                total_ms=_ms(self._clock() - self._start),
                ttft_ms=None if self._ttft is None else _ms(self._ttft),
                num_prompt_tokens=sum(leader.context.prompt_len for leader in leaders),
                num_cached_tokens=sum(leader.num_cached_tokens or 0 for leader in leaders),
                num_output_tokens=sum(each.num_tokens for each in stats),
                num_draft_tokens=sum(each.num_draft_tokens for each in stats),
                num_accepted=sum(each.num_accepted for each in stats),
            ),
            self.prompt,
            self.answer,
        )

    def _outcome(self, status: int) -> str:
        if status >= 400:
            return outcome_of(status)
        reasons = {sequence.finish_reason for sequence in self._sequences.values()}
        if not reasons <= {"stop", "length"}:
            return "disconnected"  # a stream that nobody read to its end
        return "length" if "length" in reasons else "stop"


class Watching:
    """Middleware that puts a Watch into the scope of each request to `paths` and gives its answer an x-request-id.

    route: what a request counts for until its own route is known.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: RequestLog, route: str, paths: Collection[str]) -> None:
        self._app, self._paths = app, paths
        self._metrics, self._log, self._route = metrics, log, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        name, status = uuid.uuid4().hex, CLIENT_GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", name.encode())]}
            await send(message)

        watch = scope["watch"] = Watch(self._metrics, self._log, self._route)
        token = request_id.set(name)
        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            watch.ended(status)
            request_id.reset(token)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
