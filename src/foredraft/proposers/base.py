"""The proposer seam: who guesses the next tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foredraft.core import Context, Draft, FloatArray, Verdict
from foredraft.drafters.loading import Drafter
from foredraft.errors import ConfigError
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder
from foredraft.proposers.suffix_memory import SuffixMemory


@dataclass(frozen=True)
class DraftModel:
    """A loaded draft model with a KV cache of its own. allowed: bool [target vocabulary], the tokens it may propose;
    what the decoder keeps of its vocabulary, if it keeps a part only, is among them."""

    decoder: Decoder
    kv: PagedKV
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class LoadedDrafter:
    """A learned drafter, with a KV cache of its own where its network has keys and values."""

    network: Drafter
    kv: PagedKV | None


@dataclass(frozen=True)
class Resources:
    """What a proposer may be built from. `draft` is None where no draft model was given.

    eos_ids: the target's tokens that end a request. suffixes: past outputs of tenants that share them; None for none.
    drafters: by kind.
    """

    target: Decoder
    eos_ids: Collection[int]
    draft: DraftModel | None
    suffixes: SuffixMemory | None = None
    drafters: Mapping[str, LoadedDrafter] = field(default_factory=dict)

    def drafter(self, kind: str) -> LoadedDrafter:
        """Raises ConfigError where no drafter of this kind was loaded."""
        if kind not in self.drafters:
            raise ConfigError(f"proposer {kind} needs a drafter of this kind; name one with --drafter")
        return self.drafters[kind]


# Which drafts are worth another pass: by each one's number in the call, the tokens that would get a child in it, as the
# grades on the path down to each; of these drafts, the numbers of those that are to go on.
Paths = Mapping[int, Sequence[Sequence[int]]]
GoesOn = Callable[[Paths], Collection[int]]


def whole(paths: Paths) -> Collection[int]:
    """All drafts go on, to the end of their budgets."""
    return paths


class Proposer(ABC):
    """Drafts tokens for sequences. Holds per-sequence state keyed by `Context.id`, made on first sight.

    A proposer must cope with a context that grew without it (steps in which it was not asked, or another proposer
    drafted): whatever it needs, it reads from `Context.tokens`. An exception, or a draft that breaks the contract,
    is reported and ends drafting by this proposer for the sequences it was asked about; their requests go on.
    """

    name: str
    is_free: bool = False  # a draft costs next to nothing, so it may be made first and judged then
    ends_drafts: bool = False  # `propose_while` asks whether to go on
    drafts_at_once: bool = False  # one pass of its model makes the whole draft, not one for each depth
    most_catch_up: int | None = None  # most tokens that came without it and that it reads before it drafts; None: all
    grows_trees: bool = False  # `propose_while` takes widths above 1
    taps: tuple[int, ...] = ()  # whose hidden states of the target it reads; see Decoder.forward_tapped

    @abstractmethod
    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        """One draft of at most `budgets[i]` (>= 1) tokens for each context, or None where there is nothing to offer.

        Called at most once per step; reads the contexts, never changes them.
        """

    def propose_while(
        self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn, widths: Sequence[int] = ()
    ) -> list[Draft | None]:
        """Like `propose`, where a draft may end before its budget: proposers that draft depth by depth, and grade their
        tokens, ask before each further one.

        widths: for each context how many children a node may have; empty, or 1 for each, asks for chains. The nodes of
        a tree are in an order of which any number from the front makes the best tree of that size.
        """
        return self.propose(contexts, budgets)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        """Learn what became of a draft of this proposer; `context` already holds the tokens that were kept."""

    def feed(self, context_id: int, start: int, features: FloatArray) -> None:
        """Take the target's hidden states of a context's tokens from position `start` on, now final.

        features: float32 [tokens, len(taps) * hidden], of this call only. Every pass brings the next ones, also where
        nobody drafts, so this has to be cheap; but tokens found in the prefix cache are in no pass: there is a gap.
        """

    def learn(self, context: Context) -> None:
        """A sequence has come to its end, whose output others of its scope and pool may be drafted from; only called
        where `Context.shares` names a pool, and before `release`."""

    def release(self, context_id: int) -> None:
        """Drop all state of a sequence: it ended or was preempted. Unknown ids are fine."""


def check_draft(draft: Draft, name: str, context: Context, budget: int, vocab_size: int) -> None:
    """Raise ValueError where a draft breaks the contract of `Proposer.propose`, before it can touch the KV cache."""
    count = len(draft.tokens)
    if draft.proposer != name:
        raise ValueError(f"the draft names proposer {draft.proposer!r}")
    if count > budget:
        raise ValueError(f"{count} tokens are drafted where {budget} are allowed")
    if not all(0 <= token < vocab_size for token in draft.tokens):
        raise ValueError(f"a drafted token is outside the target's vocabulary of {vocab_size}")
    if len(draft.parents) != count or not all(-1 <= parent < node for node, parent in enumerate(draft.parents)):
        raise ValueError("parents are not one for each token, each before its children")
    if draft.probs is not None and draft.probs.shape != (count, vocab_size):
        raise ValueError(f"probs have shape {draft.probs.shape}, not {(count, vocab_size)}")
    if context.rule == "block" and context.params.temperature > 0 and not draft.is_chain:
        raise ValueError("rule block verifies chains only, and this draft is a tree")
