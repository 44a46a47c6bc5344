"""A server with experiments on its one pool, on a free port inside the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from foredraft.engine.llm import LLM
from foredraft.governor.governor import Governor
from foredraft.server import run
from foredraft.server.config import ServerConfig
from foredraft.server.engine_thread import EngineThread
from foredraft.server.experiments import ExperimentRunner, router
from serving import PATIENCE_S, wait_for


@dataclass
class ExperimentServer:
    """A running server, what it saved, and the verdicts that it applied."""

    url: str
    http: httpx.Client
    governor: Governor
    runner: ExperimentRunner
    saved: list[dict[str, Any]] = field(default_factory=list)
    applied: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Three requests at a time, so that there is always one that runs, until the end of the context."""
        is_over = threading.Event()

        def ask() -> None:
            body = {"prompt": "the the the", "max_tokens": 200, "ignore_eos": True}
            while not is_over.is_set():
                assert self.http.post("/v1/completions", json=body).status_code == 200

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        try:
            yield
        finally:
            is_over.set()
            for asker in askers:
                asker.join()


@contextmanager
def experiment_server(llm: LLM, governor: Governor | None = None) -> Iterator[ExperimentServer]:
    engine, governor = EngineThread(llm), governor or Governor()
    settings = run.settings(engine, ServerConfig(port=0, grace_s=1))
    found = ExperimentServer("", httpx.Client(timeout=PATIENCE_S), governor, None)  # type: ignore[arg-type]
    runner = found.runner = ExperimentRunner(
        engine,
        governor,
        lambda record: found.saved.append(record),
        lambda *verdict: found.applied.append(verdict),
        provenance=lambda: {"foredraft": "as tested"},
    )
    count = engine.on_step
    engine.on_step = lambda record: (count(record), runner.step(record))[1]
    stop = engine.stop

    async def close_and_stop() -> None:
        await runner.close()
        await stop()

    engine.stop = close_and_stop  # type: ignore[method-assign]
    settings.app.include_router(router(runner))
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        found.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        found.http.base_url = found.url
        with found.http:
            yield found
    finally:
        server.should_exit = True
        thread.join()
