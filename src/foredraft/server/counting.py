"""Counts what happens in a server, for `/metrics`. Safe to use from several threads."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import prometheus_client as prometheus
from prometheus_client.metrics_core import Metric as Family

from foredraft.governor.advice import RULES, Key
from foredraft.governor.report import RouteReport
from foredraft.proposers.suffix_memory import SuffixMemory
from foredraft.server import governor_metrics, metrics
from foredraft.server.metric import Metric
from foredraft.server.metrics import METRICS
from foredraft.steps import StepRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Reading = Mapping[str, Mapping[tuple[str, ...], float]]  # every series, by name and its labels' values in their order
_KINDS: Mapping[str, Any] = {
    "counter": prometheus.Counter,
    "gauge": prometheus.Gauge,
    "histogram": prometheus.Histogram,
}


_UNWANTED = ("off", "crowded", "not_worth_it")  # reasons for no draft that are decisions against one,
_IN_VAIN = ("no_match", "failed")  # and those where one was asked for


class Metrics:
    """The metrics of one app, in a registry of its own.

    routes: name of each route to that of its pool. Those names and the proposers' are label values; they come from the
    configuration, never from a request, so that nobody can make series. All series are there from the start, at 0,
    except for positions in a draft, of which there are at most as many as the longest draft has tokens.

    on_first_token, on_tokens: hear what `first_token` and `tokens` are told.

    Methods raise KeyError for an outcome that is not known, and a route or proposer that was not named at the start.
    """

    def __init__(self, routes: Mapping[str, str], proposers: Sequence[str]) -> None:
        self.on_first_token: Callable[[str, float], None] = lambda route, seconds: None
        self.on_tokens: Callable[[str, int, float | None], None] = lambda route, num_tokens, seconds: None
        self._registry = prometheus.CollectorRegistry()
        self._families = {metric.name: self._register(metric) for metric in METRICS}
        self.routes, self.proposers = dict(routes), tuple(proposers)
        self._routes = {route: (pool, route) for route, pool in routes.items()}
        self._drafting = {(r, p): (*labels, p) for r, labels in self._routes.items() for p in proposers}
        self._switches: Counter[str] = Counter()  # by route, as far as they have been counted
        self._hits: Counter[tuple[Metric, str]] = Counter()  # by metric and pool, the same
        for metric in METRICS:
            for labels in self._first_labels(metric):
                self._of(metric, *labels)

    def request_ended(self, route: str, outcome: str) -> None:
        """A request is over, with one of metrics.OUTCOMES. Once for each request, also for those that never ran."""
        if outcome not in metrics.OUTCOMES:
            raise KeyError(outcome)
        self._of(metrics.REQUESTS, *self._routes[route], outcome).inc()

    def first_token(self, route: str, seconds: float) -> None:
        """The first token of a request's answer is there, `seconds` after the request was."""
        self._of(metrics.TIME_TO_FIRST_TOKEN, *self._routes[route]).observe(seconds)
        self.on_first_token(route, seconds)

    def prompt(self, route: str, num_tokens: int, num_cached: int) -> None:
        """A prompt has been read, some of it out of the prefix cache. Once, however many choices continue it."""
        labels = self._routes[route]
        self._of(metrics.PROMPT_TOKENS, *labels).inc(num_tokens)
        self._of(metrics.CACHED_TOKENS, *labels).inc(num_cached)

    def tokens(self, route: str, num_tokens: int, seconds: float | None) -> None:
        """A step decided tokens of one choice, `seconds` after the step before it; None for the choice's first step."""
        labels = self._routes[route]
        self._of(metrics.GENERATION_TOKENS, *labels).inc(num_tokens)
        if seconds is not None:
            latency = self._of(metrics.INTER_TOKEN_LATENCY, *labels)
            for _ in range(num_tokens):
                latency.observe(seconds / num_tokens)
        self.on_tokens(route, num_tokens, seconds)

    def step(self, record: StepRecord) -> None:
        """The engine made a step."""
        counts: Counter[tuple[Any, ...]] = Counter()  # added up first: most sequences of a step share their labels
        counts[metrics.STEPS,] = 1
        counts[metrics.STEP_ROWS, "prompt"] = record.num_prompt_rows
        counts[metrics.STEP_ROWS, "decode"] = record.num_decode_rows
        counts[metrics.STEP_ROWS, "draft"] = record.num_draft_rows
        for context_id, reason in record.undrafted.items():
            counts[metrics.STEPS_WITHOUT_DRAFT, *self._routes[record.routes[context_id]], reason] += 1
        for draft in record.drafts:
            labels = self._drafting[record.routes[draft.context_id], draft.proposer]
            counts[metrics.DRAFTS, *labels] += 1
            counts[metrics.DRAFT_TOKENS, *labels] += draft.num_tokens
            counts[metrics.ACCEPTED_TOKENS, *labels] += draft.num_accepted
            counts[metrics.REJECTED_DRAFTS, *labels] += draft.is_rejected
            for position in range(draft.num_accepted):
                counts[metrics.ACCEPTED_PER_POSITION, *labels, position] += 1
        for route, decision in _decisions(record).items():
            counts[governor_metrics.DECIDED_STEPS, *self._routes[route], decision] = 1
        for (metric, *values), count in counts.items():
            self._of(metric, *values).inc(count)
        for phase, seconds in record.phase_seconds.items():
            self._of(metrics.STEP_SECONDS, phase).inc(seconds)

    def load(self, waiting: Mapping[str, int], running: Mapping[str, int], kv_use: float) -> None:
        """How things stand now: sequences by route (none where a route is left out), and the share of pages in use."""
        for route, labels in self._routes.items():
            self._of(metrics.WAITING, *labels).set(waiting.get(route, 0))
            self._of(metrics.RUNNING, *labels).set(running.get(route, 0))
        self._of(metrics.KV_USE).set(kv_use)

    def outputs(self, memory: SuffixMemory) -> None:
        """How past outputs stand now, and how many drafts out of them were right so far."""
        stores = memory.report()
        for pool in {pool for pool, _ in self._routes.values()}:
            own = [store for store in stores if store.pool == pool]
            self._of(metrics.OUTPUTS_BYTES, pool).set(sum(store.num_bytes for store in own))
            self._of(metrics.OUTPUTS, pool).set(sum(store.num_texts for store in own))
            for metric, counts in (
                (metrics.OUTPUTS_HITS, memory.num_hits),
                (metrics.OUTPUTS_ACCEPTED, memory.num_accepted),
            ):
                new = counts[pool] - self._hits[metric, pool]
                self._of(metric, pool).inc(new)
                self._hits[metric, pool] += new

    def governed(
        self,
        modes: Mapping[str, str],
        quarantined: Collection[tuple[str, str]],
        reports: Iterable[RouteReport],
    ) -> None:
        """How pools are governed now: modes by pool, (route, proposer) in quarantine, what the governor has learned."""
        for pool in {pool for pool, _ in self._routes.values()}:
            for mode in governor_metrics.MODES:
                self._of(governor_metrics.POOL_MODE, pool, mode).set(modes.get(pool) == mode)
        known = {(report.route, report.proposer): report for report in reports}
        for drafting, labels in self._drafting.items():
            report = known.get(drafting)
            self._of(governor_metrics.QUARANTINED, *labels).set(drafting in quarantined)
            self._of(governor_metrics.ALPHA, *labels).set(_number(report.alpha if report else None))
            self._of(governor_metrics.CALIBRATION_ERROR, *labels).set(
                _number(report.calibration_error if report else None)
            )
            if report:  # of the route, and counted once
                new = max(report.num_switches - self._switches[report.route], 0)
                self._of(governor_metrics.SWITCHES, *self._routes[report.route]).inc(new)
                self._switches[report.route] += new

    def advice(self, standing: Collection[Key], begun: Collection[Key]) -> None:
        """The advice that stands now, and what of it is new."""
        counts = Counter((route, rule) for rule, _, route, _ in standing)
        for route, labels in self._routes.items():
            for rule in RULES:
                self._of(governor_metrics.ADVICE, *labels, rule).set(counts[route, rule])
        for rule, _, route, _ in begun:
            self._of(governor_metrics.ALERTS, *self._routes[route], rule).inc()

    def webhook(self, outcome: str) -> None:
        """A message to the webhook is done with, with one of governor_metrics.DELIVERIES."""
        if outcome not in governor_metrics.DELIVERIES:
            raise KeyError(outcome)
        self._of(governor_metrics.WEBHOOKS, outcome).inc()

    def read(self) -> Reading:
        """The value of every series as it is now."""
        reading: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for sample in (sample for family in self.collect() for sample in family.samples):
            reading[sample.name][tuple(sample.labels.values())] = sample.value
        return reading

    def render(self) -> bytes:
        """All of it in Prometheus' text format, CONTENT_TYPE."""
        return prometheus.generate_latest(self)

    def collect(self) -> Iterator[Family]:
        """The registry's families without the `_created` series, which nothing asks for and which double the page."""
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def _register(self, metric: Metric) -> Any:
        more = {"buckets": metric.buckets} if metric.buckets else {}
        return _KINDS[metric.kind](metric.name, metric.help, metric.labels, registry=self._registry, **more)

    def _of(self, metric: Metric, *labels: object) -> Any:
        family = self._families[metric.name]
        return family.labels(*labels) if labels else family

    def _first_labels(self, metric: Metric) -> list[tuple[str, ...]]:
        """Label values of every series that is there from the start."""
        if "position" in metric.labels:
            return []
        known: list[tuple[str, ...]] = [()]
        if "proposer" in metric.labels:
            known = list(self._drafting.values())
        elif "route" in metric.labels:
            known = list(self._routes.values())
        elif "pool" in metric.labels:
            known = list(dict.fromkeys((pool,) for pool, _ in self._routes.values()))
        return [(*labels, value) for labels in known for value in metric.values] if metric.values else known


def _decisions(record: StepRecord) -> dict[str, str]:
    """By route, one of DECISIONS; a route is left out where none was open (an answer's last token, say)."""
    reasons = record.undrafted.items()
    found = {record.routes[context_id]: "no_draft" for context_id, reason in reasons if reason in _UNWANTED}
    found |= {record.routes[context_id]: "draft" for context_id, reason in reasons if reason in _IN_VAIN}
    return found | {record.routes[draft.context_id]: "draft" for draft in record.drafts}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
