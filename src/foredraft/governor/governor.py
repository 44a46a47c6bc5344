"""The governor of an engine: what it knows of pools and routes, and what it has learned of costs and acceptance."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foredraft.core import Speculation
from foredraft.errors import ConfigError
from foredraft.governor.plan import Plan, Snapshot
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.report import RouteReport


class Governor:
    """Used by the engine's thread alone, like the engine.

    pools: settings by name; an entry may be replaced between steps and holds from the next one on. routes: the pool of
    each route; a route that is not there belongs to the default pool. quarantined: (route, proposer) pairs that draft
    no more until they are taken out again. on_plan: hears of every decision, before the step runs.

    Raises:
        ConfigError: a route leads to a pool that is not there.
    """

    def __init__(self, pools: Mapping[str, PoolConfig] | None = None, routes: Mapping[str, str] | None = None) -> None:
        self.pools = {DEFAULT: PoolConfig(), **(pools or {})}
        self.routes = {DEFAULT: DEFAULT, **(routes or {})}
        self.quarantined: set[tuple[str, str]] = set()
        self.on_plan: Callable[[Snapshot, Plan], None] | None = None
        for route, pool in self.routes.items():
            if pool not in self.pools:
                raise ConfigError(f"route {route} leads to pool {pool}; known are {', '.join(self.pools)}", route)

    def pool_of(self, route: str) -> str:
        return self.routes.get(route, DEFAULT)

    def mode(self, route: str, asked: Speculation) -> str:
        """How a sequence is drafted for now: off where its pool is off, as its pool is where it leaves that open, else
        as it asks itself."""
        mode = self.pools[self.pool_of(route)].mode
        return mode if mode == "off" or asked.mode == "auto" else asked.mode

    def report(self) -> list[RouteReport]:
        """What is known of every proposer on every route that has been drafted for."""
        return []

    def crossover(self, route: str) -> float | None:
        """The number of sequences from which on no draft for this route pays; None as long as that is not known."""
        return None
