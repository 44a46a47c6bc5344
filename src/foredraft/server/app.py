"""The server as an ASGI application: a thin shell over the engine's thread, without globals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from foredraft import __version__
from foredraft.governor.pools import DEFAULT
from foredraft.server import admin, chat, completions, errors, experiment_api, info, suffix_api
from foredraft.server.admission import Admission
from foredraft.server.alerts import Alerts
from foredraft.server.auth import ApiKeys
from foredraft.server.body_limit import BodyLimit
from foredraft.server.config import ServerConfig
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.server.experiments import ExperimentRunner
from foredraft.server.live_pools import LivePools
from foredraft.server.logs import RequestLog
from foredraft.server.routing import GENERATION, Router
from foredraft.server.service import Service
from foredraft.server.watching import Watching


def create_app(engine: EngineThread, config: ServerConfig) -> FastAPI:
    """The application. Its lifespan starts the engine's thread and ends it; the model stays its owner's to close.

    The model has to have been loaded with the pools and routes of `config`.

    Raises:
        ConfigError: a pool allows a proposer that is not loaded.
    """
    governor = engine.llm.governor
    assert governor.routes == {DEFAULT: DEFAULT, **config.pool_names}
    pools = LivePools(engine, config.pools, config.admin.state_file)
    metrics = Metrics(governor.routes, pools.proposers)
    alerts = Alerts(config.alerts, engine, metrics)
    for record in pools.past_experiments:
        alerts.learn(record)
    experiments = ExperimentRunner(engine, pools, on_end=alerts.learn)
    metrics.on_tokens, metrics.on_first_token = experiments.tokens, experiments.first_token
    admission = Admission(engine.llm.max_sequences + config.max_queue)
    service = Service(engine, config, admission, metrics, pools, experiments, Router(config.routes))
    hearers = (metrics.step, experiments.step)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        on_step = engine.llm.engine.on_step
        on_step.extend(hearers)
        engine.start()
        try:
            async with alerts.running():
                yield
        finally:
            await experiments.close()  # needs the engine, and the store for its record
            await engine.stop()
            service.format_executor.shutdown(wait=False, cancel_futures=True)
            pools.close()
            for hearer in hearers:
                on_step.remove(hearer)

    app = FastAPI(
        title="foredraft",
        version=__version__,
        summary="Speculative decoding that never changes the output, over the OpenAI API.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    errors.install(app)
    for module in (chat, completions, info, *((admin, experiment_api, suffix_api) if config.admin.keys else ())):
        app.include_router(module.router(service))
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes, max_s=config.deadline_s)
    app.add_middleware(ApiKeys, clients=config.api_keys, admins=config.admin.keys)
    app.add_middleware(Watching, metrics=metrics, log=RequestLog(config.logs), route=DEFAULT, paths=GENERATION)
    return app
