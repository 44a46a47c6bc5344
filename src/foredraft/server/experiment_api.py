"""The admin API's part for experiments: beginning one, looking at it, ending it."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from foredraft.errors import ForedraftError
from foredraft.governor.experiment import ExperimentConfig
from foredraft.server import documentation
from foredraft.server.admin import who
from foredraft.server.auth import ADMIN_PATH
from foredraft.server.errors import ApiError
from foredraft.server.requests import List, Strict
from foredraft.server.service import Service

_DEFAULTS = ExperimentConfig()


class ExperimentRequest(Strict):
    """What to compare. Without a seed, one is drawn, and the answer says which."""

    pool: Annotated[str, Field(max_length=100)] = _DEFAULTS.pool
    arms: List[Annotated[str, Field(max_length=200)]] = Field(default=list(_DEFAULTS.arms), max_length=2)
    window_s: float = _DEFAULTS.window_s
    carry_over_s: float = _DEFAULTS.carry_over_s
    blocks: int = _DEFAULTS.blocks
    seed: int | None = None

    def as_config(self) -> ExperimentConfig:
        """Raises ConfigError."""
        given = self.model_dump(exclude={"seed"}) | {"arms": tuple(self.arms)}
        return ExperimentConfig(**given, seed=secrets.randbits(53) if self.seed is None else self.seed)


def router(service: Service) -> APIRouter:
    runner = service.experiments
    routes = APIRouter(prefix=f"{ADMIN_PATH}/experiments", responses=documentation.ERRORS)

    @routes.post("")
    async def start(body: ExperimentRequest, request: Request) -> dict[str, Any]:
        """Let two arms take turns on a pool until they are told apart. Answers the record as it begins."""
        try:
            return await runner.start(body.as_config(), who(request))
        except ForedraftError as error:
            raise ApiError.refusal(error) from error

    @routes.get("")
    async def all_of_them() -> dict[str, list[dict[str, Any]]]:
        """All experiments, oldest first, without their windows."""
        shown = ("id", "status", "verdict", "reason", "config", "ratio")
        return {"experiments": [{key: record[key] for key in shown} for record in runner.records]}

    @routes.get("/{name}")
    async def one(name: str) -> dict[str, Any]:
        """An experiment's record, so far if it still runs."""
        return runner.record(name)

    @routes.delete("/{name}")
    async def stop(name: str, request: Request) -> dict[str, Any]:
        """End an experiment. Answers its record once the pool has its own settings back."""
        return await runner.stop(name, f"stopped by {who(request)}")

    return routes
