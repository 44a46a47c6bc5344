"""Experiments on a running server: the pool has its own settings back after every end, and serving goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny
from foredraft.engine.llm import LLM
from foredraft.governor.experiment import Experiment
from foredraft.governor.pools import PoolConfig
from foredraft.server.alerts import Alerts
from foredraft.server.routing import RouteConfig
from serving import Served, administered, traffic, wait_for

OWN = PoolConfig(max_concurrency=7)
POOLS = {"default": OWN, "quiet": PoolConfig()}
SHORT = {"window_s": 0.05, "carry_over_s": 0.0, "blocks": 4}
LONG = {"window_s": 30.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@contextmanager
def started(model: Path, state_file: Path | None = None) -> Iterator[Served]:
    routes = {"other": "quiet"}
    with (
        LLM(model, context_length=512, max_sequences=4, threads=1, pools=POOLS, routes=routes) as llm,
        administered(llm, state_file, pools=POOLS, routes={"other": RouteConfig("quiet", model="other")}) as served,
    ):
        yield served


@pytest.fixture
def server(model) -> Iterator[Served]:
    with started(model) as served:
        yield served


@pytest.fixture(scope="module")
def idle_server(model) -> Iterator[Served]:
    with started(model) as served:
        yield served


def begin(server: Served, **fields: Any) -> str:
    response = server.http.post("/admin/experiments", json=fields)
    assert response.status_code == 200, response.text
    name: str = response.json()["id"]
    return name


def record(server: Served, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/admin/experiments/{name}").json()
    return found


def now(server: Served) -> PoolConfig:
    """The pool as the engine has it."""
    return server.llm.governor.pools["default"]


def is_trying(server: Served) -> bool:
    return now(server) is not OWN


def ended(server: Served, name: str) -> dict[str, Any]:
    """The record once it is over, which finds the server at work."""
    wait_for(lambda: record(server, name)["status"] != "running" and server.service.experiments._running is None)
    assert server.complete("x", max_tokens=1).status_code == 200
    return record(server, name)


def audit(server: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.http.get("/admin/audit").json()["entries"]
    return found


@pytest.fixture
def decides(monkeypatch) -> Any:
    """Have experiments end at once with a verdict."""

    def decides(verdict: str | None) -> None:
        def tick(self: Experiment, now_s: float) -> None:
            self.end("finished", "so it is", verdict)

        monkeypatch.setattr(Experiment, "tick", tick)

    return decides


def test_arms_take_turns_and_the_record_is_kept(server):
    with traffic(server):
        name = begin(server, **SHORT, arms=["off", "on:lookup:4"], seed=5)
        modes = set()
        wait_for(lambda: modes.add(now(server).mode) or modes >= {"off", "on"})
        found = ended(server, name)
    assert found["status"] in ("finished", "stopped_on_harm")
    assert len(found["windows"]) == 16
    assert found["config"]["seed"] == 5
    assert found["provenance"]["models"]["model"]["file"] == "tiny.gguf"
    assert all(window["tokens"] > 0 for window in found["windows"])
    assert server.service.pools._store.experiments() == {name: json.loads(json.dumps(found, allow_nan=False))}
    listed = server.http.get("/admin/experiments").json()["experiments"]
    assert [(each["id"], each["status"]) for each in listed] == [(name, found["status"])]
    begun = audit(server)[-1]
    assert (begun["who"], begun["action"], begun["pool"], begun["before"]) == ("anna", "experiment", "default", {})
    assert begun["after"] == {"experiment": name, "arms": ["off", "on:lookup:4"]}


@pytest.mark.parametrize(
    ("verdict", "after"),
    [("better", {"mode": "on", "proposers": ["lookup"], "k_max": 4}), ("worse", {"mode": "off"}), (None, None)],
)
def test_the_better_arm_is_the_pools_own_from_then_on(model, tmp_path, decides, verdict, after):
    decides(verdict)
    with started(model, tmp_path / "state.db") as server:
        name = begin(server, arms=["off", "on:lookup:4"])
        found = ended(server, name)
        newest = audit(server)[0]
        if after is None:
            assert now(server) is OWN
            assert newest["action"] == "experiment"
        else:
            assert (newest["who"], newest["reason"], newest["after"]) == (f"experiment {name}", "so it is", after)
        then = now(server)
    with started(model, tmp_path / "state.db") as server:
        assert now(server) == then
        assert record(server, name) == found


def test_the_verdict_is_told_to_the_advice_also_after_a_restart(model, tmp_path, decides, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(Alerts, "learn", lambda self, record: told.append(record["id"]))
    decides("worse")
    with started(model, tmp_path / "state.db") as server:
        name = begin(server)
        ended(server, name)
    assert told == [name]
    with started(model, tmp_path / "state.db"):
        assert told == [name, name]


def test_stopped(server):
    name = begin(server, **LONG)
    wait_for(lambda: is_trying(server))
    answer = server.http.delete(f"/admin/experiments/{name}").json()
    assert now(server) is OWN
    assert (answer["status"], answer["verdict"], answer["reason"]) == ("stopped", None, "stopped by anna")
    assert ended(server, name) == answer
    assert server.http.delete(f"/admin/experiments/{name}").json() == answer, "a second time changes nothing"


def test_stopped_with_the_server(model, tmp_path):
    with started(model, tmp_path / "state.db") as server:
        name = begin(server, **LONG)
        wait_for(lambda: is_trying(server))
    assert now(server) is OWN
    with started(model, tmp_path / "state.db") as server:
        assert now(server) is OWN
        found = record(server, name)
    assert (found["status"], found["reason"]) == ("stopped", "the server stopped")


def test_no_traffic(server):
    with traffic(server):  # of another pool
        found = ended(server, begin(server, **SHORT, pool="quiet"))
    assert found["status"] == "no_traffic"
    assert "pool quiet had no traffic" in found["reason"]
    assert now(server) is OWN


def test_a_fault_of_ours_ends_the_experiment_only(server, monkeypatch, caplog):
    def fail(self: Experiment, now_s: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Experiment, "tick", fail)
    with caplog.at_level(logging.CRITICAL, "foredraft"):
        found = ended(server, begin(server, **LONG))
    assert (found["status"], found["verdict"]) == ("failed", None)
    assert now(server) is OWN


def test_an_engine_that_fails_ends_the_experiment(server):
    name = begin(server, **LONG)
    wait_for(lambda: is_trying(server))
    server.engine.has_failed = True
    wait_for(lambda: server.service.experiments._running is None)
    server.engine.has_failed = False
    assert now(server) is OWN
    assert (record(server, name)["status"], record(server, name)["verdict"]) == ("failed", None)


def test_what_cannot_be_kept_is_logged_and_changes_nothing(server, caplog, decides):
    def full(record: object) -> None:
        raise OSError("the disk is full")

    decides("worse")
    server.service.pools.save_experiment = full
    assert ended(server, begin(server))["verdict"] == "worse"
    assert [each for each in caplog.messages if "could not be kept" in each]
    assert now(server) is OWN


def test_without_a_usable_state_file_none_begins(model, tmp_path):
    state = tmp_path / "state.db"
    state.write_bytes(b"damaged" * 1000)
    with started(model, state) as server:
        response = server.http.post("/admin/experiments", json={})
        assert response.status_code == 503
        assert "file is not a database" in response.json()["error"]["message"]
        assert not server.service.experiments.records


def test_a_change_by_somebody_else_stays(server):
    name = begin(server, **LONG)
    wait_for(lambda: is_trying(server))
    assert server.http.patch("/admin/pools/default", json={"k_max": 3}).status_code == 200
    wait_for(lambda: server.service.experiments._running is None)
    assert now(server) == PoolConfig(max_concurrency=7, k_max=3)
    assert "changed meanwhile" in record(server, name)["reason"]


def test_latencies_reach_the_window(server):
    with traffic(server, max_tokens=8):
        name = begin(server, **{**SHORT, "window_s": 0.5})
        wait_for(lambda: bool(record(server, name)["windows"]))
    (first, *_) = server.http.delete(f"/admin/experiments/{name}").json()["windows"]
    assert first["itl_p95_ms"] >= first["itl_p50_ms"] > 0
    assert first["ttft_p50_ms"] > 0
    assert first["num_first_tokens"] > 0


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
        ({"arms": ["off", "on:draft_model"]}, "arms", "loaded are grammar, prediction, suffix, lookup"),
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
    assert not idle_server.service.experiments.records
    assert not audit(idle_server)


def test_an_experiment_that_is_not_there(idle_server):
    for method in ("GET", "DELETE"):
        response = idle_server.http.request(method, "/admin/experiments/x")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "experiment_not_found")
