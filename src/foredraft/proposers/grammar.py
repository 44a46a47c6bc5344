"""Drafts the text that a grammar forces: the keys and punctuation of a JSON schema, the rest of an enum's value.

A forced token is only drafted: the target's own masked choice decides, so that the text does not depend on whether
anybody drafts. Where the mask leaves one token, the draft is always right.
"""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.core import Context, Draft
from foredraft.proposers.base import Proposer, Resources


class Grammar(Proposer):
    """Has nothing to offer to sequences without a constraint."""

    name = "grammar"
    is_free = True

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return [self._draft(context, budget) for context, budget in zip(contexts, budgets, strict=True)]

    def _draft(self, context: Context, budget: int) -> Draft | None:
        forced = context.constraint.forced() if context.constraint else []
        return Draft.chain(self.name, forced[:budget]) if forced else None


def create(resources: Resources) -> Grammar:
    return Grammar()
