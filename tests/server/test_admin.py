"""The admin API over a real app: who may use it, what it changes, and what is left of it after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError
from foredraft.governor.pools import PoolConfig
from foredraft.server.app import create_app
from foredraft.server.auth import ApiKey
from foredraft.server.config import ServerConfig
from foredraft.server.engine_thread import EngineThread
from foredraft.server.routing import RouteConfig
from serving import Served, administered, held, serving, wait_for

POOLS = {"chat": PoolConfig(itl_p95_ms=40.0), "batch": PoolConfig("off", k_max=4)}
ROUTES = {"chat": RouteConfig("chat", model="fast"), "nightly": RouteConfig("batch", api_key="ci")}
ADMIN = {"Authorization": "Bearer root"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@contextmanager
def with_pools(model: Path, state_file: Path | None = None, pools=POOLS, **settings: Any) -> Iterator[Served]:
    """A server with pools, and its admin."""
    llm = LLM(
        model,
        context_length=512,
        max_sequences=4,
        threads=1,
        pools=pools,
        routes={name: route.pool for name, route in ROUTES.items()},
    )
    with administered(llm, state_file, pools=pools, routes=ROUTES, **settings) as served:
        yield served


@pytest.fixture
def served(model) -> Iterator[Served]:
    with with_pools(model) as served:
        yield served


def pool(served: Served, name: str = "batch") -> dict[str, Any]:
    return next(each for each in served.http.get("/admin/pools").json()["pools"] if each["name"] == name)


def change(served: Served, name: str = "batch", **body: Any) -> Any:
    return served.http.patch(f"/admin/pools/{name}", json=body)


def audit(served: Served) -> list[dict[str, Any]]:
    return served.http.get("/admin/audit").json()["entries"]


def error(response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found = response.json()["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    return found


def test_pools_are_as_configured(served):
    found = served.http.get("/admin/pools").json()
    assert [each["name"] for each in found["pools"]] == ["default", "chat", "batch"]
    assert found["state"] == {"file": None, "problem": None}
    assert pool(served, "chat") == served.http.get("/admin/pools/chat").json()
    assert pool(served) == {
        "name": "batch",
        "settings": {
            "mode": "off",
            "max_concurrency": None,
            "proposers": [],
            "k_max": 4,
            "share_outputs": False,
            "itl_p95_ms": None,
            "ttft_p95_ms": None,
        },
        "configured": pool(served)["settings"],
        "changed": [],
        "routes": ["nightly"],
        "num_sequences_running": 0,
        "num_sequences_waiting": 0,
    }


def test_a_change_holds_when_it_is_answered_and_is_told_of(served):
    answer = change(served, mode="on", k_max=None, proposers=["lookup"], reason="they asked").json()
    assert answer == pool(served)
    assert answer["changed"] == ["mode", "proposers", "k_max"]
    assert answer["configured"]["k_max"] == 4
    governor = served.llm.engine.governor
    assert governor.pools["batch"] == PoolConfig("on", proposers=("lookup",))
    assert governor.pools["chat"] == POOLS["chat"]
    [entry] = audit(served)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "id": 1,
        "who": "anna",
        "action": "change",
        "pool": "batch",
        "before": {"mode": "off", "proposers": [], "k_max": 4},
        "after": {"mode": "on", "proposers": ["lookup"], "k_max": None},
        "reason": "they asked",
    }


def test_a_reset_goes_back_to_what_is_configured(served):
    change(served, mode="on", max_concurrency=3)
    answer = served.http.post("/admin/pools/batch/reset", json={"reason": "enough"})
    assert answer.json()["changed"] == []
    assert served.llm.engine.governor.pools["batch"] == POOLS["batch"]
    assert [(each["action"], each["after"], each["reason"]) for each in audit(served)] == [
        ("reset", {"mode": "off", "max_concurrency": None}, "enough"),
        ("change", {"mode": "on", "max_concurrency": 3}, ""),
    ]
    assert served.http.post("/admin/pools/batch/reset").status_code == 200
    assert len(served.http.get("/admin/audit?limit=2").json()["entries"]) == 2


def test_a_key_without_a_name_is_known_by_its_fingerprint(served):
    served.http.patch("/admin/pools/chat", json={"mode": "on"}, headers={"Authorization": "Bearer unnamed"})
    [entry] = audit(served)
    assert entry["who"] == f"sha256:{hashlib.sha256(b'unnamed').hexdigest()[:8]}"


def test_every_way_is_in_the_document(served):
    ways = {path: way for path, way in served.http.get("/openapi.json").json()["paths"].items() if "/admin" in path}
    assert {(path, method) for path, way in ways.items() for method in way} == {
        ("/admin/pools", "get"),
        ("/admin/pools/{name}", "get"),
        ("/admin/pools/{name}", "patch"),
        ("/admin/pools/{name}/reset", "post"),
        ("/admin/audit", "get"),
        ("/admin/quarantine", "get"),
        ("/admin/quarantine/{route}/{proposer}", "delete"),
        ("/admin/experiments", "get"),
        ("/admin/experiments", "post"),
        ("/admin/experiments/{name}", "get"),
        ("/admin/experiments/{name}", "delete"),
        ("/admin/outputs", "get"),
        ("/admin/outputs/{name}", "delete"),
    }
    assert all(each["responses"].keys() == {"200", "4XX", "5XX"} for way in ways.values() for each in way.values())


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, None, "nothing is to be changed"),
        ({"reason": "none"}, None, "nothing is to be changed"),
        ({"mode": "maybe"}, "mode", "allowed is off, auto, on"),
        ({"mode": None}, "mode", "allowed is off, auto, on"),
        ({"mode": 1}, "mode", "string"),
        ({"k_max": 0}, "k_max", "1 to 64"),
        ({"k_max": 2.5}, "k_max", "integer"),
        ({"max_concurrency": -1}, "max_concurrency", "1 or more"),
        ({"itl_p95_ms": 50, "ttft_p95_ms": 40}, "itl_p95_ms", "more than ttft_p95_ms"),
        ({"proposers": ["magic"]}, "proposers", "'magic'; loaded are grammar, prediction, suffix, lookup"),
        ({"proposers": "lookup"}, "proposers", "list"),
        ({"magic": 1}, "magic", "not supported"),
        ({"mode": "on", "reason": "x" * 501}, "reason", "500"),
    ],
)
def test_what_is_not_allowed_changes_nothing(served, body, param, message):
    found = error(change(served, **body), 400)
    assert found["param"] == param
    assert message in found["message"]
    assert pool(served)["changed"] == []
    assert audit(served) == []


def test_unknown_names_are_answered_with_the_known_ones(served):
    for response in (
        change(served, "magic", mode="on"),
        served.http.get("/admin/pools/magic"),
        served.http.post("/admin/pools/magic/reset"),
    ):
        found = error(response, 404)
        assert found["message"] == "there is no pool 'magic'; known are default, chat, batch"
        assert found["code"] == "pool_not_found"
    assert error(served.http.get("/admin/audit?limit=0"), 400)["param"] == "limit"
    assert error(served.http.get("/admin/audit?magic=1"), 400)["code"] == "unsupported_field"
    assert error(served.http.get("/admin/magic"), 404)["message"].startswith("there is no GET /admin/magic")


def test_requests_that_run_see_a_change_at_the_next_step(served):
    seen: list[str] = []

    def on_step(_: object) -> None:
        seen.append(served.llm.engine.governor.pools["default"].mode)
        if len(seen) == 3:
            served.service.pools.change("default", {"mode": "off"}, "test", "")

    served.llm.engine.on_step.append(on_step)
    assert served.complete("x", max_tokens=20, ignore_eos=True, speculation="off").status_code == 200
    assert seen[:4] == ["auto", "auto", "auto", "off"]
    assert set(seen[4:]) == {"off"}


def test_the_engine_outlives_a_command_that_fails(served):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(served.engine.call(lambda: 1 // 0))
    assert asyncio.run(served.engine.call(lambda: threading.current_thread().name)) == "engine"
    assert served.complete("x", max_tokens=2).status_code == 200


def test_what_waits_and_runs_is_counted_for_its_pool(served):
    with held(served.llm) as go:
        fields = {"prompt": "x", "model": "fast", "max_tokens": 2, "n": 3, "stream": True}
        request = served.http.build_request("POST", "/v1/completions", json=fields)
        sender = threading.Thread(target=lambda: served.http.send(request))
        sender.start()
        wait_for(lambda: pool(served, "chat")["num_sequences_waiting"] == 3)
        assert pool(served)["num_sequences_waiting"] == 0
        go.set()
        sender.join()
    assert pool(served, "chat")["num_sequences_running"] == 0


def test_a_proposer_is_let_out_of_quarantine(served):
    governor = served.llm.engine.governor
    governor.quarantined |= {("nightly", "lookup"), ("chat", "lookup")}
    both = [{"route": "chat", "proposer": "lookup"}, {"route": "nightly", "proposer": "lookup"}]
    assert served.http.get("/admin/quarantine").json() == {"quarantine": both}
    answer = served.http.delete("/admin/quarantine/nightly/lookup?reason=fixed")
    assert answer.json() == {"quarantine": both[:1]}
    assert governor.quarantined == {("chat", "lookup")}
    [entry] = audit(served)
    assert (entry["action"], entry["pool"], entry["reason"]) == ("release", "batch", "fixed")
    assert entry["before"] == {"route": "nightly", "proposer": "lookup"}
    found = error(served.http.delete("/admin/quarantine/nightly/lookup"), 404)
    assert found["message"].endswith("those are: lookup on chat")


PATHS = ["/admin", "/admin/pools", "/admin/audit", "/admin/quarantine", "/admin/magic"]


@pytest.fixture(scope="module")
def locked(model) -> Iterator[Served]:
    with with_pools(model, api_keys=(ApiKey("client", "ci"),)) as served:
        yield served


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", ["", "Bearer client", "Bearer roo", "Bearer root unnamed", "Basic root", "root"])
def test_only_an_admins_key_lets_in(locked, path, header):
    response = locked.http.get(path, headers={"Authorization": header})
    assert error(response, 401)["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_an_admins_key_is_for_the_admin_api_alone(locked):
    assert locked.http.get("/v1/models").status_code == 401
    assert locked.http.get("/v1/models", headers={"Authorization": "Bearer client"}).status_code == 200


@pytest.mark.parametrize("keys", [(), (ApiKey("client"),)])
def test_without_an_admin_key_there_is_no_admin_api(tiny_llm, keys):
    with serving(tiny_llm, api_keys=keys) as served:
        for path in PATHS:
            for headers in ({}, ADMIN, {"Authorization": "Bearer client"}):
                assert "there is no admin API" in error(served.http.get(path, headers=headers), 404)["message"]
        assert not any(path.startswith("/admin") for path in served.http.get("/openapi.json").json()["paths"])


def test_changes_survive_a_restart_and_the_log_tells(model, tmp_path, caplog):
    state = tmp_path / "state.db"
    with with_pools(model, state) as served:
        change(served, "chat", mode="off", reason="incident 7")
        change(served, mode="on")
        served.http.post("/admin/pools/batch/reset")
        before = audit(served)
    with caplog.at_level(logging.WARNING, "foredraft"), with_pools(model, state) as served:
        assert served.llm.engine.governor.pools["chat"] == PoolConfig("off", itl_p95_ms=40.0)
        assert pool(served, "chat")["changed"] == ["mode"]
        assert pool(served)["changed"] == []
        assert audit(served) == before
        assert len(before) == 3
        assert served.http.get("/admin/pools").json()["state"] == {"file": str(state), "problem": None}
    [line] = [record for record in caplog.records if record.name == "foredraft"]
    assert line.getMessage() == "pool chat is not as configured: it was changed before"
    assert line.fields == {"mode": "off"}


def test_a_change_that_no_longer_fits_is_told_and_left_out(model, tmp_path, caplog):
    state = tmp_path / "state.db"
    with with_pools(model, state) as served:
        change(served, "chat", ttft_p95_ms=50)
        change(served, "batch", mode="on")
    pools = {"chat": PoolConfig(itl_p95_ms=60.0), "batch": PoolConfig(mode="off", k_max=9)}
    with caplog.at_level(logging.WARNING, "foredraft"), with_pools(model, state, pools) as served:
        assert served.llm.engine.governor.pools["chat"] == pools["chat"]
        assert served.llm.engine.governor.pools["batch"] == PoolConfig("on", k_max=9)
    assert "pool chat was changed, which no longer fits the configuration: itl_p95_ms is 60" in caplog.text


def test_with_a_damaged_state_file_it_serves_and_changes_nothing(model, tmp_path, caplog):
    state = tmp_path / "state.db"
    state.write_bytes(b"damaged" * 1000)
    with caplog.at_level(logging.WARNING, "foredraft"), with_pools(model, state) as served:
        assert f"{state} cannot be used" in caplog.text
        assert served.complete("x", max_tokens=2).status_code == 200
        problem = served.http.get("/admin/pools").json()["state"]["problem"]
        assert "file is not a database" in problem
        for response in (
            change(served, mode="on"),
            served.http.post("/admin/pools/batch/reset"),
            served.http.get("/admin/audit"),
        ):
            assert problem in error(response, 503)["message"]
        assert served.llm.engine.governor.pools["batch"] == POOLS["batch"]


def test_a_full_disk_refuses_changes_until_there_is_room(model, tmp_path, caplog):
    with with_pools(model, tmp_path / "state.db") as served:
        change(served, mode="on")
        run = served.service.pools._store._connection.execute
        [[pages]] = run("PRAGMA page_count").fetchall()
        run(f"PRAGMA max_page_count = {pages}")
        big = "x" * 500
        responses = [change(served, k_max=i % 60 + 1, reason=big) for i in range(60)]
        refused = [response for response in responses if response.status_code == 503]
        assert refused
        assert "full" in error(refused[0], 503)["message"]
        assert "full" in served.http.get("/admin/pools").json()["state"]["problem"]
        assert served.complete("x", max_tokens=2).status_code == 200
        accepted = [response.json()["settings"]["k_max"] for response in responses if response.status_code == 200]
        assert served.llm.engine.governor.pools["batch"].k_max == pool(served)["settings"]["k_max"] == accepted[-1]
        run(f"PRAGMA max_page_count = {pages + 100}")
        assert change(served, k_max=64).status_code == 200
        assert served.http.get("/admin/pools").json()["state"]["problem"] is None


def test_a_state_file_with_a_text_that_is_damaged(model, tmp_path):
    """Which SQLite itself does not notice."""
    state = tmp_path / "state.db"
    with with_pools(model, state) as served:
        change(served, mode="on")
    with sqlite3.connect(state) as connection:
        connection.execute("UPDATE pool_changes SET settings = '{'")
    connection.close()
    with with_pools(model, state) as served:
        assert f"{state} is damaged" in served.http.get("/admin/pools").json()["state"]["problem"]
        assert error(change(served, mode="on"), 503)
        assert served.complete("x", max_tokens=2).status_code == 200


def test_a_pool_for_a_proposer_that_is_not_loaded_is_refused_at_start(model):
    pools = {"batch": PoolConfig(proposers=("draft_model",))}
    with (
        LLM(model, threads=1, pools=pools) as llm,
        pytest.raises(ConfigError, match=r"\[pools.batch\] proposers names"),
    ):
        create_app(EngineThread(llm), ServerConfig(pools=pools))
