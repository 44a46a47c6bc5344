"""Names and PromQL: every query is PromQL over series that a server really exports, by labels that they really have."""

from __future__ import annotations

import pytest

import promql
from foredraft.server.metrics import METRICS

QUERIES = [(metric.name, question, query) for metric in METRICS for question, query in metric.queries.items()]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    return promql.exported()


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
    promql.check(query, exported)
