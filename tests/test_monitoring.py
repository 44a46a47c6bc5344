"""Alert rules and dashboard: they ask for what a server really exports, and Prometheus' own tests of the rules pass."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

import promql
from foredraft.governor.advice import RULES

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMETHEUS = EXAMPLES / "prometheus"
GROUPS = yaml.safe_load((PROMETHEUS / "foredraft.rules.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((EXAMPLES / "grafana" / "foredraft.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    return promql.exported()


@pytest.fixture
def promtool() -> str:
    path = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip("promtool is not installed; Debian's package prometheus has it")
    return path


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "foredraft.rules.yml"), ("test", "rules", "foredraft.test.yml")]
)
def test_promtool_agrees(promtool, arguments):
    done = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_what_is_there_and_says_what_to_do(name, exported):
    rule = ALERTS[name]
    texts = rule["annotations"]
    assert texts.keys() == {"summary", "action"}
    promql.check(rule["expr"], exported, set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values()))))
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_advice_has_an_alert():
    asked = set(re.findall(r'rule="(\w+)"', " ".join(rule["expr"] for rule in ALERTS.values())))
    by_proposer = {"change_drafter": "ForedraftLowAlpha", "quarantine": "ForedraftDrafterQuarantined"}
    assert asked | by_proposer.keys() == RULES.keys()
    assert set(by_proposer.values()) <= ALERTS.keys()


def test_every_alert_is_tested():
    tests = yaml.safe_load((PROMETHEUS / "foredraft.test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    quiet = {case["alertname"] for test in tests for case in test["alert_rule_test"] if not case["exp_alerts"]}
    assert fired == ALERTS.keys()
    assert quiet <= ALERTS.keys()


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_asks_for_what_is_there(title, exported):
    panel = PANELS[title]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        promql.check(target["expr"], exported, set(re.findall(r"{{(\w+)}}", target["legendFormat"])))


def test_the_dashboard_is_one_that_grafana_takes():
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 39
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(PANELS) + sum(panel["type"] == "row" for panel in DASHBOARD["panels"]) == len(ids)
    for panel in PANELS.values():
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_panels_lie_on_the_grid_and_not_on_each_other():
    def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return all(
            one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
            for at, size in (("x", "w"), ("y", "h"))
        )

    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for place in places:
        assert place["w"] > 0
        assert place["h"] > 0
        assert place["x"] >= 0
        assert place["y"] >= 0
        assert place["x"] + place["w"] <= 24
    assert not [pair for pair in combinations(places, 2) if overlap(*pair)]


def test_the_dashboard_has_what_one_asks_first():
    asked = " ".join(target["expr"] for panel in PANELS.values() for target in panel["targets"])
    for name in (
        "generation_tokens_total",
        "inter_token_latency_seconds",
        "time_to_first_token_seconds",
        "num_accepted_tokens_total",
        "num_steps_without_draft_total",
        "governor_switches_total",
        "num_sequences_running",
        "num_sequences_waiting",
        "kv_cache_usage_ratio",
        "advice_active",
        "quarantined_proposers",
    ):
        assert f"foredraft_{name}" in asked or f"foredraft_spec_decode_{name}" in asked
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Speed", "Speculation", "Load", "Advice"]
