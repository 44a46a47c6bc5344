"""What a step did and what it cost: the record that metrics, and whoever decides about drafts, learn from."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from foredraft.core import Draft
from foredraft.engine.scheduler import Slice

# The phases of a step, between whose ends its whole time is shared out.
PHASES = {
    "schedule": "choosing who takes part, preempting and admitting",
    "propose": "the proposers' drafts",
    "forward": "the target's pass",
    "decide": "sampling, verification, stops, text and the KV cache",
    "observe": "telling the proposers what became of their drafts",
}

# Why a sequence decided a token without a draft.
NO_DRAFT_REASONS = {
    "off": "speculation is off for the request",
    "no_proposer": "the request and the model have no proposer",
    "no_budget": "no drafted token could be kept: k is 0, the answer ends with this token, or no page is free",
    "failed": "each of its proposers has failed",
    "no_match": "none of its proposers had anything to offer",
}


@dataclass(frozen=True)
class DraftOutcome:
    """What became of one draft: tokens drafted, tokens accepted and kept, and whether the target refused one."""

    context_id: int
    proposer: str
    num_tokens: int
    num_accepted: int
    is_rejected: bool


@dataclass(frozen=True)
class StepRecord:
    """One step. `drafts` and `undrafted` together name every sequence that decided a token in it.

    num_sequences: sequences that took part. num_prompt_rows: rows that read prompts (or, after a preemption, read a
    sequence again); num_decode_rows: last tokens of sequences that go on. undrafted: context id to one of
    NO_DRAFT_REASONS. phase_seconds: time by PHASES; their sum is the time of the step.
    """

    step: int
    num_sequences: int
    num_prompt_rows: int
    num_decode_rows: int
    num_draft_rows: int
    drafts: tuple[DraftOutcome, ...]
    undrafted: Mapping[int, str]
    phase_seconds: Mapping[str, float]

    @property
    def num_rows(self) -> int:
        return self.num_prompt_rows + self.num_decode_rows + self.num_draft_rows


class StepRecorder:
    """Collects the record of a step while it runs. Starts its clock when it is made."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._last = clock, clock()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._num_sequences = self._num_prompt_rows = self._num_decode_rows = self._num_draft_rows = 0
        self._drafts: list[DraftOutcome] = []
        self._undrafted: dict[int, str] = {}

    def lap(self, phase: str) -> None:
        """Give `phase` the time since the last lap."""
        now = self._clock()
        self._seconds[phase] += now - self._last
        self._last = now

    def scheduled(self, slices: Sequence[Slice]) -> None:
        self._num_sequences = len(slices)
        self._num_decode_rows = sum(part.num_tokens == 1 and part.sequence.is_prefilled for part in slices)
        self._num_prompt_rows = sum(part.num_tokens for part in slices) - self._num_decode_rows
        self.lap("schedule")

    def proposed(self, drafts: Iterable[Draft]) -> None:
        self._num_draft_rows = sum(len(draft.tokens) for draft in drafts)
        self.lap("propose")

    def draft(self, context_id: int, draft: Draft, num_accepted: int, is_rejected: bool) -> None:
        self._drafts.append(DraftOutcome(context_id, draft.proposer, len(draft.tokens), num_accepted, is_rejected))

    def no_draft(self, part: Slice, broken: Collection[tuple[int, str]]) -> None:
        """Note why a slice that decides a token has no draft; `broken` holds (context id, proposer) that failed."""
        sequence, context_id = part.sequence, part.sequence.context.id
        if sequence.speculation.mode == "off":
            reason = "off"
        elif not sequence.proposers:
            reason = "no_proposer"
        elif not part.draft_budget:
            reason = "no_budget"
        elif all((context_id, name) in broken for name in sequence.proposers):
            reason = "failed"
        else:
            reason = "no_match"
        self._undrafted[context_id] = reason

    def finish(self, step: int) -> StepRecord:
        return StepRecord(
            step=step,
            num_sequences=self._num_sequences,
            num_prompt_rows=self._num_prompt_rows,
            num_decode_rows=self._num_decode_rows,
            num_draft_rows=self._num_draft_rows,
            drafts=tuple(self._drafts),
            undrafted=self._undrafted,
            phase_seconds=self._seconds,
        )
