"""Pools: groups of requests that are governed alike, and can be switched while they run."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.config import check, option
from foredraft.core import SPECULATION_MODES

DEFAULT = "default"  # the pool, and the route, of requests that nobody said anything about


@dataclass(frozen=True)
class PoolConfig:
    """How the requests of a pool may be drafted for: a section [pools.NAME] of a configuration file.

    A pool that is off is off whatever its requests ask for; else a request's own mode wins.
    """

    mode: str = option(
        "auto", "Whether to draft: auto drafts where it pays, on always, off never.", choices=SPECULATION_MODES
    )
    max_concurrency: int | None = option(
        None, "Running answers of this pool above which it drafts no more; not set: no limit.", minimum=1
    )
    proposers: tuple[str, ...] = option((), "Who may draft; none named means all that are loaded.")
    k_max: int | None = option(None, "Most tokens to draft in one step; not set: no limit.", minimum=1, maximum=64)
    itl_p95_ms: float | None = option(
        None, "Objective: the 95th percentile of the time between tokens, in ms.", minimum=0.001
    )
    ttft_p95_ms: float | None = option(
        None, "Objective: the 95th percentile of the time to the first token, in ms.", minimum=0.001
    )

    def __post_init__(self) -> None:
        check(self)
