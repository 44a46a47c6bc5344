"""What a server's counters say of its routes over a window of time: the situations that the rules of advice judge.

A window is the difference of two readings of `/metrics`, so that an advice and a query over the same time agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from foredraft.governor.advice import Acceptance, Ratio, Situation
from foredraft.governor.pools import PoolConfig
from foredraft.governor.report import RouteReport
from foredraft.server import metrics
from foredraft.server.counting import Reading
from foredraft.server.metrics import Metric


@dataclass(frozen=True)
class Window:
    """Two readings of one server's metrics, the older one first."""

    before: Reading
    after: Reading

    def added(self, metric: Metric, *labels: str) -> float:
        """What a counter has risen by, over all series whose labels begin with these."""
        return sum(value for series, value in self._risen(metric.name).items() if series[: len(labels)] == labels)

    def percentile(self, share: float, metric: Metric, *labels: str) -> float | None:
        """As histogram_quantile has it: between a bucket's bounds in proportion; None where nothing was observed."""
        buckets = self._risen(f"{metric.name}_bucket").items()
        counts = sorted((float(bound), count) for (*series, bound), count in buckets if tuple(series) == labels)
        wanted = share * counts[-1][1]
        low, below = 0.0, 0.0
        for high, count in counts[:-1]:
            if wanted and count >= wanted:
                return low + (high - low) * (wanted - below) / (count - below)
            low, below = high, count
        return low if wanted else None  # beyond the last bound: at least that

    def acceptance(self, *labels: str, is_quarantined: bool) -> Acceptance:
        """Of a pool's route's proposer: in the window, and from the server's start up to it."""
        accepted, rejected = metrics.ACCEPTED_TOKENS.name, metrics.REJECTED_DRAFTS.name
        before = [int(self.before[name][labels]) for name in (accepted, rejected)]
        after = [int(self.after[name][labels]) for name in (accepted, rejected)]
        return Acceptance(after[0] - before[0], sum(after) - sum(before), before[0], sum(before), is_quarantined)

    def _risen(self, name: str) -> dict[tuple[str, ...], float]:
        before = self.before[name]
        return {series: value - before.get(series, 0.0) for series, value in self.after[name].items()}


@dataclass(frozen=True)
class Governed:
    """What the governor knows at the end of a window. quarantined: (route, proposer). crossovers: by route."""

    pools: Mapping[str, PoolConfig]
    quarantined: Collection[tuple[str, str]]
    reports: Collection[RouteReport]
    crossovers: Mapping[str, float | None]


def situations(
    window: Window,
    routes: Mapping[str, str],
    proposers: Collection[str],
    governed: Governed,
    ratios: Mapping[str, Ratio],
) -> Iterator[Situation]:
    """One for each route. routes: name to that of its pool. ratios: of the last A/B test, by pool."""
    num_steps = window.added(metrics.STEPS)
    continued = window.added(metrics.DRAFTS) + window.added(metrics.STEPS_WITHOUT_DRAFT)
    for route, pool in routes.items():
        labels, config = (pool, route), governed.pools[pool]
        num_drafts = window.added(metrics.DRAFTS, *labels)
        steps = num_drafts + window.added(metrics.STEPS_WITHOUT_DRAFT, *labels)
        is_off = config.mode == "off" or window.added(metrics.STEPS_WITHOUT_DRAFT, *labels, "off") > steps / 2
        yield Situation(
            pool=pool,
            route=route,
            mode="off" if is_off else config.mode,
            concurrency=continued / num_steps if num_steps else None,
            itl_p95_ms=_ms(window.percentile(0.95, metrics.INTER_TOKEN_LATENCY, *labels)),
            itl_objective_ms=config.itl_p95_ms,
            ttft_p95_ms=_ms(window.percentile(0.95, metrics.TIME_TO_FIRST_TOKEN, *labels)),
            ttft_objective_ms=config.ttft_p95_ms,
            drafts_per_step=num_drafts / steps if steps else None,
            tokens_per_step=window.added(metrics.GENERATION_TOKENS, *labels) / steps if steps else None,
            crossover=governed.crossovers[route],
            ratio=ratios.get(pool),
            acceptance={
                name: window.acceptance(*labels, name, is_quarantined=(route, name) in governed.quarantined)
                for name in proposers
            },
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
