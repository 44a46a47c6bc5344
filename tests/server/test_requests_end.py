"""How a request ends other than by its last token: the client leaves, time is up, the queue is full, or all fails."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import tiny
from foredraft.core import SamplingParams
from foredraft.engine.llm import LLM
from foredraft.worker import NoWorkerError, Worker
from serving import events, held, serving, wait_for

LONG = {"max_tokens": 400, "ignore_eos": True}


def open_stream(served, **fields):
    """A connection on which a request for a stream was sent, with nothing read yet."""
    body = json.dumps({"prompt": "hello", "stream": True, **LONG, **fields}).encode()
    connection = socket.create_connection(("127.0.0.1", served.port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + body)
    return connection


def error_of(response, status):
    assert response.status_code == status, response.text
    return response.json()["error"]


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": False}, {"n": 3}])
def test_a_client_that_leaves_frees_its_sequences(served, fields):
    with held(served.llm) as go:
        connection = open_stream(served, **fields)
        wait_for(lambda: served.engine._open)
        connection.close()
        wait_for(lambda: served.engine._commands.qsize() > 0)  # the engine hears of it before it steps
        steps = served.llm.engine.num_steps
        go.set()
        served.wait_until_idle()
        assert served.llm.engine.num_steps - steps <= 1
    assert served.chat().status_code == 200


def test_a_client_that_leaves_in_the_middle(served):
    connection = open_stream(served)
    assert b"200 OK" in connection.recv(4096)
    connection.close()
    served.wait_until_idle()


def test_a_full_queue_is_429(served):
    with held(served.llm):
        connections = [open_stream(served, n=4) for _ in range(2)]
        wait_for(lambda: len(served.engine._open) >= 4)
        error = None

        def is_full():
            nonlocal error
            response = served.complete(max_tokens=1)
            error = error_of(response, 429)
            assert int(response.headers["retry-after"]) >= 1
            return True

        wait_for(is_full)
        assert (error["code"], error["type"]) == ("queue_full", "rate_limit_error")
        for connection in connections:
            connection.close()
    served.wait_until_idle()
    assert served.complete(max_tokens=1).status_code == 200


def test_a_slow_reader_holds_nobody_up_and_takes_no_place(served):
    readers = [open_stream(served, logprobs=20, n=2) for _ in range(3)]
    wait_for(lambda: served.engine._open)
    served.wait_until_idle()  # all is decided though nobody reads
    assert served.complete(n=8, max_tokens=1).status_code == 200  # all places are free
    for reader in readers:
        reader.close()


def test_deadline_before_and_in_the_middle_of_an_answer(tiny_llm):
    with serving(tiny_llm, deadline_s=0.3) as served:
        with held(tiny_llm):
            for stream in (False, True):
                error = error_of(served.complete(stream=stream), 408)
                assert (error["code"], error["type"]) == ("deadline", "timeout_error")
        served.wait_until_idle()
        step = tiny_llm.engine.step
        tiny_llm.engine.step = lambda: (time.sleep(0.05), step())[1]
        try:
            response = served.complete(stream=True, **LONG)
        finally:
            tiny_llm.engine.step = step
        assert response.status_code == 200
        last = [line for line in response.text.splitlines() if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline"
        served.wait_until_idle()


def test_a_body_that_does_not_come_ends_at_the_deadline(tiny_llm):
    with serving(tiny_llm, deadline_s=0.3) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99"
            connection.sendall(head.encode() + b'\r\n\r\n{"prompt":')
            answer = connection.recv(4096)
        assert b" 408 " in answer
        assert served.complete(max_tokens=1).status_code == 200


def test_stopping_ends_what_runs_with_an_error(tiny_llm):
    """As the server does it when its grace period is over."""
    with serving(tiny_llm) as served, held(tiny_llm) as go, ThreadPoolExecutor(2) as pool:
        whole = pool.submit(served.complete, **LONG)
        wait_for(lambda: served.engine._open)
        served.engine.is_draining = True
        assert error_of(served.complete(), 503)["code"] == "stopping"
        assert error_of(served.http.get("/health"), 503)["code"] == "stopping"
        served.engine.end_all()
        go.set()
        assert error_of(whole.result(), 503)["code"] == "stopping"
        served.wait_until_idle()


class Panic(BaseException):
    """As pyo3's, of a library in Rust."""


@pytest.mark.parametrize("fault", [RuntimeError, Panic])
def test_a_failed_engine_answers_everybody(fault, tmp_path, caplog):
    llm = LLM(tiny.write_tiny(tmp_path / "tiny.gguf"), context_length=512, threads=1)
    with serving(llm) as served:
        step = llm.engine.step

        def fail():
            step()
            raise fault("a bug")

        llm.engine.step = fail
        llm.engine.abort = lambda sequence: 1 / 0
        assert error_of(served.complete(n=2, **LONG), 503)["code"] == "engine_failed"
        assert error_of(served.complete(), 503)["code"] == "engine_failed"
        assert error_of(served.http.get("/health"), 503)["code"] == "engine_failed"
        assert 'outcome="error",pool="default",route="default"} 2.0' in served.http.get("/metrics").text
        assert served.engine.has_failed
        assert "a bug" in caplog.text


def test_a_sequence_without_numbers_fails_alone(tmp_path):
    """Where one token of the prompt makes the logits NaN: who has it gets a 500, the others their answer."""
    llm = LLM(tiny.write_tiny(tmp_path / "tiny.gguf"), context_length=512, max_sequences=4, threads=1)
    bad = 93
    params = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=4)
    expected = llm.generate([[1, 2, 3]], params)[0].text
    forward = llm.engine._target.forward

    def poison(batch, kv):
        logits = forward(batch, kv)
        rows = {batch.sequences[row] for row in range(len(batch.tokens)) if batch.tokens[row] == bad}
        logits[[i for i, row in enumerate(batch.wanted) if batch.sequences[row] in rows]] = np.nan
        return logits

    llm.engine._target.forward = poison
    with serving(llm) as served, ThreadPoolExecutor(4) as pool:
        fields = {"max_tokens": 30, "ignore_eos": True, "seed": 4}
        good = [pool.submit(served.complete, [1, 2, 3], **fields) for _ in range(2)]
        failed = [pool.submit(served.complete, [1, 2, bad], stream=stream, **fields) for stream in (False, True)]
        for future in failed:
            error = error_of(future.result(), 500)
            assert error["code"] == "model_failed"
            assert "logit of nan" in error["message"]
        assert [future.result().json()["choices"][0]["text"] for future in good] == [expected] * 2
        served.wait_until_idle()
        assert served.http.get("/health").status_code == 200


def test_memory_of_a_mailbox_is_bounded_by_max_tokens(served):
    with held(served.llm) as go:
        connection = open_stream(served, max_tokens=50, n=2)
        wait_for(lambda: served.engine._open)
        (_, mailbox), *_ = served.engine._open.values()
        received = 0
        deliver = mailbox.deliver

        def count(chunks):
            nonlocal received
            received += len(chunks)
            deliver(chunks)

        mailbox.deliver = count
        go.set()
        served.wait_until_idle()
    wait_for(lambda: received == 100)
    connection.close()


def test_many_at_once_get_their_own_answers(served, tmp_path):
    asked = [([1 + i % 7, 2, 3], i) for i in range(24)]
    offline = LLM(tiny.write_tiny(tmp_path / "tiny.gguf"), context_length=512, threads=1)
    gate = threading.Semaphore(8)

    def ask(prompt, seed):
        with gate:
            fields = {"max_tokens": 20, "seed": seed, "ignore_eos": True, "stream": True}
            with served.http.stream("POST", "/v1/completions", json={"prompt": prompt, **fields}) as response:
                return "".join(piece["choices"][0]["text"] for piece in events(response))

    with ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(lambda one: ask(*one), asked))
    served.wait_until_idle()
    params = [SamplingParams(temperature=1.0, max_tokens=20, seed=seed, ignore_eos=True) for _, seed in asked]
    assert texts == [result.text for result in offline.generate([prompt for prompt, _ in asked], params)]
    assert len(set(texts)) > 10


def test_before_the_start_nothing_is_ready(tiny_llm):
    """Without its lifespan the application answers, and says that it is not ready."""
    from foredraft.server.app import create_app
    from foredraft.server.config import ServerConfig
    from foredraft.server.engine_thread import EngineThread

    app = create_app(EngineThread(tiny_llm), ServerConfig())

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return [await client.get("/health"), await client.get("/version")]

    health, version = asyncio.run(ask())
    assert error_of(health, 503)
    assert version.status_code == 200


def test_a_deadline_while_a_whole_answer_is_sent_just_ends_it(tiny_llm):
    from foredraft.server.app import create_app
    from foredraft.server.config import ServerConfig
    from foredraft.server.engine_thread import EngineThread

    app = create_app(EngineThread(tiny_llm), ServerConfig(deadline_s=3))
    body = json.dumps({"prompt": "hello", "max_tokens": 1}).encode()
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b""}
    scope["headers"] = [(b"content-type", b"application/json")]
    messages, statuses = [{"type": "http.request", "body": body}], []

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            await asyncio.Event().wait()  # a client that does not read

    async def ask():
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    asyncio.run(ask())
    assert statuses == [200]


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "json_object"}}])
def test_what_this_machine_cannot_do_is_not_the_clients_fault(served, monkeypatch, fields):
    def fail(*given):
        raise NoWorkerError("no process could be started (no memory)")

    monkeypatch.setattr(Worker, "ask", fail)
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    responses = [served.http.post("/v1/chat/completions", json=body)]
    responses += [served.complete(**fields)] if fields else [served.http.post("/tokenize", json=body)]
    for response in responses:
        error = error_of(response, 503)
        assert (error["code"], error["type"]) == ("unavailable", "server_error")
        assert "no memory" in error["message"]
