"""A server on a free port inside the test's process, so that a test can look at the engine behind it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from openai import OpenAI

from foredraft.engine.llm import LLM
from foredraft.server import run
from foredraft.server.auth import ApiKey
from foredraft.server.config import AdminConfig, ServerConfig
from foredraft.server.engine_thread import EngineThread
from foredraft.server.service import Service

PATIENCE_S = 60.0


@dataclass
class Served:
    """A running server: its address, the model behind it, what its routes share, and clients for it."""

    port: int
    llm: LLM
    engine: EngineThread
    service: Service
    http: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)

    def chat(self, text: str = "hello", **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, prompt: Any = "hello", **fields: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json={"prompt": prompt, **fields})

    def wait_until_idle(self) -> None:
        """Nothing runs and nothing waits, and every page of the KV cache is free again."""
        engine, kv = self.llm.engine, self.llm.engine.scheduler._kv
        wait_for(lambda: engine.is_idle and kv.num_available_pages == kv.num_pages)


@contextmanager
def serving(llm: LLM, **settings: Any) -> Iterator[Served]:
    """Serve a model; the settings are those of ServerConfig."""
    engine = EngineThread(llm)
    config = run.settings(engine, ServerConfig(port=0, grace_s=1, **settings))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as http:
            yield Served(port, llm, engine, config.app.state.service, http)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def administered(llm: LLM, state_file: Path | None = None, **settings: Any) -> Iterator[Served]:
    """The same with the admin API; the client comes with an admin's key."""
    admin = AdminConfig(state_file=state_file, keys=(ApiKey("root", "anna"), ApiKey("unnamed")))
    with serving(llm, admin=admin, **settings) as served:
        served.http.headers["Authorization"] = "Bearer root"
        yield served


@contextmanager
def traffic(served: Served, max_tokens: int = 200) -> Iterator[None]:
    """Three clients, so that there is always a request that runs, until the end of the context."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            assert served.complete("the the the", max_tokens=max_tokens, ignore_eos=True).status_code == 200

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join()


@contextmanager
def held(llm: LLM) -> Iterator[threading.Event]:
    """Keep the engine before its next step until the event is set, or to the end of the context."""
    go, step = threading.Event(), llm.engine.step

    def wait_and_step() -> Any:
        go.wait(PATIENCE_S)
        return step()

    llm.engine.step = wait_and_step  # type: ignore[method-assign]
    try:
        yield go
    finally:
        go.set()
        llm.engine.step = step  # type: ignore[method-assign]


def wait_for(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def events(response: httpx.Response) -> list[Any]:
    """What a stream's events hold; the last one has to be [DONE]."""
    lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]", lines[-1]
    return [json.loads(line) for line in lines[:-1]]
