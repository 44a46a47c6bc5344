"""Names and PromQL: every query is PromQL over series that a server really exports, by labels that they really have."""

from __future__ import annotations

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from foredraft.server.counting import Metrics
from foredraft.server.metrics import METRICS
from foredraft.steps import DraftOutcome, StepRecord

QUERIES = [(metric.name, question, query) for metric in METRICS for question, query in metric.queries.items()]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of every series of a server that has run a step with a draft."""
    metrics = Metrics({"chat": "interactive"}, ["lookup"])
    draft = DraftOutcome(1, "lookup", 4, 4, False)
    metrics.step(StepRecord(0, 1, 0, 1, 4, (draft,), {}, {1: 4}, {1: "chat"}, {}))
    families = parse(metrics.render().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def test_every_metric_is_exported_with_its_labels_and_asked_for(exported):
    for metric in METRICS:
        name = f"{metric.name}_bucket" if metric.buckets else metric.name
        assert exported[name] - {"le"} == set(metric.labels)
        assert metric.queries
        assert any(metric.name in query for query in metric.queries.values())


def test_names_follow_the_rules_of_prometheus():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("foredraft_")
        assert metric.help.endswith(".")
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")


@pytest.mark.parametrize(("name", "question", "query"), QUERIES, ids=lambda value: value[:60])
def test_queries_ask_for_what_is_there(name, question, query, exported):
    asked: list[tuple[str, set[str]]] = []
    grouped: set[str] = set()

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            asked.append((node.name, {matcher.name for matcher in node.matchers.matchers}))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            grouped.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(query), visit)
    assert asked
    for series, labels in asked:
        assert labels <= exported[series]
    assert grouped <= set.union(*(exported[series] for series, _ in asked))
