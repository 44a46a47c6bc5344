"""Requests on their routes: what metrics, log and engine say of them, and the names that clients may use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

import tiny
from foredraft.engine.llm import LLM
from foredraft.governor.pools import PoolConfig
from foredraft.server.auth import ApiKey
from foredraft.server.routing import RouteConfig
from prometheus_page import read
from serving import Served, held, serving, wait_for

POOLS = {"interactive": PoolConfig(), "batch": PoolConfig("off")}
ROUTES = {
    "nightly": RouteConfig("batch", api_key="ci"),
    "chat": RouteConfig("interactive", model="fast", path="/v1/chat/completions"),
    "team-a": RouteConfig("interactive", header="X-Team: a"),
    "fast": RouteConfig("interactive", model="fast"),
}
ANNA, CI = ({"Authorization": f"Bearer {key}"} for key in ("for-anna", "for-ci"))


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    path = tiny.write_tiny(tmp_path / "tiny.gguf")
    routes = {name: route.pool for name, route in ROUTES.items()}
    llm = LLM(path, context_length=512, max_sequences=2, threads=1, pools=POOLS, routes=routes)
    keys = (ApiKey("for-anna"), ApiKey("for-ci", "ci"))
    with serving(llm, pools=POOLS, routes=ROUTES, api_keys=keys) as served:
        served.http.headers.update(ANNA)
        yield served


def ask(served: Served, path: str = "/v1/completions", headers=None, **fields):
    body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
    return served.http.post(path, json={**body, "max_tokens": 2, "ignore_eos": True, **fields}, headers=headers or {})


def counted(served: Served, name: str) -> dict[str, tuple[str, float]]:
    """Pool and value by route, where there is anything to count."""
    found: dict[str, tuple[str, float]] = {}
    for (series, *labels), value in read(served.http.get("/metrics").text).items():
        if series == name and value:
            pool, route = labels
            found[route] = (pool, value)
    return found


def test_each_request_counts_for_its_route_and_pool(served, caplog):
    with caplog.at_level(logging.INFO, "foredraft.requests"):
        ask(served)
        ask(served, model="fast")
        ask(served, "/v1/chat/completions", model="fast")
        ask(served, headers=CI, model="fast")
        ask(served, headers={"x-team": "a"}, model="fast")
        assert ask(served, model="magic", headers={"x-team": "a"}).status_code == 404
        assert ask(served, max_tokens="many", headers={"x-team": "a"}).status_code == 400
        assert ask(served, headers={"Authorization": "Bearer wrong"}).status_code == 401
        wait_for(lambda: len(caplog.records) == 8)  # lines come after answers
    assert counted(served, "generation_tokens_total") == {
        "default": ("default", 2),
        "fast": ("interactive", 2),
        "chat": ("interactive", 2),
        "nightly": ("batch", 2),
        "team-a": ("interactive", 2),
    }
    assert {(record.fields["route"], record.fields["status"]) for record in caplog.records} == {
        ("default", 200),
        ("fast", 200),
        ("chat", 200),
        ("nightly", 200),
        ("team-a", 200),
        ("team-a", 404),
        ("default", 400),  # what is refused for its form, or for its key, has no route yet
        ("default", 401),
    }


def test_an_answer_says_that_its_pool_is_off(served):
    for how in ("auto", "on"):
        report = ask(served, headers=CI, speculation=how, max_tokens=4).json()["speculation"]
        assert (report["mode"], report["off_reason"]) == ("off", "pool")
    report = ask(served, headers=CI, speculation="off").json()["speculation"]
    assert (report["mode"], report["off_reason"]) == ("off", "requested")
    assert ask(served, speculation="on").json()["speculation"]["mode"] == "on"


def test_the_engine_knows_the_route_of_a_sequence(served):
    routes: set[str] = set()
    served.llm.engine.on_step.append(lambda record: routes.update(record.routes.values()))
    ask(served, headers=CI)
    ask(served, model="fast", n=2)
    assert routes == {"nightly", "fast"}


def test_what_runs_and_waits_is_told_by_route(served):
    with held(served.llm) as go:
        sender = threading.Thread(target=ask, args=(served,), kwargs={"headers": CI, "n": 2})
        sender.start()
        wait_for(lambda: counted(served, "num_sequences_waiting") == {"nightly": ("batch", 2)})
        assert counted(served, "num_sequences_running") == {}
        go.set()
        sender.join()
    assert counted(served, "num_sequences_waiting") == counted(served, "num_sequences_running") == {}


def test_a_routes_model_is_a_name_of_the_model(served):
    assert [model.id for model in served.openai("for-anna").models.list()] == ["tiny.gguf", "fast"]
    assert served.http.get("/v1/models/fast").json()["id"] == "fast"
    assert ask(served, "/tokenize", max_tokens=None).status_code == 400
    assert served.http.post("/tokenize", json={"model": "fast", "prompt": "x"}).status_code == 200
    error = ask(served, model="magic").json()["error"]
    assert error["message"] == "the model 'magic' is not here; this server has 'tiny.gguf', 'fast'"
    assert error["code"] == "model_not_found"


def test_a_route_does_not_change_an_answer(served):
    fields = {"seed": 5, "max_tokens": 12}
    answers = [ask(served, headers=headers, **fields).json()["choices"] for headers in (ANNA, CI, {"X-Team": "a"})]
    assert answers[0] == answers[1] == answers[2]
