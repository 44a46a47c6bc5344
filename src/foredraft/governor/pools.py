"""Pools: groups of requests that are governed alike, and can be switched while they run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from foredraft.config import check, option
from foredraft.core import SPECULATION_MODES
from foredraft.errors import ConfigError

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
    share_outputs: bool = option(
        False,
        "Whether the proposer suffix may draft from past outputs of this pool: for requests with the same API key, of "
        "which it remembers the outputs. Without API keys all clients are one.",
    )
    itl_p95_ms: float | None = option(
        None, "Objective: the 95th percentile of the time between tokens, in ms.", minimum=0.001
    )
    ttft_p95_ms: float | None = option(
        None, "Objective: the 95th percentile of the time to the first token, in ms.", minimum=0.001
    )

    def check_sharing(self, proposers: Collection[str]) -> None:
        """Raise ConfigError where past outputs are to be drafted from, but none of the loaded proposers does that."""
        if self.share_outputs and "suffix" not in proposers:
            message = (
                f"share_outputs is true, which is for the proposer suffix; loaded are {', '.join(proposers)}: load "
                "suffix too"
            )
            raise ConfigError(message, "share_outputs")

    def __post_init__(self) -> None:
        check(self)
        if self.itl_p95_ms and self.ttft_p95_ms and self.itl_p95_ms > self.ttft_p95_ms:
            raise ConfigError(
                f"itl_p95_ms is {self.itl_p95_ms:g}, more than ttft_p95_ms with {self.ttft_p95_ms:g}: the first token "
                "takes at least as long as one of the next; change one of them",
                "itl_p95_ms",
            )
