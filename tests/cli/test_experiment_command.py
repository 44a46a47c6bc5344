"""`foredraft experiment` against a real server, and against ones that do not want it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiny
from cli_run import refused
from foredraft.cli import experiment
from foredraft.cli.admin_api import VARIABLE
from foredraft.engine.llm import LLM
from serving import Served, administered, serving, traffic

SHORT = ("--window", 0.05, "--carry-over", 0, "--blocks", 4, "--seed", 9)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Served]:
    with LLM(model, context_length=512, max_sequences=4, threads=1) as llm, administered(llm) as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(experiment, "POLL_S", 0.05)
    monkeypatch.setenv(VARIABLE, "root")


def test_windows_and_verdict(cli, server, tmp_path):
    path = tmp_path / "record.json"
    with traffic(server):
        done = cli("experiment", "--url", server.url, "--arms", "off,on:lookup:4", *SHORT, "--json", path)
    assert done.status == 0
    record = json.loads(path.read_text())
    rows = [line.split("│") for line in done.out.splitlines() if line.startswith("│")]
    windows = [row[2].strip() for row in rows if row[1].strip().isdecimal()]
    assert windows == [{"A": "off", "B": "on:lookup:4"}[arm] for arm in record["design"]]
    assert record["config"]["seed"] == 9
    tokens_per_s = next(row for row in rows if row[1].strip() == "tokens_per_s")
    assert float(tokens_per_s[2]) == pytest.approx(record["medians"]["A"]["tokens_per_s"], abs=0.01)
    assert f"{record['verdict']}: {record['reason']}" in done.out
    winner = {"better": "on", "worse": "off"}.get(record["verdict"])
    changed = server.http.get("/admin/pools/default").json()["changed"]
    assert ("mode" in changed) == (winner is not None)
    assert server.http.post("/admin/pools/default/reset").status_code == 200


def test_a_pool_with_no_traffic(cli, server, tmp_path):
    path = tmp_path / "record.json"
    done = cli("experiment", "--url", server.url, *SHORT, "--json", path)
    assert done.status == 2
    assert "error: pool default had no traffic in window 1; try again while requests come in" in done.err
    assert json.loads(path.read_text())["status"] == "no_traffic"


def test_ctrl_c_stops_it_on_the_server(cli, server, tmp_path, monkeypatch):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "record.json"
    pools = server.llm.governor.pools
    own = pools["default"]
    monkeypatch.setattr(experiment, "time", SimpleNamespace(sleep=interrupt))
    done = cli("experiment", "--url", server.url, "--json", path)
    assert done.status == 130
    assert "stopped: stopped by anna" in done.out
    assert json.loads(path.read_text())["status"] == "stopped"
    assert pools["default"] is own
    assert server.service.experiments.records[-1]["status"] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--pool none", "refuses: there is no pool 'none'; known are default"),
        ("--arms off", "refuses: arms are off; give two different ones"),
        ("--blocks 2", "refuses: blocks is 2; allowed is a whole number, 4 to 500"),
        ("--json /nowhere/x.json", "no folder /nowhere"),
        ("--admin-key-file /nowhere", "/nowhere cannot be read"),
    ],
)
def test_refusals(cli, server, arguments, reason):
    assert reason in refused(cli("experiment", "--url", server.url, *arguments.split()))


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """A server that always answers the same; its address, and the keys that requests came with."""
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", keys
        http.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b'{"error": {"message": "a key is needed"}}', "refuses: a key is needed; set FOREDRAFT_ADMIN_KEY"),
        (404, b"nothing", "refuses: status 404; give the --url of `foredraft serve`"),
        (200, b"<html>", "does not answer (Expecting value"),
        (200, b"[]", "is another kind of server"),
    ],
)
def test_servers_that_do_not_want_it(cli, status, body, reason):
    with answering(status, body) as (url, _):
        assert reason in refused(cli("experiment", "--url", url))


def test_without_the_admin_key(cli, server, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    assert f"a valid admin key is needed: Authorization: Bearer KEY; set {VARIABLE}" in refused(
        cli("experiment", "--url", server.url)
    )


def test_without_an_admin_api(cli, model):
    with LLM(model, context_length=512, threads=1) as llm, serving(llm) as plain:
        assert "there is no admin API here: the server was started without FOREDRAFT_ADMIN_KEYS" in refused(
            cli("experiment", "--url", plain.url)
        )


def test_the_admin_key(cli, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "first")
    path = tmp_path / "key"
    path.write_text("# of the night shift\nowl second\n")
    with answering(401, b"") as (url, keys):
        cli("experiment", "--url", url)
        cli("experiment", "--url", url, "--admin-key-file", path)
    assert keys == ["Bearer first", "Bearer second"]
    path.write_text("one\ntwo\n")
    assert "holds 2 keys" in refused(cli("experiment", "--admin-key-file", path))


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:1", "http://127.0.0.1:1 does not answer"), ("ftp://x", "--url is 'ftp://x'")],
)
def test_addresses_without_a_server(cli, url, reason):
    assert reason in refused(cli("experiment", "--url", url))


def test_a_model_without_a_server(cli, model, tmp_path):
    path = tmp_path / "record.json"
    loop = ("--workload", "chat", "--concurrency", 2, "--max-tokens", 20, "--threads", 1)
    done = cli("experiment", "--model", model, *loop, "--arms", "off,on:suffix:4", *SHORT, "--json", path)
    assert done.status == 0
    record = json.loads(path.read_text())
    assert record["status"] in ("finished", "stopped_on_harm")
    assert record["provenance"]["models"]["model"]["file"] == "tiny.gguf"
    assert {window["concurrency"] for window in record["windows"]} == {2.0}
    assert all(window["itl_p95_ms"] >= window["itl_p50_ms"] > 0 for window in record["windows"])
    drafted = {arm: sum(w["num_draft_tokens"] for w in record["windows"] if w["arm"] == arm) for arm in "AB"}
    assert drafted["B"] > drafted["A"]
    assert record["reason"] in done.out


def test_ctrl_c_without_a_server(cli, model, tmp_path, monkeypatch):
    def interrupt(record: object) -> str:
        raise KeyboardInterrupt

    path = tmp_path / "record.json"
    monkeypatch.setattr(experiment, "_now", interrupt)
    assert cli("experiment", "--model", model, "--workload", "chat", *SHORT, "--json", path).status == 130
    record = json.loads(path.read_text())
    assert (record["status"], len(record["windows"])) == ("stopped", 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model x --pool chats", "--pool is for an experiment on a server, without --model"),
        ("--model x --url http://h", "--url is for an experiment on a server, without --model"),
        ("--concurrency 2", "--concurrency is for an experiment with --model"),
        ("--model x --arms off,fast", "arm 'fast' is not understood"),
        ("--model x --blocks 1", "blocks is 1"),
        ("--model x --workload poems", "unknown workload 'poems'"),
    ],
)
def test_what_does_not_go_together(cli, arguments, reason):
    assert reason in refused(cli("experiment", *arguments.split()))
