"""A smaller model of the same tokenizer drafts (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

Its keys and values live in a paged cache of its own. Rows it drafted stay provisional until the target's verdict is in
`Context.tokens`; those that turned out right are then committed where they lie, the others are written over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.core import Context, Draft, FloatArray
from foredraft.errors import ConfigError, ForedraftError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import SequenceKV
from foredraft.proposers.base import DraftModel, GoesOn, Proposer, Resources, whole
from foredraft.proposers.drawing import draw

MAX_ROWS = 512  # of one pass, so that catching up with a long prompt needs no more memory than a prefill chunk


@dataclass(eq=False)
class _State:
    """`fed` are the tokens of provisional rows, in slot order, that follow `kv.tokens`."""

    kv: SequenceKV
    fed: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Job:
    """One context's draft in the making."""

    number: int  # in the call
    context: Context
    state: _State
    budget: int
    tokens: list[int] = field(default_factory=list)
    laws: list[FloatArray | None] = field(default_factory=list)
    grades: list[int] = field(default_factory=list)


class DraftModelProposer(Proposer):
    """Drafts greedily from its own law perturbed by the noise the target will use, so that under the exact rule it
    agrees as often as its law allows. Batched over sequences: one pass per depth."""

    name = "draft_model"
    ends_drafts = True

    def __init__(self, model: DraftModel, eos_ids: Collection[int]) -> None:
        self._model = model
        self._eos_ids = eos_ids
        self._states: dict[int, _State] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return self.propose_while(contexts, budgets, whole)

    def propose_while(self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn) -> list[Draft | None]:
        jobs = [self._start(number, *each) for number, each in enumerate(zip(contexts, budgets, strict=True))]
        active = [job for job in jobs if job]
        for job in active:
            self._catch_up(job, MAX_ROWS // len(active) or 1)
        while active:
            self._draw_one(active)
            active = [job for job in active if len(job.tokens) < job.budget]
            going_on = goes_on({job.number: job.grades for job in active}) if active else ()
            active = [job for job in active if job.number in going_on]
        return [None if job is None else self._finish(job) for job in jobs]

    def release(self, context_id: int) -> None:
        state = self._states.pop(context_id, None)
        if state:
            self._model.kv.close(state.kv)

    def _start(self, number: int, context: Context, budget: int) -> _Job | None:
        """Commit what was drafted right, and reserve slots for what is to come; None where there is no room."""
        kv = self._model.kv
        state = self._states.get(context.id)
        if state is None:
            state = self._states[context.id] = _State(kv.open(context.tokens, context.scope))
        ahead = context.tokens[state.kv.length : -1]
        right = 0
        while right < min(len(ahead), len(state.fed)) and ahead[right] == state.fed[right]:
            right += 1
        kv.commit(state.kv, ahead[:right])
        state.fed.clear()
        budget = min(budget, self._model.decoder.arch.context_length - len(context.tokens))
        needed = len(context.tokens) - state.kv.length + budget - 1
        return _Job(number, context, state, budget) if budget > 0 and kv.reserve(state.kv, needed) else None

    def _catch_up(self, job: _Job, most_left: int) -> None:
        """Feed most of what came without this proposer; `_draw_one` feeds the rest together with the others."""
        while len(job.context.tokens) - job.state.kv.length > most_left:
            behind = job.context.tokens[job.state.kv.length : -1][:MAX_ROWS]
            builder = BatchBuilder()
            builder.add(job.state.kv, behind)
            self._model.decoder.forward(builder.build(), self._model.kv)
            self._model.kv.commit(job.state.kv, behind)

    def _draw_one(self, jobs: Sequence[_Job]) -> None:
        """One pass over the jobs, and one more drafted token for each."""
        builder = BatchBuilder()
        for job in jobs:
            state = job.state
            rows = job.tokens[-1:] or job.context.tokens[state.kv.length :]
            builder.add(state.kv, rows, wanted=[len(rows) - 1], num_fed=len(state.fed))
        logits = self._to_target(self._model.decoder.forward(builder.build(), self._model.kv))
        for job, row in zip(jobs, logits, strict=True):
            if job.tokens:
                job.state.fed.append(job.tokens[-1])
            else:
                self._model.kv.commit(job.state.kv, job.context.tokens[job.state.kv.length :])
            try:
                token, law, grade = draw(row, job.context, job.tokens, self._eos_ids, self._model.allowed)
            except ForedraftError:  # this row has nothing to choose from; the others' drafts go on
                job.budget = len(job.tokens)
                continue
            job.tokens.append(token)
            job.laws.append(law)
            job.grades.append(grade)

    def _to_target(self, logits: FloatArray) -> FloatArray:
        """Draft logits [rows, draft vocabulary] over the target's vocabulary, padding at minus infinity."""
        allowed = self._model.allowed
        out = np.full((len(logits), len(allowed)), -np.inf, np.float32)
        shared = min(len(allowed), logits.shape[1])
        np.copyto(out[:, :shared], logits[:, :shared], where=allowed[:shared])
        return out

    def _finish(self, job: _Job) -> Draft | None:
        if not job.tokens:
            return None
        laws = [law for law in job.laws if law is not None]
        return Draft.chain(self.name, job.tokens, np.stack(laws) if laws else None, job.grades)


def create(resources: Resources) -> DraftModelProposer:
    """Raises ConfigError without a draft model."""
    if resources.draft is None:
        raise ConfigError("proposer draft_model needs a draft model; name one with --draft")
    return DraftModelProposer(resources.draft, resources.eos_ids)
