"""Chains drawn token by token from logits, one pass per depth for all sequences: what proposers that run a model share.

Under the exact rule a token is the likeliest by the drafting model's own law perturbed by the noise that the target
will use, so that the two agree as often as the law allows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from foredraft import _native
from foredraft.core import BoolArray, Context, Draft, FloatArray
from foredraft.errors import ForedraftError
from foredraft.proposers.base import GoesOn
from foredraft.sampling.processors import process
from foredraft.sampling.sampler import BlockNoise, draft_token

# By how much a token's logit has to exceed all others for a grade: accepted as often as not below the first lead, and
# nearly always above the last (0.5B drafting for 1.5B).
LEADS = (0.5, 1.0, 2.0, 3.0, 4.5)
MAX_ROWS = 512  # of one pass, so that catching up with a long prompt needs no more memory than a prefill chunk


@dataclass(eq=False)
class Chain:
    """One context's draft in the making. number: in the call of the proposer."""

    number: int
    context: Context
    budget: int
    tokens: list[int] = field(default_factory=list)
    laws: list[FloatArray | None] = field(default_factory=list)
    grades: list[int] = field(default_factory=list)

    def draft(self, proposer: str) -> Draft | None:
        """What has been drawn; None where that is nothing."""
        if not self.tokens:
            return None
        laws = [law for law in self.laws if law is not None]
        return Draft.chain(proposer, self.tokens, np.stack(laws) if laws else None, self.grades)


AnyChain = TypeVar("AnyChain", bound=Chain)


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn. allowed: bool [target vocabulary], those that can be; eos_ids: those that end a request."""

    allowed: BoolArray
    eos_ids: Collection[int]

    def grow(
        self, chains: Sequence[AnyChain], logits: Callable[[Sequence[AnyChain]], FloatArray], goes_on: GoesOn
    ) -> None:
        """Draw tokens for all chains, one for each at a time, until their budgets are spent or nothing goes on.

        logits: of the next token of each of some chains, float32 [chains, target vocabulary].
        """
        active = list(chains)
        while active:
            for chain, row in zip(active, logits(active), strict=True):
                self._draw(chain, row)
            active = [chain for chain in active if len(chain.tokens) < chain.budget]
            going_on = goes_on({chain.number: chain.grades for chain in active}) if active else ()
            active = [chain for chain in active if chain.number in going_on]

    def _draw(self, chain: Chain, logits: FloatArray) -> None:
        """One more token with its grade, and the law it was drawn from where that has to be known."""
        context, params = chain.context, chain.context.params
        # A token that the target's mask forbids could only be refused, unless no other can be drafted.
        mask = context.constraint.mask(chain.tokens) if context.constraint else None
        if mask is not None and not (mask & self.allowed).any():
            mask = None
        try:
            scores = process(logits, params, *context.history(chain.tokens), self.eos_ids, mask)
            noise = BlockNoise(context.key, len(context.tokens))
            token, law = draft_token(scores, params.temperature, context.rule, noise, len(chain.tokens))
        except ForedraftError:  # this row has nothing to choose from; the others' drafts go on
            chain.budget = len(chain.tokens)
            return
        best, second = _native.highest(scores, 2)
        lead = float(scores[token] - scores[best if token != best else second])
        chain.tokens.append(token)
        chain.laws.append(law)
        chain.grades.append(bisect_right(LEADS, lead))
