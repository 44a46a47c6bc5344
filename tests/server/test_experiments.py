"""Experiments on a running server: the pool has its own settings back after every end, and serving goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from experiment_server import ExperimentServer, experiment_server
from foredraft.engine.llm import LLM
from foredraft.governor.experiment import Experiment
from foredraft.governor.governor import Governor
from foredraft.governor.pools import PoolConfig
from serving import wait_for

OWN = PoolConfig(max_concurrency=7)
SHORT = {"window_s": 0.05, "carry_over_s": 0.0, "blocks": 4}
LONG = {"window_s": 30.0}


@pytest.fixture(scope="module")
def idle_server(tiny_llm: LLM) -> Iterator[ExperimentServer]:
    with experiment_server(tiny_llm, Governor({"quiet": PoolConfig()})) as found:
        yield found


@pytest.fixture
def server(tiny_llm: LLM) -> Iterator[ExperimentServer]:
    with experiment_server(tiny_llm, Governor({"default": OWN, "quiet": PoolConfig()}, {"other": "quiet"})) as found:
        yield found


def begin(server: ExperimentServer, **fields: Any) -> str:
    response = server.http.post("/admin/experiments", json=fields)
    assert response.status_code == 200, response.text
    name: str = response.json()["id"]
    return name


def record(server: ExperimentServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/admin/experiments/{name}").json()
    return found


def ended(server: ExperimentServer, name: str) -> dict[str, Any]:
    """The record once it is over, which finds the pool as it was and the server at work."""
    wait_for(lambda: record(server, name)["status"] != "running" and server.runner._running is None)
    assert server.governor.pools["default"] is OWN
    assert server.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 200
    return record(server, name)


def test_arms_take_turns_and_the_record_is_kept(server):
    with server.traffic():
        name = begin(server, **SHORT, arms=["off", "on:lookup:4"], seed=5)
        modes = set()
        wait_for(lambda: modes.add(server.governor.pools["default"].mode) or modes >= {"off", "on"})
        found = ended(server, name)
    assert found["status"] in ("finished", "stopped_on_harm")
    assert len(found["windows"]) == 16
    assert (found["config"]["seed"], found["provenance"]) == (5, {"foredraft": "as tested"})
    assert all(window["tokens"] > 0 for window in found["windows"])
    assert json.loads(json.dumps(server.saved, allow_nan=False)) == [found]
    listed = server.http.get("/admin/experiments").json()["experiments"]
    assert [(each["id"], each["status"]) for each in listed] == [(name, found["status"])]


@pytest.mark.parametrize(
    ("verdict", "applied"),
    [("better", {"mode": "on", "proposers": ("lookup",), "k_max": 4}), ("worse", {"mode": "off"}), (None, None)],
)
def test_the_better_arm_is_applied_at_the_end(server, monkeypatch, verdict, applied):
    def decide(self: Experiment, now_s: float) -> None:
        self.end("finished", "so it is", verdict)

    monkeypatch.setattr(Experiment, "tick", decide)
    ended(server, begin(server, arms=["off", "on:lookup:4"]))
    assert server.applied == ([] if applied is None else [("default", applied, "so it is")])


def test_stopped(server):
    name = begin(server, **LONG)
    wait_for(lambda: server.governor.pools["default"] is not OWN)
    answer = server.http.delete(f"/admin/experiments/{name}").json()
    assert server.governor.pools["default"] is OWN
    assert (answer["status"], answer["verdict"]) == ("stopped", None)
    assert ended(server, name) == answer
    assert server.http.delete(f"/admin/experiments/{name}").json() == answer, "a second time changes nothing"


def test_stopped_with_the_server(tiny_llm):
    with experiment_server(tiny_llm, Governor({"default": OWN})) as server:
        begin(server, **LONG)
        wait_for(lambda: server.governor.pools["default"] is not OWN)
    assert server.governor.pools["default"] is OWN
    assert [(each["status"], each["reason"]) for each in server.saved] == [("stopped", "the server stopped")]


def test_no_traffic(server):
    found = ended(server, begin(server, **SHORT))
    assert found["status"] == "no_traffic"
    assert "pool default had no traffic" in found["reason"]


def test_a_fault_of_ours_ends_the_experiment_only(server, monkeypatch, caplog):
    def fail(self: Experiment, now_s: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Experiment, "tick", fail)
    with caplog.at_level(logging.CRITICAL, "foredraft"):
        found = ended(server, begin(server, **LONG))
    assert (found["status"], found["verdict"]) == ("failed", None)


def test_an_engine_that_fails_ends_the_experiment(server):
    name = begin(server, **LONG)
    wait_for(lambda: server.governor.pools["default"] is not OWN)
    server.runner._engine.has_failed = True
    wait_for(lambda: server.runner._running is None)
    server.runner._engine.has_failed = False
    assert server.governor.pools["default"] is OWN
    assert (record(server, name)["status"], record(server, name)["verdict"]) == ("failed", None)


def test_what_cannot_be_kept_is_logged(server, caplog):
    def full(record: object) -> None:
        raise OSError("the disk is full")

    server.runner._save = full
    assert ended(server, begin(server, **SHORT))["status"] == "no_traffic"
    assert [each for each in caplog.messages if "could not be kept" in each]


def test_a_change_by_somebody_else_stays(server):
    name = begin(server, **LONG)
    wait_for(lambda: server.governor.pools["default"] is not OWN)
    theirs = server.governor.pools["default"] = replace(OWN, mode="off")
    wait_for(lambda: server.runner._running is None)
    assert server.governor.pools["default"] is theirs
    assert "changed meanwhile" in record(server, name)["reason"]


def test_latencies_reach_the_window(server):
    name = begin(server, **{**SHORT, "window_s": 0.5})
    with server.traffic():

        def heard() -> bool:
            server.runner.tokens("default", 2, 0.4)
            server.runner.first_token("default", 0.7)
            return bool(record(server, name)["windows"])

        wait_for(heard)
    (first, *_) = record(server, name)["windows"]
    assert (first["itl_p50_ms"], first["ttft_p50_ms"]) == (pytest.approx(200), pytest.approx(700))
    server.http.delete(f"/admin/experiments/{name}")


def test_one_at_a_time(server):
    name = begin(server, **LONG)
    response = server.http.post("/admin/experiments", json={"pool": "quiet"})
    assert (response.status_code, response.json()["error"]["code"]) == (409, "experiment_running")
    assert name in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"pool": "none"}, "pool", "known are default, quiet"),
        ({"arms": ["off", "off"]}, "arms", "two different ones"),
        ({"arms": ["off", "quick"]}, "arms", "arm 'quick' is not understood"),
        ({"arms": ["off", "on:draft_model"]}, "arms", "loaded are grammar, prediction, lookup"),
        ({"blocks": 1}, "blocks", "4 to 500"),
        ({"length": 1}, "length", "is not supported"),
        ({"window_s": "long"}, "window_s", "number"),
    ],
)
def test_refusals(idle_server, fields, param, message):
    response = idle_server.http.post("/admin/experiments", json=fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert message in error["message"]
    assert not idle_server.runner.records


def test_an_experiment_that_is_not_there(idle_server):
    for method in ("GET", "DELETE"):
        response = idle_server.http.request(method, "/admin/experiments/x")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "experiment_not_found")
