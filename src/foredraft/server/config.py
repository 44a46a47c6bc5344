"""What a server is told at start: where it listens, whom it lets in, how much it takes on, and for whom it drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foredraft.config import Named, Sections, check, option
from foredraft.core import Speculation
from foredraft.engine.config import ModelConfig
from foredraft.errors import ConfigError
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.trace import TraceConfig
from foredraft.server.alerts import AlertConfig
from foredraft.server.auth import ADMIN_VARIABLE, VARIABLE, ApiKey, read_keys
from foredraft.server.logs import LogConfig
from foredraft.server.routing import RouteConfig, Router


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
class AdminConfig:
    """Changing pools while they run: the section [admin]. keys: one of them has to come with every request."""

    keys_file: Path | None = option(
        None,
        "Keys of the admin API, one a line, KEY or NAME KEY; also read from the environment variable "
        "FOREDRAFT_ADMIN_KEYS. Without any, there is no admin API.",
    )
    state_file: Path | None = option(
        None,
        "Where changes of pools, their audit trail and experiments are kept (SQLite); not set: until the server stops.",
    )
    keys: tuple[ApiKey, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class ServerConfig(Limits):
    """Settings of one server: the section [server], its limits, and what the app needs of the other sections.

    api_keys: one of them has to come with every request; none means that everybody who reaches the address is let in.
    speculation: what a request gets that does not say.

    Raises:
        ConfigError: a route leads to a pool that is not there, or no request could take it.
    """

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 or :: for all of this machine.")
    port: int = option(8000, "Port to listen on; 0 takes any free one.", minimum=0, maximum=65535)
    model_name: str | None = option(None, "What clients call the model; not set: as it was loaded.")
    api_keys_file: Path | None = option(
        None,
        "Keys that clients may come with, one a line, KEY or NAME KEY (names are for routes); also read from the "
        "environment variable FOREDRAFT_API_KEYS. Without any, everybody is let in.",
    )
    grace_s: float = option(10.0, "Seconds to finish in when the server is told to stop.", minimum=0, maximum=3600)
    api_keys: tuple[ApiKey, ...] = field(default=(), repr=False)
    speculation: Speculation = Speculation()  # noqa: RUF009 (frozen)
    logs: LogConfig = LogConfig()  # noqa: RUF009 (frozen)
    alerts: AlertConfig = AlertConfig()  # noqa: RUF009 (frozen)
    admin: AdminConfig = AdminConfig()
    pools: Mapping[str, PoolConfig] = field(default_factory=dict)
    routes: Mapping[str, RouteConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {DEFAULT: PoolConfig(), **self.pools}
        for name, route in self.routes.items():
            if route.pool not in known:
                raise ConfigError(f"[routes.{name}] pool is {route.pool}; known are {', '.join(known)}", "pool")
        Router(self.routes)

    @property
    def pool_names(self) -> dict[str, str]:
        """The pool of each route that is configured, as `LLM` wants them."""
        return {name: route.pool for name, route in self.routes.items()}


SECTIONS: Sections = {
    "model": ModelConfig,
    "server": ServerConfig,
    "limits": Limits,
    "speculation": Speculation,
    "logs": LogConfig,
    "pools": Named(PoolConfig),
    "routes": Named(RouteConfig),
    "admin": AdminConfig,
    "alerts": AlertConfig,
    "trace": TraceConfig,
}


def assembled(config: Mapping[str, Any], file: Path | None = None) -> ServerConfig:
    """The server's settings out of what `foredraft.config.load` made of all SECTIONS. file: named in errors.

    Raises:
        ConfigError: sections contradict each other.
    """
    others = {name: config[name] for name in ("speculation", "logs", "pools", "routes", "admin", "alerts")}
    try:
        server: ServerConfig = replace(config["server"], **vars(config["limits"]), **others)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if file else str(error), error.field) from None
    return server


def with_keys(server: ServerConfig) -> ServerConfig:
    """The settings with the keys that environment and files hold.

    Raises:
        ConfigError: they cannot be used, a route is for a key that is not there, or a key is a client's and an admin's.
    """
    clients = read_keys(server.api_keys_file)
    admins = read_keys(server.admin.keys_file, ADMIN_VARIABLE)
    if {key.secret for key in clients} & {key.secret for key in admins}:
        raise ConfigError("a key is both an API key and an admin key; give administrators a key of their own")
    names = {key.name for key in clients}
    for name, route in server.routes.items():
        if route.api_key is not None and route.api_key not in names:
            raise ConfigError(
                f"[routes.{name}] is for the API key named {route.api_key!r:.80}, which is not there; write it as "
                f"NAME KEY into api_keys_file or {VARIABLE}"
            )
    return replace(server, api_keys=clients, admin=replace(server.admin, keys=admins))
