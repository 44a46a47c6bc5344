"""What a metric is, and PromQL that several of them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROUTE = ("pool", "route")
DRAFT = ("pool", "route", "proposer")


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric as people and Prometheus know it; a histogram has buckets, a counter's name ends in _total.

    values: what the last of its labels may be, where that is not open. queries: what to ask of it, and the PromQL.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    queries: Mapping[str, str]
    values: Mapping[str, str] | None = None
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def per_second(name: str, by: str = "route") -> str:
    return f"sum by ({by}) (rate(foredraft_{name}[5m]))"


def drafting(name: str, by: str = "route, proposer") -> str:
    return per_second(f"spec_decode_{name}_total", by)


def of_drafts(part: str, whole: str) -> str:
    return f"{drafting(part)} / {drafting(whole)}"


def of_steps(name: str, by: str) -> str:
    return f"{per_second(name, by)} / on () group_left () sum (rate(foredraft_engine_steps_total[5m]))"


def percentile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, {per_second(f'{name}_bucket', 'route, le')})"


def mean(name: str) -> str:
    return f"{per_second(f'{name}_sum')} / {per_second(f'{name}_count')}"
