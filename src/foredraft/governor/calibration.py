"""What was expected of drafts and passes, held against what happened in the steps of a trace. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.governor.trace_format import Between, TraceStep
from foredraft.steps import DraftOutcome

NUM_BINS = 10
PASS_PHASES = ("propose", "forward", "decide")  # those that costs are learned from


@dataclass(frozen=True)
class Bin:
    """Drafted tokens whose survival was predicted within a tenth of 0 to 1: how many, the mean of what was predicted,
    and the share that was accepted."""

    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """Predicted survivals against what became of the tokens, over all drafts of a trace.

    bins: ten of equal width, by predicted survival. brier: the mean of (predicted - accepted)^2. error: the expected
    calibration error, the mean of |predicted - observed| over bins, weighted by their counts.
    """

    bins: tuple[Bin, ...]
    brier: float
    error: float

    @property
    def count(self) -> int:
        return sum(each.count for each in self.bins)


@dataclass(frozen=True)
class Measured:
    """What the steps of a trace that came to an end really brought.

    tokens: of all sequences, in `seconds`, the whole time of the steps. pass_seconds: of drafts, the target's pass and
    what is made of it; expected_pass_seconds: what the plans said that these would take. between: the steps that no
    decision was taken in.
    """

    num_steps: int
    tokens: int
    seconds: float
    pass_seconds: float
    expected_pass_seconds: float
    between: Between

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class Observer:
    """Collects what happened over steps that come one by one."""

    def __init__(self) -> None:
        self._counts, self._accepted = [0] * NUM_BINS, [0] * NUM_BINS
        self._predicted = [0.0] * NUM_BINS
        self._squares = 0.0
        self._num_steps = self._tokens = 0
        self._seconds = self._pass_seconds = self._expected_pass_seconds = 0.0
        self._between = Between()

    def add(self, step: TraceStep) -> None:
        record = step.record
        self._between += step.before
        if record is None:
            return
        self._num_steps += 1
        self._tokens += sum(record.num_tokens.values())
        self._seconds += record.seconds
        self._pass_seconds += sum(record.phase_seconds[name] for name in PASS_PHASES)
        self._expected_pass_seconds += step.plan.step_s
        seats = {seat.context_id: seat for seat in step.snapshot.seats}
        for draft in record.drafts:
            choice, seat = step.plan.choices.get(draft.context_id), seats.get(draft.context_id)
            offer = choice.among(seat) if choice and seat else None
            if offer and offer.proposer == draft.proposer:
                self._add_draft(offer.survival, draft, record.num_tokens[draft.context_id] > draft.num_accepted)

    def _add_draft(self, survival: tuple[float, ...], draft: DraftOutcome, has_gone_on: bool) -> None:
        """All but the accepted tokens count as lost where the target had a token after those; where the answer ended
        with them, nobody knows."""
        for place in range(draft.num_tokens) if has_gone_on else draft.path:
            if place >= len(survival):
                break
            chance, is_accepted = survival[place], place in draft.path
            at = min(int(chance * NUM_BINS), NUM_BINS - 1)
            self._counts[at] += 1
            self._accepted[at] += is_accepted
            self._predicted[at] += chance
            self._squares += (chance - is_accepted) ** 2

    def calibration(self) -> Calibration:
        total = max(sum(self._counts), 1)
        rows = zip(self._counts, self._predicted, self._accepted, strict=True)
        bins = tuple(Bin(n, p / n if n else 0.0, a / n if n else 0.0) for n, p, a in rows)
        error = sum(each.count * abs(each.predicted - each.observed) for each in bins) / total
        return Calibration(bins, self._squares / total, error)

    def measured(self) -> Measured:
        return Measured(
            self._num_steps, self._tokens, self._seconds, self._pass_seconds, self._expected_pass_seconds, self._between
        )


def calibration(steps: Iterable[TraceStep]) -> Calibration:
    """Of the drafts in these steps."""
    return _observed(steps).calibration()


def measured(steps: Iterable[TraceStep]) -> Measured:
    """Of these steps."""
    return _observed(steps).measured()


def _observed(steps: Iterable[TraceStep]) -> Observer:
    observer = Observer()
    for step in steps:
        observer.add(step)
    return observer
