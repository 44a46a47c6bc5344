"""The server as an ASGI application: a thin shell over the engine's thread, without globals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from foredraft import __version__
from foredraft.proposers import ALWAYS
from foredraft.server import chat, completions, errors, info
from foredraft.server.admission import Admission
from foredraft.server.alerts import Alerts
from foredraft.server.auth import ApiKeys
from foredraft.server.body_limit import BodyLimit
from foredraft.server.config import ServerConfig
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.server.logs import RequestLog
from foredraft.server.service import POOL, ROUTE, Service
from foredraft.server.watching import Watching

GENERATION = ("/v1/chat/completions", "/v1/completions")


def create_app(engine: EngineThread, config: ServerConfig) -> FastAPI:
    """The application. Its lifespan starts the engine's thread and ends it; the model stays its owner's to close."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            async with alerts.running():
                yield
        finally:
            await engine.stop()
            service.format_executor.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="foredraft",
        version=__version__,
        summary="Speculative decoding that never changes the output, over the OpenAI API.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    errors.install(app)
    metrics = Metrics({ROUTE: POOL}, (*ALWAYS, *engine.llm.proposers))
    alerts = Alerts(config.alerts, engine, metrics)
    service = Service(engine, config, Admission(engine.llm.max_sequences + config.max_queue), metrics)
    for module in (chat, completions, info):
        app.include_router(module.router(service))
    engine.on_step = metrics.step
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes, max_s=config.deadline_s)
    if config.api_keys:
        app.add_middleware(ApiKeys, keys=config.api_keys)
    log = RequestLog(config.logs)
    app.add_middleware(Watching, metrics=metrics, log=log, route=ROUTE, paths=GENERATION)
    return app
