"""Reading what a server tells Prometheus, with Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from foredraft.server.counting import Metrics


def series(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return read(metrics.render().decode())


def read(page: str) -> dict[tuple[str, ...], float]:
    """(name without foredraft_, label values in alphabetical order of their labels): value."""
    return {
        (sample.name.removeprefix("foredraft_"), *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
