"""Running the application: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import uvicorn

from foredraft.errors import ConfigError
from foredraft.server.app import create_app
from foredraft.server.config import ServerConfig
from foredraft.server.engine_thread import EngineThread

_CLEANUP_S = 5  # beyond the grace period, for answers to say that they are cut short
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections: none is closed just as a request is sent on it


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the address but is not listening yet: until the server is ready, clients are turned away.

    Raises:
        ConfigError: the address is taken, not this machine's, or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as cleanup:
            bound = cleanup.enter_context(socket.socket(family, kind, protocol))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            cleanup.pop_all()
    except OSError as exc:
        raise ConfigError(
            f"{host} port {port} cannot be used ({exc.strerror}); choose another --host or --port"
        ) from exc
    return bound


def run(engine: EngineThread, config: ServerConfig, bound: socket.socket, on_ready: Callable[[], None]) -> bool:
    """Serve until SIGINT or SIGTERM, then finish what runs within the grace period. False if the engine failed.

    on_ready: called once requests are taken.
    """
    server = _Server(settings(engine, config), engine, config.grace_s, on_ready)
    pools = engine.llm.governor.pools.values()  # as they were before a restart, by now
    if config.speculation.mode != "off" and any(pool.mode != "off" for pool in pools):
        _ = engine.llm.governor.curves  # measured now, where they are not known: the first request does not wait for it
    server.run(sockets=[bound])
    return not engine.has_failed


def settings(engine: EngineThread, config: ServerConfig) -> uvicorn.Config:
    """The application, and how uvicorn is to run it."""
    return uvicorn.Config(
        create_app(engine, config),
        host=config.host,
        port=config.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(config.grace_s) + _CLEANUP_S,
    )


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, engine: EngineThread, grace_s: float, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._engine, self._grace_s, self._on_ready = engine, grace_s, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as exc:  # another server that has bound the same address has begun to listen meanwhile
            await self.lifespan.shutdown()
            address = f"{self.config.host} port {self.config.port}"
            raise ConfigError(f"{address} cannot be listened at ({exc.strerror}); choose another --port") from exc
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._engine.has_failed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._engine.is_draining = True
        end = asyncio.get_running_loop().call_later(self._grace_s, self._engine.end_all)
        await super().shutdown(sockets)
        end.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again at the end: that it was obeyed is enough."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
