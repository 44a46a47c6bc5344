"""The admin API: pools as they are and as they were configured, changed live, with an audit trail.

The middleware of auth.py lets in nobody without an admin key. Without any such key these routes are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from foredraft.errors import ForedraftError
from foredraft.governor.store import AuditEntry
from foredraft.server import documentation
from foredraft.server.auth import ADMIN_PATH, key_of
from foredraft.server.errors import ApiError
from foredraft.server.requests import List, Strict
from foredraft.server.service import Service

Reason = Annotated[str, Field(max_length=500, description="Why, for the audit trail.")]


class Because(Strict):
    reason: Reason = ""


class PoolChange(Because):
    """What is to be otherwise; null takes a limit or an objective away. The keys are those of [pools.NAME]."""

    mode: str | None = None
    max_concurrency: int | None = None
    proposers: List[str] | None = None
    k_max: int | None = None
    share_outputs: bool | None = None
    itl_p95_ms: float | None = None
    ttft_p95_ms: float | None = None


class BecauseQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: Reason = ""


class AuditQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    limit: int = Field(default=100, ge=1, le=1000)


class PoolSettings(BaseModel):
    mode: str
    max_concurrency: int | None
    proposers: tuple[str, ...]
    k_max: int | None
    share_outputs: bool
    itl_p95_ms: float | None
    ttft_p95_ms: float | None


class Pool(BaseModel):
    """changed: keys whose value in `settings` was set live and is not the configured one."""

    name: str
    settings: PoolSettings
    configured: PoolSettings
    changed: list[str]
    routes: list[str]
    num_sequences_running: int
    num_sequences_waiting: int


class State(BaseModel):
    """file: where changes are kept; null: nowhere, they end with the server. problem: why nothing can be changed."""

    file: str | None
    problem: str | None


class Pools(BaseModel):
    pools: list[Pool]
    state: State


class Entry(BaseModel):
    id: int
    time: str
    who: str
    action: str
    pool: str
    before: dict[str, Any]
    after: dict[str, Any]
    reason: str


class Audit(BaseModel):
    """Newest first."""

    entries: list[Entry]


class Quarantined(BaseModel):
    route: str
    proposer: str


class Quarantine(BaseModel):
    """Proposers that draft no more for a route, because they failed there."""

    quarantine: list[Quarantined]


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix=ADMIN_PATH, responses=documentation.ERRORS)
    live, governor, engine = service.pools, service.llm.governor, service.engine

    @routes.get("/pools")
    async def pools() -> Pools:
        state = State(file=str(live.state_file) if live.state_file else None, problem=live.problem)
        return Pools(pools=[_pool(service, name) for name in live.settings], state=state)

    @routes.get("/pools/{name}")
    async def pool(name: str) -> Pool:
        _check_pool(service, name)
        return _pool(service, name)

    @routes.patch("/pools/{name}")
    async def change(name: str, body: PoolChange, request: Request) -> Pool:
        """Change some of a pool's settings, for requests that run as well. Answered once they hold."""
        _check_pool(service, name)
        values = body.model_dump(include=body.model_fields_set - {"reason"})
        if not values:
            raise ApiError(400, f"nothing is to be changed; give one of {', '.join(PoolSettings.model_fields)}")
        await saved(live.change, name, values, who(request), body.reason)
        await engine.call(lambda: None)  # the change was sent before
        return _pool(service, name)

    @routes.post("/pools/{name}/reset")
    async def reset(name: str, request: Request, body: Because | None = None) -> Pool:
        """Set a pool back to what is configured."""
        _check_pool(service, name)
        await saved(live.reset, name, who(request), body.reason if body else "")
        await engine.call(lambda: None)
        return _pool(service, name)

    @routes.get("/audit")
    async def audit(query: Annotated[AuditQuery, Query()]) -> Audit:
        found = await saved(live.audit, query.limit)
        return Audit(entries=[Entry(**entry) for entry in found])

    @routes.get("/quarantine")
    async def quarantine() -> Quarantine:
        return _quarantine(await engine.call(lambda: set(governor.quarantined)))

    @routes.delete("/quarantine/{route}/{proposer}")
    async def release(
        route: str, proposer: str, query: Annotated[BecauseQuery, Query()], request: Request
    ) -> Quarantine:
        """Let a proposer draft for a route again."""
        known = await engine.call(lambda: set(governor.quarantined))
        if (route, proposer) not in known:
            names = ", ".join(f"{one} on {its}" for its, one in sorted(known)) or "none"
            raise ApiError(404, f"{proposer[:100]!r} is not in quarantine on route {route[:100]!r}; those are: {names}")
        pool = governor.pool_of(route)
        pair = {"route": route, "proposer": proposer}
        await saved(live.note, AuditEntry(who(request), "release", pool, pair, {}, query.reason))
        await engine.call(lambda: governor.quarantined.discard((route, proposer)))
        return _quarantine(known - {(route, proposer)})

    return routes


def _check_pool(service: Service, name: str) -> None:
    known = service.pools.settings
    if name not in known:
        raise ApiError(404, f"there is no pool {name[:100]!r}; known are {', '.join(known)}", code="pool_not_found")


def who(request: Request) -> str:
    """The admin whose key a request came with, as the audit trail names them."""
    key = key_of(request)
    assert key is not None  # the middleware has seen to it
    return key.shown


async def saved(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what waits for the disk beside the event loop; its refusals become answers."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except ForedraftError as error:
        raise ApiError.refusal(error) from error


def _pool(service: Service, name: str) -> Pool:
    live, (waiting, running) = service.pools, service.load()
    routes = live.routes(name)
    return Pool(
        name=name,
        settings=PoolSettings(**asdict(live.settings[name])),
        configured=PoolSettings(**asdict(live.configured[name])),
        changed=live.changed(name),
        routes=routes,
        num_sequences_running=sum(running[route] for route in routes),
        num_sequences_waiting=sum(waiting[route] for route in routes),
    )


def _quarantine(pairs: set[tuple[str, str]]) -> Quarantine:
    return Quarantine(quarantine=[Quarantined(route=route, proposer=proposer) for route, proposer in sorted(pairs)])
