"""Medusa heads draft (Cai et al. 2401.10774): one pass over all heads of all sequences makes whole drafts.

A head knows the target's hidden state and not which tokens were drafted before its own. Its token is chosen like a
draft model's all the same, drawn from its law where the rule has to know it: a point mass on its best token would be
accepted less often where the text is open, and never more often where it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.core import Context, Draft, FloatArray
from foredraft.drafters.medusa import MedusaHeads
from foredraft.errors import ForedraftError
from foredraft.proposers.base import GoesOn, Proposer, whole
from foredraft.proposers.drawing import Drawn, draw


@dataclass(eq=False)
class _Job:
    """One context's draft in the making. logits: [heads, draft vocabulary]."""

    number: int  # in the call
    context: Context
    logits: FloatArray
    drawn: list[Drawn] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [each.token for each in self.drawn]


class MedusaProposer(Proposer):
    """Keeps of each sequence the newest hidden state, which is all that a draft needs."""

    name = "medusa"
    ends_drafts = True

    def __init__(self, heads: MedusaHeads, eos_ids: Collection[int]) -> None:
        """eos_ids: the target's."""
        self.taps = heads.taps
        self._heads, self._eos_ids = heads, eos_ids
        self._draftable = np.full(heads.vocab_size, heads.target_ids is None)
        if heads.target_ids is not None:
            self._draftable[heads.target_ids] = True
        self._newest: dict[int, tuple[int, FloatArray]] = {}  # context: position of its newest hidden state, and that

    def feed(self, context_id: int, start: int, features: FloatArray) -> None:
        self._newest[context_id] = (start + len(features) - 1, features[-1].copy())

    def release(self, context_id: int) -> None:
        self._newest.pop(context_id, None)

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return self.propose_while(contexts, budgets, whole)

    def propose_while(self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn) -> list[Draft | None]:
        jobs = self._jobs(contexts, budgets)
        active = jobs
        while active:
            active = [job for job in active if self._draw_one(job)]
            active = [job for job in active if len(job.drawn) < len(job.logits)]
            going_on = goes_on({job.number: [[each.grade for each in job.drawn]] for job in active}) if active else ()
            active = [job for job in active if job.number in going_on]
        drafts: list[Draft | None] = [None] * len(contexts)
        for job in jobs:
            drafts[job.number] = self._finish(job)
        return drafts

    def _jobs(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[_Job]:
        """A job for each context whose newest hidden state is at hand: that of the token before its last."""
        able = [
            number
            for number, context in enumerate(contexts)
            if self._newest.get(context.id, (-1,))[0] == len(context.tokens) - 2 >= 0
        ]
        if not able:
            return []
        most = [min(budgets[number], self._heads.num_heads) for number in able]
        hidden = np.stack([self._newest[contexts[number].id][1] for number in able])
        logits = self._heads.logits(hidden, max(most))
        return [
            _Job(number, contexts[number], logits[:count, row])
            for row, (number, count) in enumerate(zip(able, most, strict=True))
        ]

    def _draw_one(self, job: _Job) -> bool:
        """One more token; False where there is nothing to choose from."""
        logits = self._to_target(job.logits[len(job.drawn)])
        try:
            job.drawn.append(draw(logits, job.context, job.tokens, self._eos_ids, self._draftable))
        except ForedraftError:
            return False
        return True

    def _to_target(self, logits: FloatArray) -> FloatArray:
        """Logits [draft vocabulary] over the target's vocabulary, minus infinity where there is none."""
        if self._heads.target_ids is None:
            return logits
        out = np.full(self._heads.vocab_size, -np.inf, np.float32)
        out[self._heads.target_ids] = logits
        return out

    def _finish(self, job: _Job) -> Draft | None:
        if not job.drawn:
            return None
        laws = [each.law for each in job.drawn if each.law is not None]
        return Draft.chain(self.name, job.tokens, np.stack(laws) if laws else None, [each.grade for each in job.drawn])
