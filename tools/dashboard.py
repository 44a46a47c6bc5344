"""The Grafana dashboard of examples/grafana/foredraft.json, made of the metrics' own queries."""

import json
from dataclasses import dataclass
from typing import Any

from foredraft.server import governor_metrics, metrics
from foredraft.server.metric import Metric

WIDTH, HEIGHT = 8, 8  # of a panel; Grafana's grid is 24 wide
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39  # Grafana 10 and newer


@dataclass(frozen=True)
class Panel:
    """A time series of some metrics' queries: (metric, question, legend)."""

    title: str
    unit: str
    queries: tuple[tuple[Metric, str, str], ...]
    kind: str = "timeseries"


BY_PROPOSER = "{{route}}, {{proposer}}"
ROWS = {
    "Speed": (
        Panel("Tokens per second", "short", ((metrics.GENERATION_TOKENS, "tokens per second", "{{route}}"),)),
        Panel(
            "Inter-token latency",
            "s",
            (
                (metrics.INTER_TOKEN_LATENCY, "median", "{{route}}, p50"),
                (metrics.INTER_TOKEN_LATENCY, "95th percentile", "{{route}}, p95"),
            ),
        ),
        Panel("Time to first token, p95", "s", ((metrics.TIME_TO_FIRST_TOKEN, "95th percentile", "{{route}}"),)),
    ),
    "Speculation": (
        Panel(
            "Alpha: chance that a drafted token is accepted after those before it were",
            "percentunit",
            (
                (
                    metrics.REJECTED_DRAFTS,
                    "alpha, the chance that a token is accepted after those before it were",
                    BY_PROPOSER,
                ),
            ),
        ),
        Panel(
            "Tokens per step of an answer (1 without speculation)",
            "short",
            ((metrics.GENERATION_TOKENS, "tokens per step of an answer, the gain of speculation", "{{route}}"),),
        ),
        Panel(
            "Share of an answer's steps that had a draft",
            "percentunit",
            ((metrics.DRAFTS, "share of an answer's steps that had a draft", "{{route}}"),),
        ),
        Panel(
            "Why nothing is drafted",
            "percentunit",
            (
                (
                    metrics.STEPS_WITHOUT_DRAFT,
                    "why nothing is drafted, as a share of those steps",
                    "{{route}}, {{reason}}",
                ),
            ),
        ),
        Panel(
            "Switches of the governor per minute",
            "short",
            ((governor_metrics.SWITCHES, "switches per minute", "{{route}}"),),
        ),
        Panel(
            "Calibration error of the governor, worst of a route",
            "percentunit",
            ((governor_metrics.CALIBRATION_ERROR, "worst of a route", "{{route}}"),),
        ),
    ),
    "Load": (
        Panel("Answers that are written", "short", ((metrics.RUNNING, "mean concurrency", "{{instance}}, {{route}}"),)),
        Panel(
            "Answers that wait",
            "short",
            ((metrics.WAITING, "longest queue of the last 15 minutes", "{{instance}}, {{route}}"),),
        ),
        Panel("KV cache in use", "percentunit", ((metrics.KV_USE, "highest of the last 15 minutes", "{{instance}}"),)),
    ),
    "Advice": (
        Panel("Advice that stands", "short", ((governor_metrics.ADVICE, "what stands", "{{route}}, {{rule}}"),)),
        Panel(
            "Proposers in quarantine",
            "short",
            ((governor_metrics.QUARANTINED, "who is in quarantine", BY_PROPOSER),),
            "table",
        ),
        Panel(
            "Pools that are off", "short", ((governor_metrics.POOL_MODE, "pools that are off", "{{pool}}"),), "table"
        ),
    ),
}


def _targets(panel: Panel) -> list[dict[str, Any]]:
    return [
        {
            "refId": chr(ord("A") + number),
            "datasource": DATASOURCE,
            "expr": metric.queries[question],
            "legendFormat": legend,
            **({"format": "table", "instant": True} if panel.kind == "table" else {}),
        }
        for number, (metric, question, legend) in enumerate(panel.queries)
    ]


def _panel(id: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    return {
        "id": id,
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join(dict.fromkeys(metric.help for metric, _, _ in panel.queries)),
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": _targets(panel),
    }


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": title,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y += 1
        for number, panel in enumerate(row):
            line, column = divmod(number, 24 // WIDTH)
            made.append(_panel(len(made) + 1, panel, column * WIDTH, y + line * HEIGHT))
        y += -(-len(row) * WIDTH // 24) * HEIGHT
    return made


def page() -> str:
    """The dashboard as Grafana imports it; it asks for the Prometheus to look at."""
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    whole = {
        "uid": "foredraft",
        "title": "foredraft",
        "tags": ["foredraft"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
        "panels": _panels(),
    }
    return json.dumps(whole, indent=1) + "\n"
