"""What a server's routes share."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starlette.requests import Request

from foredraft.engine.llm import LLM
from foredraft.server.admission import Admission
from foredraft.server.auth import key_of
from foredraft.server.config import ServerConfig
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.server.errors import ApiError
from foredraft.server.experiments import ExperimentRunner
from foredraft.server.live_pools import LivePools
from foredraft.server.routing import Router, facts


@dataclass(frozen=True)
class Service:
    """One server: the engine's thread, its settings, who has been let in, and whose requests are whose.

    format_executor: of the requests with a format, which are compiled one at a time; their queue is no other request's.
    """

    engine: EngineThread
    config: ServerConfig
    admission: Admission
    metrics: Metrics
    pools: LivePools
    experiments: ExperimentRunner
    router: Router
    format_executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "formats"))
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def llm(self) -> LLM:
        return self.engine.llm

    @property
    def model_name(self) -> str:
        return self.config.model_name or self.llm.model_name

    @property
    def model_names(self) -> list[str]:
        """All names under which clients may ask for the model: its own, and those of routes."""
        aliases = (route.model for route in self.config.routes.values() if route.model)
        return list(dict.fromkeys((self.model_name, *aliases)))

    @property
    def max_tokens(self) -> int:
        """The most tokens that a request may ask for."""
        return self.config.max_tokens or self.llm.context_length

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model; None means whatever is served.

        Raises:
            ApiError: 404.
        """
        if name is not None and name not in self.model_names:
            known = ", ".join(map(repr, self.model_names))
            message = f"the model {name[:100]!r} is not here; this server has {known}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def route(self, request: Request, model: str | None) -> str:
        """The route of a request for a model by this name, from now on also for metrics and log."""
        key = key_of(request)
        known = facts(model, request.scope["path"], request.scope["headers"], key.name if key else None)
        route: str = self.router.route(known)
        request.scope["watch"].route = route
        return route

    def load(self) -> tuple[Counter[str], Counter[str]]:
        """Sequences that wait and that run, by route. From any thread."""
        scheduler = self.llm.engine.scheduler
        waiting, running = (Counter(each.route for each in list(all)) for all in (scheduler.waiting, scheduler.running))
        return waiting, running
