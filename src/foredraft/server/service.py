"""What a server's routes share."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from foredraft.engine.llm import LLM
from foredraft.server.admission import Admission
from foredraft.server.config import ServerConfig
from foredraft.server.counting import Metrics
from foredraft.server.engine_thread import EngineThread
from foredraft.server.errors import ApiError

POOL = ROUTE = "default"  # until the configuration has pools and routes


@dataclass(frozen=True)
class Service:
    """One server: the engine's thread, its settings, and who has been let in.

    format_executor: of the requests with a format, which are compiled one at a time; their queue is no other request's.
    """

    engine: EngineThread
    config: ServerConfig
    admission: Admission
    metrics: Metrics
    format_executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "formats"))
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def llm(self) -> LLM:
        return self.engine.llm

    @property
    def model_name(self) -> str:
        return self.config.model_name or self.llm.model_name

    @property
    def max_tokens(self) -> int:
        """The most tokens that a request may ask for."""
        return self.config.max_tokens or self.llm.context_length

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model; None means whatever is served.

        Raises:
            ApiError: 404.
        """
        if name is not None and name != self.model_name:
            message = f"the model {name[:100]!r} is not here; this server has {self.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
