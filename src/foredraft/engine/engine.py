"""The step: schedule, propose, forward, verify, commit, observe. One synchronous core, used by one thread.

Everything is rows: a prompt's chunk, a last token and a draft differ only in how many rows they are and which of them
need logits. What limits a request (end of text, stop strings, max_tokens, the context, a constraint) is applied token
by token inside the accepted block, before anything is emitted, cached or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from foredraft.core import Draft, FloatArray, Verdict
from foredraft.engine.drafting import Drafting
from foredraft.engine.record import StepRecorder
from foredraft.engine.scheduler import Scheduler, Slice
from foredraft.engine.sequence import Chunk, Sequence, TokenLogprobs
from foredraft.errors import ForedraftError
from foredraft.governor.governor import Governor
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder
from foredraft.proposers.base import Proposer
from foredraft.sampling.processors import Scores, log_probabilities, process
from foredraft.sampling.sampler import BlockNoise
from foredraft.steps import StepRecord
from foredraft.verify import verify

NO_DRAFT = Draft.chain("", ())


class Engine:
    """Runs sequences to their end. Owns the scheduler and every sequence's state; the KV cache and proposers are given.

    The text of a sequence under the exact rule depends on its own tokens, parameters and noise key only.
    """

    def __init__(
        self,
        target: Decoder,
        kv: PagedKV,
        proposers: Mapping[str, Proposer],
        max_sequences: int,
        max_rows: int = 512,
        governor: Governor | None = None,
    ) -> None:
        self.proposers = proposers
        self._target, self._kv = target, kv
        self.governor = governor or Governor()
        self._drafting = Drafting(proposers, self.governor, target.vocab_size)
        self.scheduler = Scheduler(kv, max_sequences, max_rows, self._drafting.budget)
        self.num_steps = 0
        self.last_record: StepRecord | None = None  # of the last step; None if there was nothing to do
        self.on_step: list[Callable[[StepRecord], None]] = []  # hear of every step that did something
        self._recorder = StepRecorder()  # of the step that runs

    @property
    def is_idle(self) -> bool:
        return not (self.scheduler.running or self.scheduler.waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; it must fit into the KV cache when it runs alone (the caller checks)."""
        self.scheduler.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """End a sequence without another token. One that has ended already is left alone."""
        sequence.finish_reason = sequence.finish_reason or "abort"
        self._finish(sequence)

    def step(self) -> list[Chunk]:
        """One pass of the target over all that is due; returns the tokens it decided, in order, per sequence.

        A sequence whose next token cannot be chosen (a logit is not a number) ends with its `error`; others go on.
        """
        recorder = self._recorder = StepRecorder()
        self._drafting.begin(self.scheduler.running)
        slices, preempted = self.scheduler.schedule()
        for sequence in preempted:
            self._drafting.release(sequence)
        if not slices:
            self.last_record = None
            return []
        recorder.scheduled(slices)
        drafts = self._drafting.draft(slices)
        recorder.proposed(drafts.values())
        logits, features = self._forward(slices, drafts)
        recorder.lap("forward")
        chunks: list[Chunk] = []
        first = first_row = 0
        for part in slices:
            draft = drafts.get(part.sequence.context.id, NO_DRAFT)
            own_features = features[first_row : first_row + part.num_tokens + len(draft.tokens)]
            first_row += len(own_features)
            if part.is_complete:
                rows = logits[first : first + 1 + len(draft.tokens)]
                chunks += self._decide(part, draft, rows, own_features)
                first += len(rows)
            else:
                self._commit(part, own_features)
        recorder.lap("decide")
        self.last_record = recorder.finish(self.num_steps)
        self._drafting.end(self.last_record)
        for hear in self.on_step:
            hear(self.last_record)
        self.num_steps += 1
        return chunks

    def _forward(self, slices: list[Slice], drafts: Mapping[int, Draft]) -> tuple[FloatArray, FloatArray]:
        """Logits of the rows that decide, and features of all rows where a proposer reads them."""
        builder = BatchBuilder()
        for part in slices:
            sequence, count = part.sequence, part.num_tokens
            assert sequence.kv is not None
            start = sequence.kv.length
            tokens = sequence.context.tokens[start : start + count]
            if not part.is_complete:
                builder.add(sequence.kv, tokens)
                continue
            draft = drafts.get(sequence.context.id, NO_DRAFT)
            wanted = range(count - 1, count + len(draft.tokens))
            parents = None
            if not draft.is_chain:
                parents = [
                    *range(-1, count - 1),
                    *(count + parent if parent >= 0 else count - 1 for parent in draft.parents),
                ]
            builder.add(sequence.kv, [*tokens, *draft.tokens], wanted, parents)
        taps = self._drafting.taps(slices)
        if not taps:
            return self._target.forward(builder.build(), self._kv), np.empty((builder.num_rows, 0), np.float32)
        return self._target.forward_tapped(builder.build(), self._kv, taps)

    def _decide(self, part: Slice, draft: Draft, logits: FloatArray, features: FloatArray) -> list[Chunk]:
        """Verify a draft, keep what is accepted and not past the end, and tell the proposer."""
        sequence = part.sequence
        context, before = sequence.context, len(sequence.context.tokens)
        try:
            verdict = self._verify(draft, logits, sequence)
            logprobs = _logprobs(draft, verdict, logits, context.params.logprobs)
        except ForedraftError as error:
            sequence.error, sequence.finish_reason = error, "error"
            self._finish(sequence)
            return []
        is_rejected = any(
            draft.parents[i] == (verdict.path[-1] if verdict.path else -1) for i in range(len(draft.tokens))
        )
        chunks = self._emit(sequence, draft, verdict, logprobs, is_rejected)
        num_kept = len(context.tokens) - before
        # The last token has no row yet, or (after an early end) one that without speculation would not exist.
        self._commit(part, features, verdict.path[: num_kept - 1])
        assert sequence.kv is not None
        self._kv.trim(sequence.kv, 0)  # pages that only held refused drafts
        if draft.tokens:
            self._recorder.lap("decide")
            self._drafting.observe(draft, context, verdict)
            self._recorder.lap("observe")
        else:
            self._recorder.no_draft(context.id, self._drafting.reason(part))
        if sequence.finish_reason:
            self._drafting.learn(sequence)
            self._finish(sequence)
        return chunks

    def _verify(self, draft: Draft, logits: FloatArray, sequence: Sequence) -> Verdict:
        """Apply the sequence's rule; each row gets the processors' state that its own path would have had."""
        context = sequence.context

        def target_scores(row: int) -> Scores:
            path = [draft.tokens[node] for node in draft.path(row - 1)]
            mask = context.constraint.mask(path) if context.constraint else None
            return process(logits[row], context.params, *context.history(path), sequence.eos_ids, mask)

        noise = BlockNoise(context.key, len(context.tokens))
        return verify(context.rule, draft, target_scores, context.params.temperature, noise)

    def _emit(
        self,
        sequence: Sequence,
        draft: Draft,
        verdict: Verdict,
        logprobs: Iterable[TokenLogprobs | None],
        is_rejected: bool,
    ) -> list[Chunk]:
        """Append the decided tokens one by one until one of them ends the sequence, and count what was kept."""
        last_origin = ("corrected" if is_rejected else "bonus") if draft.tokens else "plain"
        decided = [(draft.tokens[i], "accepted") for i in verdict.path] + [(verdict.token, last_origin)]
        emitted: list[tuple[int, str, str]] = []
        for token, origin in decided:
            emitted.append((token, origin, sequence.append(token)))
            if sequence.finish_reason:
                break
        self._recorder.emitted(sequence, len(emitted))
        stats = sequence.stats
        stats.num_steps += 1
        stats.num_tokens += len(emitted)
        if draft.tokens:
            path, is_rejected = verdict.path[: len(emitted)], emitted[-1][1] == "corrected"
            stats.record(draft.proposer, len(draft.tokens), len(path), is_rejected)
            self._recorder.draft(sequence.context.id, draft, path, is_rejected)
        chunks = [
            Chunk(
                context_id=sequence.context.id,
                request=sequence.request,
                choice=sequence.choice,
                token_id=token,
                text=text,
                origin=origin,
                step=self.num_steps,
                logprobs=its_logprobs,
            )
            for (token, origin, text), its_logprobs in zip(emitted, logprobs, strict=False)
        ]
        if sequence.finish_reason:
            chunks[-1] = replace(
                chunks[-1],
                finish_reason=sequence.finish_reason,
                stats=stats,
                seed=sequence.seed,
                num_cached_tokens=sequence.num_cached_tokens,
            )
        return chunks

    def _commit(self, part: Slice, features: FloatArray, draft_rows: Collection[int] = ()) -> None:
        """Make rows of this pass final: the slice's own tokens, and those draft rows that were kept."""
        sequence = part.sequence
        assert sequence.kv is not None
        start = sequence.kv.length
        rows = [*range(part.num_tokens), *(part.num_tokens + row for row in draft_rows)]
        self._kv.commit(sequence.kv, sequence.context.tokens[start : start + len(rows)], rows)
        self._drafting.feed(sequence, start, features, rows)

    def _finish(self, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        self._drafting.release(sequence)


def _logprobs(draft: Draft, verdict: Verdict, logits: FloatArray, count: int | None) -> list[TokenLogprobs | None]:
    """Of each decided token, by the row that decided it."""
    tokens = [*(draft.tokens[i] for i in verdict.path), verdict.token]
    if count is None:
        return [None] * len(tokens)
    rows = [0, *(i + 1 for i in verdict.path)]
    both = (log_probabilities(logits[row], token, count) for row, token in zip(rows, tokens, strict=True))
    return [TokenLogprobs(logprob, tuple(top)) for logprob, top in both]
