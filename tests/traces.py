"""Snapshots, plans and records for tests of traces: random ones, and a few whose figures can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from foredraft.core import Draft
from foredraft.governor.plan import Candidate, Choice, PassCost, Plan, Seat, Snapshot
from foredraft.governor.trace import TraceWriter
from foredraft.governor.trace_format import Between, TraceStep
from foredraft.governor.trials import Trial, trials
from foredraft.steps import NO_DRAFT_REASONS, PHASES, DraftOutcome, StepRecord

COST = PassCost((1, 2, 4), (1.0, 1.25, 2.0))  # a second for a row, half a second for each from the fourth on
DRAFT_COST = PassCost((1,), (0.125,))
PROPOSERS = ("lookup", "draft_model")


def snapshot(*candidates: tuple[Candidate, ...], step: int = 0, other_tokens: float = 0.0) -> Snapshot:
    """Of a seat for each tuple of candidates; contexts are numbered from 1 and 100 tokens long."""
    seats = tuple(Seat(number, "chat", 100, 50, each) for number, each in enumerate(candidates, 1))
    return Snapshot(
        step=step,
        seats=seats,
        credits_s={"chat": 0.0},
        num_rows=len(seats),
        sequence_context=100 * len(seats),
        row_context=100 * len(seats),
        other_tokens=other_tokens,
        has_prompt_rows=False,
        pass_cost=COST,
        draft_costs={"draft_model": DRAFT_COST},
        overhead_s=0.0,
        rate=1.0,
        is_drafting=False,
    )


def plan(k: int = 0, proposer: str = "lookup") -> Plan:
    """Context 1 drafts so many tokens."""
    return Plan({1: Choice(proposer, k)} if k else {}, 1.0, 1.0, 1.0)


def record(*drafts: DraftOutcome, num_tokens: dict[int, int], seconds: float = 1.0) -> StepRecord:
    """A step that took so long, all of it the pass."""
    undrafted = dict.fromkeys(num_tokens.keys() - {draft.context_id for draft in drafts}, "not_worth_it")
    return StepRecord(
        step=0,
        num_sequences=len(num_tokens),
        num_prompt_rows=0,
        num_decode_rows=len(num_tokens),
        num_draft_rows=sum(draft.num_tokens for draft in drafts),
        drafts=drafts,
        undrafted=undrafted,
        num_tokens=num_tokens,
        routes=dict.fromkeys(num_tokens, "chat"),
        phase_seconds={**dict.fromkeys(PHASES, 0.0), "forward": seconds},
    )


def outcome(num_tokens: int, num_accepted: int, is_rejected: bool, proposer: str = "lookup") -> DraftOutcome:
    return DraftOutcome(1, proposer, num_tokens, tuple(range(num_accepted)), is_rejected)


def tried(grades: Sequence[int], num_accepted: int, is_rejected: bool) -> list[Trial]:
    """What a chain tells of whose tokens the first so many were accepted; no grades: none are known."""
    num_tokens = len(grades) or num_accepted + is_rejected
    return list(trials(Draft.chain("p", [0] * num_tokens, grades=grades), range(num_accepted), is_rejected))


def write(path, steps, **options) -> None:
    """A trace of these steps; those between them are left out."""
    with TraceWriter(path, {"provenance": {"foredraft": "test"}}, **options) as writer:
        for step in steps:
            writer.plan(step.snapshot, step.plan)
            if step.record:
                writer.step(step.record)


# Fractions that six digits can tell, so that what is read is what was written.
fractions = st.integers(0, 999_999).map(lambda n: n / 1e6)
numbers = st.integers(-999_999, 999_999).map(lambda n: n / 1e3)
names = st.sampled_from(("default", "chat", 'naïve \n "route"'))


@st.composite
def costs(draw) -> PassCost:
    rows = tuple(sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=4))))
    seconds = tuple(draw(fractions) for _ in rows)
    return PassCost(rows, seconds, draw(fractions), draw(fractions))


@st.composite
def trees(draw) -> Candidate:
    parents = [draw(st.integers(-1, place - 1)) for place in range(draw(st.integers(1, 6)))]
    chances = draw(st.lists(fractions, min_size=len(parents), max_size=len(parents)))
    survival = tuple(sorted(chances, reverse=True))
    return Candidate(PROPOSERS[1], survival, False, survival, 3, width=3, parents=tuple(parents))


@st.composite
def snapshots(draw) -> Snapshot:
    survivals = st.lists(fractions, max_size=6).map(lambda chances: tuple(sorted(chances, reverse=True)))
    offers = [
        st.builds(Candidate, st.just(name), survivals, st.booleans(), survivals | st.just(()), st.integers(0, 99))
        for name in PROPOSERS
    ]
    candidates = st.tuples(*offers, trees()) | st.tuples(offers[0]) | st.just(())
    ids = draw(st.lists(st.integers(0, 10_000), unique=True, max_size=4))
    seats = tuple(
        Seat(number, draw(names), draw(st.integers(1, 9999)), draw(st.integers(1, 999)), draw(candidates))
        for number in ids
    )
    return Snapshot(
        step=draw(st.integers(0, 10_000)),
        seats=seats,
        credits_s={seat.route: draw(numbers) for seat in seats},
        num_rows=draw(st.integers(1, 600)),
        sequence_context=draw(st.integers(0, 99_999)),
        row_context=draw(st.integers(0, 99_999)),
        other_tokens=draw(fractions),
        has_prompt_rows=draw(st.booleans()),
        pass_cost=draw(costs()),
        draft_costs={name: draw(costs()) for name in PROPOSERS},
        overhead_s=draw(fractions),
        rate=draw(fractions),
        is_drafting=draw(st.booleans()),
    )


@st.composite
def steps(draw) -> TraceStep:
    situation = draw(snapshots())
    choices, drafts, undrafted = {}, [], {}
    for seat in situation.seats:
        offers = [each for each in seat.candidates if each.survival]
        if offers and draw(st.booleans()):
            offer = draw(st.sampled_from(offers))
            k = draw(st.integers(1, len(offer.survival)))
            choices[seat.context_id] = Choice(offer.proposer, k, offer.width)
            path = tuple(sorted(draw(st.sets(st.integers(0, k - 1)))))
            drafts.append(DraftOutcome(seat.context_id, offer.proposer, k, path, len(path) < k))
        else:
            undrafted[seat.context_id] = draw(st.sampled_from(sorted(NO_DRAFT_REASONS)))
    num_tokens = {seat.context_id: 1 for seat in situation.seats}
    num_tokens |= {draft.context_id: draft.num_accepted + 1 for draft in drafts}
    done = StepRecord(
        step=draw(st.integers(0, 10_000)),
        num_sequences=len(num_tokens),
        num_prompt_rows=draw(st.integers(0, 512)),
        num_decode_rows=len(num_tokens),
        num_draft_rows=sum(draft.num_tokens for draft in drafts),
        drafts=tuple(drafts),
        undrafted=undrafted,
        num_tokens=num_tokens,
        routes={seat.context_id: seat.route for seat in situation.seats},
        phase_seconds={phase: draw(fractions) for phase in PHASES},
    )
    decided = Plan(choices, draw(fractions), draw(fractions), draw(fractions))
    before = draw(st.builds(Between, st.integers(0, 99), st.integers(0, 99), fractions))
    return TraceStep(situation, decided, draw(st.sampled_from((done, None))), before)
