"""What a server's counters say of its routes over a window of time: the situations that the rules of advice judge.

A window is the difference of two readings of `/metrics`, so that an advice and a query over the same time agree.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from foredraft.governor.advice import MIN_TRIALS, Acceptance, Ratio, Situation
from foredraft.governor.pools import PoolConfig
from foredraft.governor.report import RouteReport
from foredraft.server import metrics
from foredraft.server.counting import Reading
from foredraft.server.metric import Metric

WINDOW_S = 60.0  # or an interval, where that is longer: enough tokens for a p95, and little that is over
MOST_S = 600.0  # as far back as acceptance may reach for enough trials
_ACCEPTANCE = (metrics.ACCEPTED_TOKENS.name, metrics.REJECTED_DRAFTS.name)


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

    def _risen(self, name: str) -> dict[tuple[str, ...], float]:
        before = self.before[name]
        return {series: value - before.get(series, 0.0) for series, value in self.after[name].items()}


class History:
    """The readings of one server's metrics that windows up to now may begin with."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Reading]] = deque()
        self._trials: deque[tuple[float, Reading]] = deque()  # of the metrics that tell acceptance, further back
        self._quarantined: dict[tuple[str, str], float] = {}  # when they were last

    def add(self, now: float, reading: Reading, quarantined: Collection[tuple[str, str]] = ()) -> None:
        """Take in how things stand. now: in seconds, never falling. quarantined: (route, proposer)."""
        self._quarantined |= dict.fromkeys(quarantined, now)
        self._readings.append((now, reading))
        self._trials.append((now, {name: reading[name] for name in _ACCEPTANCE}))
        for readings, seconds in ((self._readings, WINDOW_S), (self._trials, MOST_S)):
            while len(readings) > 2 and readings[1][0] <= now - seconds:
                readings.popleft()

    @property
    def window(self) -> Window:
        """The last WINDOW_S, or as much as there is."""
        return Window(self._readings[0][1], self._readings[-1][1])

    def acceptance(self, pool: str, route: str, proposer: str) -> Acceptance:
        """Lately, and from the server's start up to then.

        Lately is the shortest time up to now in which the proposer had enough trials, or collapsed; at most MOST_S. (A
        governor stops asking who has collapsed, so that only its probes still tell.) Who comes out of quarantine begins
        anew.
        """
        now, newest = self._trials[-1]
        quarantined = self._quarantined.get((route, proposer), -math.inf)
        after = _trials(newest, (pool, route, proposer))
        for time, reading in reversed(self._trials):
            before = _trials(reading, (pool, route, proposer))
            found = Acceptance(after[0] - before[0], after[1] - before[1], *before, quarantined == now)
            if found.num_trials >= MIN_TRIALS or found.has_collapsed or time <= quarantined:
                break
        return found


@dataclass(frozen=True)
class Governed:
    """What the governor knows at the end of a window. quarantined: (route, proposer). crossovers: by route."""

    pools: Mapping[str, PoolConfig]
    quarantined: Collection[tuple[str, str]]
    reports: Collection[RouteReport]
    crossovers: Mapping[str, float | None]


def situations(
    history: History,
    routes: Mapping[str, str],
    proposers: Collection[str],
    governed: Governed,
    ratios: Mapping[str, Ratio],
) -> Iterator[Situation]:
    """One for each route. routes: name to that of its pool. ratios: of the last A/B test, by pool."""
    window = history.window
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
            acceptance={name: history.acceptance(pool, route, name) for name in proposers},
        )


def _trials(reading: Reading, labels: tuple[str, ...]) -> tuple[int, int]:
    """Tokens of a proposer that were accepted, and that were tried, since the server's start."""
    accepted, rejected = (int(reading[name][labels]) for name in _ACCEPTANCE)
    return accepted, accepted + rejected


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
