"""The proposer seam: who guesses the next tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.core import Context, Draft, Verdict
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder


@dataclass(frozen=True)
class DraftModel:
    """A loaded draft model with a KV cache of its own. allowed: bool [target vocabulary], the tokens it may propose."""

    decoder: Decoder
    kv: PagedKV
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class Resources:
    """What a proposer may be built from. `draft` is None where no draft model was given.

    eos_ids: the target's tokens that end a request.
    """

    target: Decoder
    eos_ids: Collection[int]
    draft: DraftModel | None


class Proposer(ABC):
    """Drafts tokens for sequences. Holds per-sequence state keyed by `Context.id`, made on first sight.

    A proposer must cope with a context that grew without it (steps in which it was not asked, or another proposer
    drafted): whatever it needs, it reads from `Context.tokens`. An exception stops drafting for that step only; the
    engine reports it and the request goes on.
    """

    name: str

    @abstractmethod
    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        """One draft of at most `budgets[i]` (>= 1) tokens for each context, or None where there is nothing to offer.

        Called at most once per step; reads the contexts, never changes them.
        """

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Learn what became of a draft of this proposer; `context` already holds the tokens that were kept."""

    def release(self, context_id: int) -> None:
        """Drop all state of a sequence: it ended or was preempted. Unknown ids are fine."""
