"""How far to draft: the plan that gets most tokens per second out of the whole batch. Pure; no clock, no randomness.

Slots, one for each drafted token of each seat, compete for rows. A slot is worth the chance that its token and all
before it are accepted. Taken in order of that chance, any number of slots from the front makes a plan, and ALL of them
are compared, the empty one included: the cost of a pass has steps, and a draft model's passes are shared by the seats
that use it, so that the first slot that lowers the result need not be the last.

Nobody pays for others: a seat's credit is the time by which it is ahead of where it would be without drafts, and no
plan may take a seat further behind than SLACK_STEPS plain steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.governor.plan import Candidate, Choice, Plan, Seat, Snapshot

# What drafting has to promise to be started, and to be gone on with: estimates are never exact, and whoever picks the
# best of many picks some luck with it.
START_GAIN, KEEP_GAIN = 0.04, 0.015
SLACK_STEPS = 4.0
DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # of a proposer that runs a model


@dataclass(frozen=True)
class _Slots:
    """The slots of a way to draft, by falling survival; each seat's in the order of depth.

    survival, seat, context: [slots]. chosen: the candidate of each seat, if any. draft_s: seconds until the drafts are
    there.
    """

    survival: NDArray[np.float64]
    seat: NDArray[np.int64]
    context: NDArray[np.int64]
    chosen: tuple[Candidate | None, ...]
    draft_s: float


def decide(snapshot: Snapshot) -> Plan:
    """The best plan, or the empty one where no other is clearly better."""
    num_seats = len(snapshot.seats)
    plain_s = float(snapshot.pass_cost(snapshot.num_rows, snapshot.sequence_context, snapshot.row_context))
    best = empty = Plan({}, float(num_seats), plain_s, plain_s)
    best_gain = KEEP_GAIN if snapshot.is_drafting else START_GAIN
    for slots in _ways(snapshot):
        tokens = num_seats + np.cumsum(slots.survival)
        rows = snapshot.num_rows + np.arange(1, len(slots.survival) + 1)
        pass_s = snapshot.pass_cost(rows, snapshot.sequence_context, snapshot.row_context + np.cumsum(slots.context))
        step_s = pass_s + slots.draft_s + snapshot.overhead_s
        gain = np.where(_is_fair(snapshot, slots, step_s - plain_s), _gain(snapshot, tokens, step_s, plain_s), 0)
        at = int(np.argmax(gain))
        if gain[at] > best_gain:
            best_gain = float(gain[at])
            best = Plan(_choices(snapshot, slots, at + 1), float(tokens[at]), float(step_s[at]), plain_s)
    return best if best.choices else empty


def _gain(
    snapshot: Snapshot, tokens: NDArray[np.float64], step_s: NDArray[np.float64], plain_s: float
) -> NDArray[np.float64]:
    """By what share a plan beats the empty one: in tokens per second of the step.

    A pass that reads prompts too takes so long anyway that any draft would look cheap. There, the tokens that are won
    count against those that would otherwise come in the time that is added.
    """
    plain_tokens = len(snapshot.seats) + snapshot.other_tokens
    if snapshot.has_prompt_rows:
        return np.asarray((tokens - len(snapshot.seats) - snapshot.rate * (step_s - plain_s)) / plain_tokens)
    return np.asarray((tokens + snapshot.other_tokens) / step_s / (plain_tokens / plain_s) - 1)


def _ways(snapshot: Snapshot) -> Iterator[_Slots]:
    """Drafts that are ready alone, and with each depth of each proposer that has to run."""
    ready = [_best_ready(seat) for seat in snapshot.seats]
    yield from _slots(snapshot, ready, None, 0)
    for proposer in snapshot.draft_costs:
        for depth in DEPTHS:
            yield from _slots(snapshot, ready, proposer, depth)


def _best_ready(seat: Seat) -> Candidate | None:
    ready = [candidate for candidate in seat.candidates if candidate.is_ready and candidate.survival]
    return max(ready, key=lambda candidate: sum(candidate.survival), default=None)


def _slots(snapshot: Snapshot, ready: list[Candidate | None], proposer: str | None, depth: int) -> Iterator[_Slots]:
    """At most one: none where nobody has anything to draft, or the proposer nobody to draft for at this depth."""
    chosen = list(ready)
    num_drafting, catch_up = 0, 0.0
    for number, seat in enumerate(snapshot.seats):
        mine = next((c for c in seat.candidates if c.proposer == proposer and not c.is_ready), None)
        if mine is None or len(mine.survival) < depth:
            continue
        survival, other = mine.survival[:depth], chosen[number]
        if other is None or sum(survival) > sum(other.survival):
            chosen[number] = Candidate(mine.proposer, survival, False, mine.catch_up)
            num_drafting += 1
            catch_up += mine.catch_up / max(seat.horizon, 1)
    if proposer is not None and not num_drafting:
        return
    chances = np.array([chance for candidate in chosen if candidate for chance in candidate.survival])
    if not len(chances):
        return
    counts = [len(candidate.survival) if candidate else 0 for candidate in chosen]
    draft_s = 0.0
    if proposer is not None:
        cost = snapshot.draft_costs[proposer]
        draft_s = depth * float(cost(num_drafting)) + catch_up * cost.row_s
    seats = np.repeat(np.arange(len(chosen)), counts)
    depths = np.concatenate([np.arange(count) for count in counts])
    order = np.lexsort((seats, depths, -chances))
    contexts = np.repeat([seat.context_len for seat in snapshot.seats], counts)
    yield _Slots(chances[order], seats[order], contexts[order], tuple(chosen), draft_s)


def _is_fair(snapshot: Snapshot, slots: _Slots, extra_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which numbers of slots leave no seat behind: credit and what its own slots gain it pay for the time added."""
    plain_s = turn_s(snapshot)
    room_s = np.array([seat.credit_s for seat in snapshot.seats]) + SLACK_STEPS * plain_s
    if extra_s.max() <= room_s.min():
        return np.ones(len(extra_s), np.bool_)
    gains = np.zeros((len(room_s), len(extra_s)))
    gains[slots.seat, np.arange(len(extra_s))] = slots.survival * plain_s
    return np.asarray((np.cumsum(gains, axis=1) + room_s[:, None]).min(axis=0) >= extra_s)


def turn_s(snapshot: Snapshot) -> float:
    """Seconds that a token takes without drafts: a pass over one row of each sequence that goes on."""
    return float(snapshot.pass_cost(len(snapshot.seats) + snapshot.other_tokens, snapshot.sequence_context))


def _choices(snapshot: Snapshot, slots: _Slots, num_slots: int) -> dict[int, Choice]:
    counts = np.bincount(slots.seat[:num_slots], minlength=len(snapshot.seats))
    return {
        seat.context_id: Choice(candidate.proposer, int(count))
        for seat, candidate, count in zip(snapshot.seats, slots.chosen, counts, strict=True)
        if candidate is not None and count
    }
