"""`foredraft serve` as a process: how it starts, and every way in which it stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

import tiny
from cli_run import refused
from foredraft import config
from foredraft.cli.serve import KEYS, serve
from foredraft.governor.trace import read_trace
from foredraft.server.config import SECTIONS
from serving import PATIENCE_S


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", context_length=100_000)


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory):
    """What these processes keep is not kept beside the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@contextmanager
def command(model, *options, **environment):
    """A running `foredraft serve`, and a client for it once it has said where it is."""
    arguments = [sys.executable, "-m", "foredraft", "serve", "--model", str(model), "--port", "0", "--threads", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*arguments, *options], env={**os.environ, **environment}, **pipes)
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"serving \S+ at (http://127\.0\.0\.1:\d+)/v1 \(Ctrl-C to stop\)\n", line)
        assert found, (line, process.poll() is not None and process.stderr.read())
        with httpx.Client(base_url=found[1], timeout=PATIENCE_S) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def completion(client, headers=None, **fields):
    body = {"prompt": "x", "ignore_eos": True, "seed": 1, **fields}
    return client.post("/v1/completions", json=body, headers=headers)


@contextmanager
def begun_stream(client, max_tokens):
    """A stream whose first event has come; its other lines are still to be read."""
    fields = {"prompt": "x", "ignore_eos": True, "max_tokens": max_tokens, "stream": True}
    with client.stream("POST", "/v1/completions", json=fields) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        yield (line.removeprefix("data: ") for line in lines if line)


def end(process):
    """Exit status, what was still written to standard output, and the lines of the log that are worse than news."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, [line for line in err.splitlines() if line.split()[1:2] != ["info"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_idle(model, number):
    with command(model) as (process, client):
        assert client.get("/health").status_code == 200
        process.send_signal(number)
        assert end(process) == (0, "", [])


def test_told_to_stop_it_finishes_what_runs(model):
    with command(model) as (process, client), begun_stream(client, 300) as lines:
        process.terminate()
        *_, last_piece, done = lines
        assert done == "[DONE]"
        assert json.loads(last_piece)["choices"][0]["finish_reason"] == "length"
        assert end(process) == (0, "", [])


def test_after_the_grace_period_it_ends_what_runs(model):
    with command(model, "--grace", "0.2") as (process, client), begun_stream(client, 8000) as lines:
        process.terminate()
        *_, last = lines
        assert json.loads(last)["error"]["code"] == "stopping"
        assert end(process) == (0, "", [])


def test_killed_and_started_again(model):
    before = model.read_bytes()
    with command(model) as (process, client):
        answer = completion(client, max_tokens=20).json()["choices"]
        with begun_stream(client, 8000) as lines:
            process.kill()
            with pytest.raises(httpx.TransportError):
                list(lines)
        port = str(client.base_url.port)
        with pytest.raises(httpx.TransportError):
            client.get("/health")
    with command(model, "--port", port) as (_, client):
        assert completion(client, max_tokens=20).json()["choices"] == answer
    assert model.read_bytes() == before
    assert [path.name for path in model.parent.iterdir()] == [model.name]


def test_killed_it_leaves_a_trace(model, tmp_path):
    file = tmp_path / "some.trace.gz"
    with command(model, "--trace", str(file)) as (process, client):
        assert completion(client, prompt="the cat and the dog " * 5, max_tokens=40).status_code == 200
        process.kill()
        process.wait()
    trace = read_trace(file)
    assert list(trace)  # most of the other steps it rested, in which nothing is decided
    assert trace.is_cut_off
    assert trace.header["provenance"]["models"]["model"]["file"] == model.name


def test_settings_arrive(model):
    options = ["--model-name", "little", "--max-tokens", "7", "--max-body", "1024", "--speculation", "on", "--k", "3"]
    with command(model, *options, FOREDRAFT_API_KEYS="secret") as (_, client):
        assert client.get("/v1/models").status_code == 401
        client.headers["Authorization"] = "Bearer secret"
        assert client.get("/v1/models").json()["data"][0]["id"] == "little"
        assert completion(client, max_tokens=8).status_code == 400
        answer = completion(client).json()
        assert answer["usage"]["completion_tokens"] == 7
        assert (answer["model"], answer["speculation"]["mode"]) == ("little", "on")
        assert completion(client, prompt="x" * 2000).status_code == 413


def test_every_option_is_a_key_with_its_default():
    options = serve.make_context("serve", []).params
    assert options.keys() - KEYS.keys() == {"config_file", "dump_config"}
    for name, (section, key) in KEYS.items():
        default = config.keys(SECTIONS[section])[key].default
        assert options[name] == (default or None if name == "proposer" else default), name


def test_the_configuration_is_file_and_options_together(cli, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text('[model]\ntarget = "a"\n[server]\nport = 1\n[limits]\nmax_queue = 7\n[speculation]\nk = 9\n')
    options = (
        "--model b --port 0 --max-body 4096 --proposer lookup,grammar --deadline 5 --speculation off --kv-memory 64"
    )
    drafters = ("--drafter", "x.gguf", "--drafter", "y")
    done = cli("serve", "--config", file, *options.split(), *drafters, "--dump-config")
    assert (done.status, done.err) == (0, "")
    dumped = tmp_path / "dumped.toml"
    dumped.write_text(done.out)
    found = config.load(SECTIONS, dumped)
    assert (found["model"].target, found["model"].kv_memory_mib, found["server"].port) == ("b", 64, 0)
    assert found["model"].drafters == ("x.gguf", "y")
    assert (found["limits"].max_queue, found["limits"].max_body_bytes, found["limits"].deadline_s) == (7, 4096, 5)
    how = found["speculation"]
    assert (how.mode, how.k, how.proposers) == ("off", 9, ("lookup", "grammar"))
    assert cli("serve", "--config", dumped, "--dump-config").out == done.out


def test_a_server_from_a_file(model, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text(
        f'[model]\ntarget = "{model}"\n[server]\nmodel_name = "filed"\n[logs]\nformat = "json"\nprompts = true'
    )
    with command(model, "--config", str(file)) as (process, client):
        assert client.get("/v1/models").json()["data"][0]["id"] == "filed"
        answer = completion(client, prompt="hello", max_tokens=3).json()["choices"][0]["text"]
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
    [ended] = [line for line in map(json.loads, err.splitlines()) if line["message"] == "request ended"]
    assert (ended["outcome"], ended["prompt"], ended["answer"]) == ("length", "hello", answer)


def test_no_model(cli):
    assert "give --model, or target in the section [model]" in refused(cli("serve"))


def test_a_port_in_use(cli, model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = refused(cli("serve", "--model", model, "--port", port))
    assert f"127.0.0.1 port {port} cannot be used (Address already in use); choose another" in reason


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--port 70000", "port is 70000; allowed is a whole number, 0 to 65535"),
        ("--deadline 0", "deadline_s is 0.0"),
        ("--max-queue -1", "max_queue is -1"),
        ("--k 65", "k is 65"),
        ("--host 192.0.2.1 --port 0", "192.0.2.1 port 0 cannot be used"),
        ("--config nowhere.toml", "nowhere.toml: the file cannot be read: No such file"),
        ("--api-keys-file nowhere", "the API keys in nowhere cannot be read"),
        ("--proposer magic --port 0", "unknown proposer 'magic'"),
    ],
)
def test_refused_settings(cli, model, arguments, reason):
    assert reason in refused(cli("serve", "--model", model, *arguments.split()))


def test_an_open_address_without_keys_is_said(model):
    arguments = [sys.executable, "-m", "foredraft", "serve", "--model", "nowhere", "--host", "0.0.0.0", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "FOREDRAFT_API_KEYS"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert "anybody who reaches 0.0.0.0 can use this server; set FOREDRAFT_API_KEYS" in done.stderr


POOLS = """
[pools.batch]
mode = "auto"
[routes.nightly]
pool = "batch"
api_key = "ci"
"""


def test_what_an_admin_changed_survives_kill_9(model, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text(f'{POOLS}[admin]\nstate_file = "{tmp_path / "state.db"}"\n')
    keys = {"FOREDRAFT_API_KEYS": "ci client", "FOREDRAFT_ADMIN_KEYS": "anna root"}
    admin = {"Authorization": "Bearer root"}
    with command(model, "--config", str(file), **keys) as (process, client):
        assert client.patch("/admin/pools/batch", json={"mode": "off"}, headers=admin).status_code == 200
        process.kill()
    with command(model, "--config", str(file), **keys) as (process, client):
        assert client.get("/admin/pools/batch", headers=admin).json()["settings"]["mode"] == "off"
        [entry] = client.get("/admin/audit", headers=admin).json()["entries"]
        assert (entry["who"], entry["after"]) == ("anna", {"mode": "off"})
        assert completion(client, headers={"Authorization": "Bearer client"}).status_code == 200
        process.terminate()
        status, _, lines = end(process)
        assert status == 0
        assert len(lines) == 1
        assert lines[0].endswith("warning pool batch is not as configured: it was changed before mode=off")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_experiment_that_is_broken_off_leaves_the_pool_as_it_was(model, tmp_path, number):
    file = tmp_path / "some.toml"
    file.write_text(f'{POOLS}[admin]\nstate_file = "{tmp_path / "state.db"}"\n')
    admin = {"Authorization": "Bearer root"}
    arms = {"pool": "batch", "arms": ["off", "on"]}
    with command(model, "--config", str(file), FOREDRAFT_API_KEYS="ci x", FOREDRAFT_ADMIN_KEYS="root") as (
        process,
        client,
    ):
        begun = client.post("/admin/experiments", json=arms, headers=admin).json()
        assert completion(client, {"Authorization": "Bearer x"}, max_tokens=50).json()["speculation"]["mode"] != "auto"
        process.send_signal(number)
        process.wait(PATIENCE_S)
    with command(model, "--config", str(file), FOREDRAFT_API_KEYS="ci x", FOREDRAFT_ADMIN_KEYS="root") as (_, client):
        assert completion(client, {"Authorization": "Bearer x"}, max_tokens=50).json()["speculation"]["mode"] == "auto"
        assert client.get("/admin/pools/batch", headers=admin).json()["changed"] == []
        found = client.get("/admin/experiments", headers=admin).json()["experiments"]
    kept = [] if number == signal.SIGKILL else [(begun["id"], "stopped", "the server stopped")]
    assert [(each["id"], each["status"], each["reason"]) for each in found] == kept


@pytest.mark.parametrize(("mode", "is_measured"), [("auto", True), ("off", False)])
def test_passes_are_measured_before_it_is_ready_if_anybody_may_draft(model, tmp_path, mode, is_measured):
    with command(model, "--speculation", mode, HOME=str(tmp_path)):
        assert bool(list(tmp_path.rglob("*.quick.json"))) == is_measured


def test_pools_and_routes_are_dumped(cli, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text(POOLS)
    done = cli("serve", "--config", file, "--dump-config")
    assert (done.status, done.err) == (0, "")
    dumped = tmp_path / "dumped.toml"
    dumped.write_text(done.out)
    assert config.load(SECTIONS, dumped) == config.load(SECTIONS, file)


def test_a_route_to_nowhere_is_refused_before_anything_is_loaded(cli, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text('[routes.nightly]\npool = "batch"\nmodel = "x"\n')
    for more in ((), ("--dump-config",)):
        message = f"{file}: [routes.nightly] pool is batch; known are default"
        assert message in refused(cli("serve", "--config", file, "--model", "nowhere.gguf", *more))
