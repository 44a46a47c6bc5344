"""What a server is told at start: where it listens, whom it lets in, and how much it takes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foredraft.config import check, option
from foredraft.core import Speculation
from foredraft.engine.config import ModelConfig
from foredraft.governor.trace import TraceConfig
from foredraft.server.alerts import AlertConfig
from foredraft.server.logs import LogConfig


@dataclass(frozen=True)
class Limits:
    """How much a server takes on: the section [limits]."""

    max_queue: int = option(
        64, "Answers that may wait beside those that are written; more are refused.", minimum=0, maximum=100_000
    )
    deadline_s: float = option(
        600.0,
        "Seconds that a request may take in all, waiting and reading the answer included.",
        minimum=0.1,
        maximum=86_400,
    )
    max_tokens: int | None = option(
        None, "Most tokens that a request may ask for; not set: what the context holds.", minimum=1
    )
    max_body_bytes: int = option(2 << 20, "Largest request, in bytes.", minimum=1024, maximum=1 << 30)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class ServerConfig(Limits):
    """Settings of one server: the section [server], its limits, and what the app needs of the other sections.

    api_keys: one of them has to come with every request; none means that everybody who reaches the address is let in.
    speculation: what a request gets that does not say.
    """

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 or :: for all of this machine.")
    port: int = option(8000, "Port to listen on; 0 takes any free one.", minimum=0, maximum=65535)
    model_name: str | None = option(None, "What clients call the model; not set: as it was loaded.")
    api_keys_file: Path | None = option(
        None,
        "Keys that clients may come with, one a line; also read from the environment variable FOREDRAFT_API_KEYS. "
        "Without any, everybody is let in.",
    )
    grace_s: float = option(10.0, "Seconds to finish in when the server is told to stop.", minimum=0, maximum=3600)
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    speculation: Speculation = Speculation()  # noqa: RUF009 (frozen)
    logs: LogConfig = LogConfig()  # noqa: RUF009 (frozen)
    alerts: AlertConfig = AlertConfig()  # noqa: RUF009 (frozen)


SECTIONS = {
    "model": ModelConfig,
    "server": ServerConfig,
    "limits": Limits,
    "speculation": Speculation,
    "logs": LogConfig,
    "trace": TraceConfig,
    "alerts": AlertConfig,
}


def assembled(config: Mapping[str, Any]) -> ServerConfig:
    """The server's settings out of what `foredraft.config.load` made of all SECTIONS."""
    others = {name: config[name] for name in ("speculation", "logs", "alerts")}
    server: ServerConfig = replace(config["server"], **vars(config["limits"]), **others)
    return server
