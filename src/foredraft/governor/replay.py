"""Deciding again: what a policy would have drafted in the steps of a trace, and what that should have brought. Pure.

Each decision is taken in the situation that was recorded: a policy never sees where its own drafts would have led.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from foredraft.errors import ConfigError
from foredraft.governor.plan import Candidate, Choice, Plan, Seat, Snapshot
from foredraft.governor.policy import decide
from foredraft.governor.trace_format import TraceStep

Policy = Callable[[Snapshot], Plan]

POLICIES = "recorded, off, auto, and fixed:K with K from 1 to 64"
MAX_FIXED = 64


@dataclass(frozen=True)
class Replay:
    """What a policy did with a trace.

    num_decisions: seats that it decided for; num_different: those where it chose otherwise than was recorded. k_counts:
    how many decisions drafted so many tokens. num_switches: steps at which it began to draft, or stopped;
    seconds_between: the time of the steps without a decision, which these spread over too.

    expected_tokens, expected_seconds: of all these steps, by the recorded survivals and costs. Of some decisions the
    outcome is known, because the same draft or a longer one was tried, or none is asked for: num_exact. `tokens` counts
    those as they were, and the others as expected.
    """

    num_steps: int
    num_decisions: int
    num_different: int
    k_counts: Mapping[int, int]
    num_switches: int
    seconds_between: float
    expected_tokens: float
    expected_seconds: float
    num_exact: int
    tokens: float

    @property
    def expected_tokens_per_s(self) -> float:
        return _ratio(self.expected_tokens, self.expected_seconds)

    @property
    def tokens_per_s(self) -> float:
        """With the outcomes that are known; the seconds are expected ones here too."""
        return _ratio(self.tokens, self.expected_seconds)

    @property
    def exact_share(self) -> float:
        return _ratio(self.num_exact, self.num_decisions)

    @property
    def mean_k(self) -> float:
        return _ratio(sum(k * count for k, count in self.k_counts.items()), self.num_decisions)

    @property
    def switches_per_minute(self) -> float:
        return _ratio(self.num_switches, (self.expected_seconds + self.seconds_between) / 60)


def replay(steps: Iterable[TraceStep], policy: Policy | None) -> Replay:
    """What a policy, or (None) the recorded plans, would have done."""
    player = Replayer(policy)
    for step in steps:
        player.add(step)
    return player.result()


class Replayer:
    """Runs a policy (None: the recorded plans) over steps that come one by one, in the order of the trace."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy
        self._was_drafting: bool | None = None
        self._k_counts: Counter[int] = Counter()
        self._num_steps = self._num_different = self._num_switches = self._num_exact = 0
        self._expected_tokens = self._expected_seconds = self._seconds_between = self._tokens = 0.0

    def add(self, step: TraceStep) -> None:
        choices = self._decide(step).choices
        self._num_steps += 1
        self._expected_seconds += expected_seconds(step.snapshot, choices)
        self._seconds_between += step.before.seconds
        self._expected_tokens += step.snapshot.other_tokens
        self._tokens += _tokens_of_others(step)
        for seat in step.snapshot.seats:
            self._add_seat(step, seat, choices.get(seat.context_id))

    def _decide(self, step: TraceStep) -> Plan:
        plan = self._policy(step.snapshot) if self._policy else step.plan
        is_drafting = bool(plan.choices)
        self._num_switches += self._was_drafting is not None and is_drafting != self._was_drafting
        self._was_drafting = is_drafting
        return plan

    def _add_seat(self, step: TraceStep, seat: Seat, choice: Choice | None) -> None:
        expected = expected_tokens(seat, choice)
        exact = exact_tokens(step, seat, choice)
        self._k_counts[choice.num_tokens if choice else 0] += 1
        self._num_different += choice != step.plan.choices.get(seat.context_id)
        self._num_exact += exact is not None
        self._expected_tokens += expected
        self._tokens += expected if exact is None else exact

    def result(self) -> Replay:
        return Replay(
            num_steps=self._num_steps,
            num_decisions=self._k_counts.total(),
            num_different=self._num_different,
            k_counts=dict(sorted(self._k_counts.items())),
            num_switches=self._num_switches,
            seconds_between=self._seconds_between,
            expected_tokens=self._expected_tokens,
            expected_seconds=self._expected_seconds,
            num_exact=self._num_exact,
            tokens=self._tokens,
        )


def expected_tokens(seat: Seat, choice: Choice | None) -> float:
    """Of a seat with this draft: the target's own token, and each drafted one with its chance."""
    return 1.0 + (sum(_offer(seat, choice).survival[: choice.num_tokens]) if choice else 0.0)


def expected_seconds(snapshot: Snapshot, choices: Mapping[int, Choice]) -> float:
    """What a step with these drafts should take: the pass with their rows, and the proposers that have to run.

    A proposer runs a pass for each depth, over the seats that it drafts so far for, with a row for each token that gets
    children; its costs are learned without regard to contexts. What it has to read up first is spread over the seat's
    horizon, as policies do it.
    """
    chosen = [(seat, choices[seat.context_id]) for seat in snapshot.seats if seat.context_id in choices]
    rows = snapshot.num_rows + sum(choice.num_tokens for _, choice in chosen)
    row_context = snapshot.row_context + sum(choice.num_tokens * seat.context_len for seat, choice in chosen)
    seconds = snapshot.pass_cost(rows, snapshot.sequence_context, row_context)
    for proposer, cost in snapshot.draft_costs.items():
        mine = [(s, c) for s, c in chosen if c.proposer == proposer and not _offer(s, c).is_ready]
        if not mine:
            continue
        num_rows = Counter[int]()  # of its passes, by depth
        for seat, choice in mine:
            offer = _offer(seat, choice)
            for depth, rows in zip(offer.depths[: choice.num_tokens], offer.rows, strict=False):
                num_rows[depth] += rows
        passes_s = sum(cost(count) for count in num_rows.values() if count)
        catch_up = sum(_offer(seat, choice).catch_up / max(seat.horizon, 1) for seat, choice in mine)
        seconds += passes_s + catch_up * cost.row_s
    return seconds + (snapshot.overhead_s if chosen else 0.0)


def exact_tokens(step: TraceStep, seat: Seat, choice: Choice | None) -> int | None:
    """The tokens that a seat would have got with this choice, where the record tells; else None.

    It tells where there is no draft, and where the same proposer was asked for as many tokens or more, in a tree of the
    same width: a smaller draft is the beginning of a larger one. (That holds under rules that accept token by token.)
    """
    record, tried = step.record, step.plan.choices.get(seat.context_id)
    if record is None or seat.context_id not in record.num_tokens:
        return None
    if choice is None:
        return 1
    if tried is None or (tried.proposer, tried.width) != (choice.proposer, choice.width):
        return None
    accepted = {draft.proposer: draft.path for draft in record.drafts if draft.context_id == seat.context_id}
    if tried.num_tokens < choice.num_tokens or accepted.keys() - {choice.proposer}:
        return None
    path = accepted.get(choice.proposer, ())  # it may have had nothing to offer
    num_accepted = sum(place < choice.num_tokens for place in path)
    return min(num_accepted + 1, record.num_tokens[seat.context_id])


def policy_named(name: str) -> Policy | None:
    """A policy by name; None is that of the recorded plans.

    Raises:
        ConfigError: there is none of this name.
    """
    kind, _, number = name.partition(":")
    if name == "recorded":
        return None
    if name == "off":
        return lambda snapshot: _plan(snapshot, {})
    if name == "auto":
        return decide
    if kind == "fixed" and number.isdecimal() and 1 <= int(number) <= MAX_FIXED:
        return lambda snapshot: _fixed(snapshot, int(number))
    raise ConfigError(f"unknown policy {name!r}; known are {POLICIES}")


def _fixed(snapshot: Snapshot, k: int) -> Plan:
    """So many tokens for every seat, by its first candidate that is ready, or else its first."""
    choices = {}
    for seat in snapshot.seats:
        offers = sorted((each for each in seat.candidates if each.survival), key=lambda each: not each.is_ready)
        if offers:
            offer = offers[0]
            choices[seat.context_id] = Choice(offer.proposer, min(k, len(offer.survival)), offer.width)
    return _plan(snapshot, choices)


def _plan(snapshot: Snapshot, choices: Mapping[int, Choice]) -> Plan:
    tokens = sum(expected_tokens(seat, choices.get(seat.context_id)) for seat in snapshot.seats)
    return Plan(choices, tokens, expected_seconds(snapshot, choices), expected_seconds(snapshot, {}))


def _offer(seat: Seat, choice: Choice) -> Candidate:
    offer = choice.among(seat)
    assert offer is not None
    return offer


def _tokens_of_others(step: TraceStep) -> float:
    """Of the sequences that the governor did not decide for: as they were, where that is known."""
    if step.record is None:
        return step.snapshot.other_tokens
    seats = {seat.context_id for seat in step.snapshot.seats}
    return sum(count for context_id, count in step.record.num_tokens.items() if context_id not in seats)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0
