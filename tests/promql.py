"""Holding PromQL against what a server really exports: names, labels, and values of labels that are not open."""

from __future__ import annotations

import promql_parser
from prometheus_client.parser import text_string_to_metric_families as parse

from foredraft.server.counting import Metrics
from foredraft.server.metrics import METRICS
from foredraft.steps import DraftOutcome, StepRecord

ADDED = {"instance", "job"}  # labels that Prometheus adds itself
VALUES = {metric.name: (metric.labels[-1], metric.values) for metric in METRICS if metric.values}


def exported() -> dict[str, set[str]]:
    """The labels of every series of a server that has run a step with a draft."""
    metrics = Metrics({"chat": "interactive"}, ["lookup"])
    draft = DraftOutcome(1, "lookup", 4, (0, 1, 2, 3), False)
    metrics.step(StepRecord(0, 1, 0, 1, 4, (draft,), {}, {1: 4}, {1: "chat"}, {}))
    families = parse(metrics.render().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def check(query: str, series: dict[str, set[str]], shown: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Assert that a query asks for series and labels that are there. shown: labels that its result has to have."""
    asked: list[tuple[str, list[promql_parser.Matcher]]] = []
    grouped: set[str] = set()
    is_grouped = False

    def visit(node: object) -> None:
        nonlocal is_grouped
        if isinstance(node, promql_parser.VectorSelector):
            asked.append((node.name, node.matchers.matchers))
        elif isinstance(node, promql_parser.AggregateExpr):
            is_grouped = True
            grouped.update(node.modifier.labels if node.modifier else ())

    promql_parser.walk(promql_parser.parse(query), visit)
    assert asked
    for name, matchers in asked:
        assert {matcher.name for matcher in matchers} <= series[name] | ADDED
        label, values = VALUES.get(name, (None, {}))
        for matcher in matchers:
            assert matcher.name != label or matcher.value in values, f"{name} has no {label} {matcher.value}"
    known = ADDED.union(*(series[name] for name, _ in asked))
    assert grouped <= known
    assert shown <= (grouped if is_grouped else known)
