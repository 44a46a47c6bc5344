"""Collecting the record of a step (foredraft/steps.py) while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from foredraft.core import Draft
from foredraft.engine.scheduler import Slice
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.steps import PHASES, DraftOutcome, StepRecord


class StepRecorder:
    """Collects the record of a step while it runs. Starts its clock when it is made."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._last = clock, clock()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._num_sequences = self._num_prompt_rows = self._num_decode_rows = self._num_draft_rows = 0
        self._drafts: list[DraftOutcome] = []
        self._undrafted: dict[int, str] = {}
        self._num_tokens: dict[int, int] = {}
        self._routes: dict[int, str] = {}

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

    def emitted(self, sequence: EngineSequence, num_tokens: int) -> None:
        self._num_tokens[sequence.context.id] = num_tokens
        self._routes[sequence.context.id] = sequence.route

    def draft(self, context_id: int, draft: Draft, path: tuple[int, ...], is_rejected: bool) -> None:
        self._drafts.append(DraftOutcome(context_id, draft.proposer, len(draft.tokens), path, is_rejected))

    def no_draft(self, context_id: int, reason: str) -> None:
        """A sequence decided a token without a draft, for one of steps.NO_DRAFT_REASONS."""
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
            num_tokens=self._num_tokens,
            routes=self._routes,
            phase_seconds=self._seconds,
        )
