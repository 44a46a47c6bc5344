"""The admin API's part for past outputs that are drafted from: what there is of whom, and forgetting it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from foredraft.errors import StoreError
from foredraft.governor.store import AuditEntry
from foredraft.proposers.suffix_memory import StoreReport
from foredraft.server import documentation
from foredraft.server.admin import BecauseQuery, saved, who
from foredraft.server.auth import ADMIN_PATH, shown
from foredraft.server.errors import ApiError
from foredraft.server.service import Service

EVERYBODY = "everybody"  # the tenant where no API keys are asked for


class Outputs(BaseModel):
    """Past outputs of one tenant and pool. tenant: its API key's name, or the beginning of its fingerprint; "everybody"
    where there are no keys. num_hits: drafts out of them of which a token or more was accepted."""

    tenant: str
    pool: str
    num_texts: int
    num_bytes: int
    num_hits: int
    num_accepted_tokens: int


class AllOutputs(BaseModel):
    outputs: list[Outputs]
    num_bytes: int
    max_bytes: int


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix=f"{ADMIN_PATH}/outputs", responses=documentation.ERRORS)
    memory, engine, live = service.llm.suffixes, service.engine, service.pools
    names = {key.scope: key.shown for key in service.config.api_keys}

    def tenant(store: StoreReport) -> str:
        return names.get(store.scope, shown(store.scope) or EVERYBODY)

    def all_outputs() -> AllOutputs:
        found = [
            Outputs(
                tenant=tenant(store),
                pool=store.pool,
                num_texts=store.num_texts,
                num_bytes=store.num_bytes,
                num_hits=store.num_hits,
                num_accepted_tokens=store.num_accepted,
            )
            for store in memory.report()
        ]
        return AllOutputs(outputs=found, num_bytes=memory.num_bytes, max_bytes=memory.max_bytes)

    @routes.get("")
    async def outputs() -> AllOutputs:
        return await engine.call(all_outputs)

    @routes.delete("/{name}")
    async def clear(name: str, query: Annotated[BecauseQuery, Query()], request: Request) -> AllOutputs:
        """Forget all past outputs of a tenant, in the file as well."""
        stores = [store for store in await engine.call(memory.report) if tenant(store) == name]
        if not stores:
            raise ApiError(404, f"there are no past outputs of {name[:100]!r}")
        for store in stores:
            before = {"tenant": name, "num_texts": store.num_texts}
            await saved(live.note, AuditEntry(who(request), "clear", store.pool, before, {}, query.reason))
        try:
            await engine.call(lambda: memory.clear([store.key for store in stores]))
        except StoreError as error:
            raise ApiError.refusal(error) from error
        return await engine.call(all_outputs)

    return routes
