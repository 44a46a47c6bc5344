"""Who takes part in a step: continuous batching, chunked prefill, admission, preemption.

Sequences that decode go first, then prompts in order of arrival, as far as the step's row budget reaches; then waiting
sequences are admitted while there is room. Where pages run out, the youngest running sequence is preempted: its pages
are freed and it waits at the front, to be read again later. Noise is keyed by position and rows are invariant, so its
text stays the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from foredraft.engine.sequence import Sequence
from foredraft.kv.cache import PagedKV


@dataclass(frozen=True)
class Slice:
    """A sequence's part of a step: its next `num_tokens` pending tokens, and a draft of at most `draft_budget`.

    Slots for all of that are reserved. `is_complete`: all pending tokens are in, so that the step decides a token.
    """

    sequence: Sequence
    num_tokens: int
    draft_budget: int

    @property
    def is_complete(self) -> bool:
        return self.num_tokens == self.sequence.num_pending


class Scheduler:
    """Owns the waiting and the running sequences.

    max_rows bounds the rows of a step that are not drafts (a running sequence that decodes is never left out).
    draft_budget says how many tokens to make room for beside a sequence that decides a token.
    """

    def __init__(
        self,
        kv: PagedKV,
        max_sequences: int,
        max_rows: int,
        draft_budget: Callable[[Sequence], int],
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission
        self.num_preemptions = 0
        self._kv, self._max_sequences, self._max_rows = kv, max_sequences, max_rows
        self._draft_budget = draft_budget

    @property
    def kv_use(self) -> float:
        """Share of the KV cache's pages that sequences hold, 0 to 1; prefixes kept for later do not count."""
        return 1 - self._kv.num_available_pages / self._kv.num_pages

    def schedule(self) -> tuple[list[Slice], list[Sequence]]:
        """The slices of the next step, and the sequences that were preempted to make room for them."""
        slices: list[Slice] = []
        preempted: list[Sequence] = []
        room = self._max_rows
        for sequence in sorted(self.running, key=lambda s: s.num_pending > 1):  # stable: order of admission stays
            if sequence in preempted or (room < 1 and sequence.num_pending > 1):
                continue
            num_tokens = min(sequence.num_pending, max(room, 1))
            if self._reserve(sequence, num_tokens, preempted):
                slices.append(Slice(sequence, num_tokens, 0))
                room -= num_tokens
        while not preempted and room > 0 and (admitted := self._admit(room)):
            slices.append(admitted)
            room -= admitted.num_tokens
        return [self._with_draft(s) for s in slices if s.sequence not in preempted], preempted

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and free its pages."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._release(sequence)

    def _reserve(self, sequence: Sequence, num_tokens: int, preempted: list[Sequence]) -> bool:
        """Reserve slots, preempting if need be; False if the sequence had to go itself."""
        assert sequence.kv is not None
        while not self._kv.reserve(sequence.kv, num_tokens):
            youngest = self.running[-1]
            self._preempt(youngest)
            preempted.append(youngest)
            if youngest is sequence:
                return False
        return True

    def _with_draft(self, part: Slice) -> Slice:
        """Give a slice room for a draft. Comes last: drafts get the pages that no sequence needs in this step."""
        assert part.sequence.kv is not None
        budget = self._draft_budget(part.sequence) if part.is_complete else 0
        if budget and self._kv.reserve(part.sequence.kv, part.num_tokens + budget):
            return replace(part, draft_budget=budget)
        return part

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        if sequence.kv is not None:
            self._kv.close(sequence.kv)
            sequence.kv = None

    def _admit(self, room: int) -> Slice | None:
        """Let the next waiting sequence in if all of its tokens, and one page to grow, fit into free pages."""
        if not self.waiting or len(self.running) >= self._max_sequences:
            return None
        sequence = self.waiting[0]
        if sequence.leader is not None and not sequence.leader.is_prefilled:
            return None
        kv = self._kv.open(sequence.context.tokens, sequence.context.scope)
        num_missing = len(sequence.context.tokens) - kv.length
        is_alone = not self.running
        if not self._kv.reserve(kv, num_missing + (0 if is_alone else self._kv.page_size)):
            self._kv.close(kv)
            return None
        self._kv.trim(kv, num_missing)
        self.waiting.popleft()
        self.running.append(sequence)
        sequence.kv = kv
        if sequence.num_cached_tokens is None:  # not after a preemption, when it finds its own pages
            sequence.num_cached_tokens = kv.length
        return Slice(sequence, min(num_missing, room), 0)
