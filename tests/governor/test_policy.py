"""How far to draft, against brute force: every depth of every seat, every way to get the drafts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, product
from math import prod
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.governor.plan import Candidate, Choice, PassCost, Seat, Snapshot
from foredraft.governor.policy import DEPTHS, KEEP_GAIN, SLACK_STEPS, START_GAIN, decide, empty_plan, turn_s

RICH = 1e9  # credit of a route that nothing can leave behind
READY, RUN = "lookup", "draft_model"


def snapshot(seats: tuple[Seat, ...], pass_cost: PassCost, **changes: object) -> Snapshot:
    """A step in which nothing but these sequences takes part, one row each."""
    made = Snapshot(
        step=0,
        seats=seats,
        credits_s={seat.route: 0.0 for seat in seats},
        num_rows=len(seats),
        sequence_context=sum(seat.context_len for seat in seats),
        row_context=sum(seat.context_len for seat in seats),
        other_tokens=0.0,
        has_prompt_rows=False,
        pass_cost=pass_cost,
        draft_costs={},
        overhead_s=0.0,
        rate=100.0,
        is_drafting=False,
    )
    return replace(made, **changes)


def seat(context_id: int, *candidates: Candidate, route: str = "a", context_len: int = 10, horizon: int = 50) -> Seat:
    return Seat(context_id, route, context_len, horizon, candidates)


def tokens_won(snapshot: Snapshot, choices: Mapping[int, Choice]) -> dict[int, float]:
    """Expected drafted tokens that are accepted, by context."""
    won = {}
    for seat in snapshot.seats:
        choice = choices.get(seat.context_id)
        if choice:
            candidate = choice.among(seat)
            assert candidate
            assert 1 <= choice.num_tokens <= len(candidate.survival)
            won[seat.context_id] = sum(candidate.survival[: choice.num_tokens])
    return won


def step_s(snapshot: Snapshot, choices: Mapping[int, Choice]) -> float:
    """What a step with these drafts takes in the mean: the pass, catching up, and a pass of each proposer for every
    depth that a draft gets to."""
    chosen = [
        (seat, choices[seat.context_id].among(seat), choices[seat.context_id].num_tokens)
        for seat in snapshot.seats
        if seat.context_id in choices
    ]
    lengths = [(seat, sum(reaches(candidate, count))) for seat, candidate, count in chosen]
    rows = snapshot.num_rows + sum(length for _, length in lengths)
    row_context = snapshot.row_context + sum(length * seat.context_len for seat, length in lengths)
    seconds = snapshot.pass_cost(rows, snapshot.sequence_context, row_context)
    for proposer, cost in snapshot.draft_costs.items():
        users = [(seat, candidate, count) for seat, candidate, count in chosen if candidate.proposer == proposer]
        seconds += sum(candidate.catch_up / seat.horizon * cost.row_s for seat, candidate, _ in users)
        rows = defaultdict(list)
        for _, candidate, count in users:
            for depth, chance in pass_rows(candidate, count):
                rows[depth].append(chance)
        seconds += sum(pass_s(cost, there) for there in rows.values())
    return seconds + (snapshot.overhead_s if chosen else 0.0)


def reaches(candidate: Candidate, count: int) -> tuple[float, ...]:
    """The chances that the first so many tokens are drafted."""
    return (candidate.reach or (1.0,) * len(candidate.survival))[:count]


def pass_rows(candidate: Candidate, count: int) -> Iterator[tuple[int, float]]:
    """The rows of its proposer's passes that a draft of so many tokens takes, one for each token that has children: the
    depth of those, and the chance that there is one of them. A single one where the draft is made at once."""
    if candidate.is_at_once:
        yield 0, reaches(candidate, count)[0]
        return
    parents = candidate.parents or range(-1, len(candidate.survival) - 1)
    for parent in sorted(set(parents[:count])):
        depth, node = 0, parent
        while node >= 0:
            depth, node = depth + 1, parents[node]
        yield depth, reaches(candidate, count)[parents.index(parent)]


def pass_s(cost: PassCost, chances: Sequence[float]) -> float:
    """Of a proposer's pass in which drafts take part with these chances: over all ways in which that may turn out."""
    ways = product((True, False), repeat=len(chances))
    return sum(
        prod(chance if takes_part else 1 - chance for chance, takes_part in zip(chances, way, strict=True))
        * cost(sum(way))
        for way in ways
        if any(way)
    )


def gain(snapshot: Snapshot, choices: Mapping[int, Choice]) -> float:
    """By what share these drafts beat the step without any; see the rule for passes that read prompts."""
    won, plain_s, seconds = sum(tokens_won(snapshot, choices).values()), step_s(snapshot, {}), step_s(snapshot, choices)
    plain = len(snapshot.seats) + snapshot.other_tokens
    if snapshot.has_prompt_rows:
        return (won - snapshot.rate * (seconds - plain_s)) / plain
    return (plain + won) / seconds / (plain / plain_s) - 1


def credits_after(snapshot: Snapshot, choices: Mapping[int, Choice]) -> dict[str, float]:
    """By how many plain steps each route would be ahead."""
    won, sizes = Counter[str](), Counter(seat.route for seat in snapshot.seats)
    for context_id, tokens in tokens_won(snapshot, choices).items():
        [route] = [seat.route for seat in snapshot.seats if seat.context_id == context_id]
        won[route] += tokens
    turn, added_s = turn_s(snapshot), step_s(snapshot, choices) - step_s(snapshot, {})
    return {r: (snapshot.credits_s[r] - added_s) / turn + won[r] / sizes[r] for r in sizes}


def all_choices(snapshot: Snapshot) -> Iterator[dict[int, Choice]]:
    """Every depth of every candidate of every seat."""
    options = [
        [None, *(Choice(c.proposer, size, c.width) for c in seat.candidates for size in range(1, len(c.survival) + 1))]
        for seat in snapshot.seats
    ]
    for chosen in product(*options):
        yield {seat.context_id: c for seat, c in zip(snapshot.seats, chosen, strict=True) if c}


def best_gain(snapshot: Snapshot) -> float:
    return max(gain(snapshot, choices) for choices in all_choices(snapshot))


seconds = st.floats(0.001, 0.02)
survivals = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=3).map(
    lambda alphas: tuple(accumulate(alphas, lambda a, b: a * b))
)


@st.composite
def pass_costs(draw: st.DrawFn) -> PassCost:
    """Rising, with flat stretches and steps anywhere."""
    rows = (1, 2, 3, 4, 6, 8, 12, 16)
    rises = [draw(seconds), *draw(st.lists(st.sampled_from([0.0, 0.0, 0.0005, 0.002, 0.01]), min_size=7, max_size=7))]
    return PassCost(rows, tuple(accumulate(rises)))


@st.composite
def trees(draw: st.DrawFn, catch_up: int) -> Candidate:
    """With survivals as they may be: none of a node above its parent's, nor above those before it."""
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(1, 4)))]
    survival = accumulate(draw(st.lists(st.floats(0.3, 1.0), min_size=len(parents), max_size=len(parents))), mul)
    return Candidate(RUN, tuple(survival), False, (), catch_up, width=3, parents=tuple(parents))


@st.composite
def snapshots(draw: st.DrawFn, is_simple: bool, num_routes: int = 1) -> Snapshot:
    """is_simple: a seat has one candidate, all of those that run a model as long, and reading up and one more sequence
    cost the draft model nothing. There, the best plan takes slots in order of survival."""
    length = draw(st.integers(1, 3))
    is_at_once = not is_simple and draw(st.booleans())
    made = []
    for context_id in range(draw(st.integers(1, 4))):
        candidates = []
        kinds = draw(st.sampled_from([(), (READY,), (RUN,)] if is_simple else [(), (READY,), (RUN,), (READY, RUN)]))
        for kind in kinds:
            survival = draw(survivals)
            if is_simple and kind == RUN:
                survival = (*survival, *survival[-1:] * 2)[:length]
            catch_up = 0 if is_simple or kind == READY else draw(st.sampled_from([0, 3, 400]))
            reach: tuple[float, ...] = ()
            if kind == RUN and not is_simple and draw(st.booleans()):  # drafts that end by themselves
                ends = draw(st.lists(st.floats(0.1, 1.0), min_size=len(survival), max_size=len(survival)))
                reach = tuple(accumulate(ends, lambda a, b: a * b))
                survival = tuple(s * r for s, r in zip(survival, reach, strict=True))
            candidates.append(Candidate(kind, survival, kind == READY, reach, catch_up))
            if kind == RUN and not is_simple and draw(st.booleans()):
                candidates.append(draw(trees(catch_up)))
        candidates = [replace(each, is_at_once=is_at_once and not each.is_ready) for each in candidates]
        route = f"route {draw(st.integers(0, num_routes - 1))}"
        context_len = 10 if is_simple else draw(st.integers(1, 500))
        made.append(seat(context_id, *candidates, route=route, context_len=context_len))
    cost, draft_s = draw(pass_costs()), draw(st.floats(0.0001, 0.01))
    if not is_simple:
        cost = replace(cost, sequence_token_s=1e-6, row_token_s=draw(st.sampled_from([0.0, 1e-6])))
    credit = st.just(RICH) if num_routes == 1 else st.sampled_from([-0.1, -0.01, 0.0, 0.01])
    result = snapshot(
        tuple(made),
        cost,
        draft_costs={RUN: PassCost((1, 2), (draft_s, draft_s * (1.0 if is_simple else 1.3)))},
        credits_s={one.route: draw(credit) for one in made},
        overhead_s=draw(st.sampled_from([0.0, 0.0002])),
        is_drafting=draw(st.booleans()),
    )
    if draw(st.booleans()):
        prompt_rows = draw(st.integers(1, 12))
        return replace(
            result, num_rows=result.num_rows + prompt_rows, has_prompt_rows=True, rate=draw(st.floats(20, 800))
        )
    if draw(st.booleans()):  # sequences with drafts of their own
        return replace(result, num_rows=result.num_rows + 4, other_tokens=2.5)
    return result


def least(snapshot: Snapshot) -> float:
    return KEEP_GAIN if snapshot.is_drafting else START_GAIN


@settings(max_examples=200, deadline=None)
@given(snapshots(is_simple=True))
def test_the_plan_is_the_best_of_all(case: Snapshot) -> None:
    plan, best = decide(case), best_gain(case)
    if best > least(case) + 1e-9:
        assert gain(case, plan.choices) == pytest.approx(best, abs=1e-9)
    elif best < least(case) - 1e-9:
        assert plan == empty_plan(case)


def by_the_rule(case: Snapshot) -> float:
    """The best gain over all depths of the draft model and all numbers of slots, taken by survival: the rule as it
    stands in the design, without shortcuts. A seat uses whichever candidate should win more, less what reading up takes
    of other tokens' time."""
    plain_rate = (len(case.seats) + case.other_tokens) / step_s(case, {})
    rate = case.rate if case.has_prompt_rows else plain_rate

    def worth(one: Seat, candidate: Candidate, cap: int) -> float:
        if candidate.is_ready:
            return sum(candidate.survival)
        behind_s = candidate.catch_up / one.horizon * case.draft_costs[candidate.proposer].row_s
        return sum(down_to(candidate, cap)) - behind_s * rate

    best = 0.0
    for cap, width in product((0, *DEPTHS), (1, 3)):
        options = []
        for at, one in enumerate(case.seats):
            widest = max((c.width for c in one.candidates if c.width <= width), default=1)
            able = [c for c in one.candidates if c.is_ready or c.width == widest]
            worths = [(worth(one, c, cap), c.is_ready, c.proposer, c.width, c) for c in able]
            most, _, proposer, own_width, candidate = max(worths, default=(0.0, False, "", 1, None))
            if most > 0:
                survival = candidate.survival if candidate.is_ready else down_to(candidate, cap)
                options += [(-s, place, at, (proposer, own_width)) for place, s in enumerate(survival)]
        for count in range(1, len(options) + 1):
            slots = sorted(options)[:count]
            names = {at: name for _, _, at, name in slots}
            sizes = Counter(at for _, _, at, _ in slots)
            choices = {
                case.seats[at].context_id: Choice(name, sizes[at], own_width) for at, (name, own_width) in names.items()
            }
            if leaves_nobody_behind(case, choices):
                best = max(best, gain(case, choices))
    return best


def down_to(candidate: Candidate, cap: int) -> tuple[float, ...]:
    """Survivals of the tokens before the first that is deeper than `cap`."""
    depths: list[int] = []
    for parent in candidate.parents or range(-1, len(candidate.survival) - 1):
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    return candidate.survival[: sum(accumulate((depth <= cap for depth in depths), min))]


def leaves_nobody_behind(case: Snapshot, choices: Mapping[int, Choice]) -> bool:
    floors = {route: min(-SLACK_STEPS, credit_s / turn_s(case)) for route, credit_s in case.credits_s.items()}
    return all(ahead >= floors[route] - 1e-9 for route, ahead in credits_after(case, choices).items())


@settings(max_examples=200, deadline=None)
@given(snapshots(is_simple=False) | snapshots(is_simple=True, num_routes=3))
def test_the_plan_is_at_least_that_of_the_rule(case: Snapshot) -> None:
    found, rule = gain(case, decide(case).choices), by_the_rule(case)
    assert found <= best_gain(case) + 1e-9
    if rule > least(case) + 1e-9:
        assert found >= rule - 1e-9


@settings(max_examples=150, deadline=None)
@given(snapshots(is_simple=False, num_routes=3))
def test_what_a_plan_says_of_itself_is_so(case: Snapshot) -> None:
    plan = decide(case)
    assert plan == decide(case)
    assert plan.plain_s == pytest.approx(step_s(case, {}))
    assert plan.step_s == pytest.approx(step_s(case, plan.choices))
    won = tokens_won(case, plan.choices)  # no more tokens than the candidate has
    assert plan.expected_tokens == pytest.approx(len(case.seats) + sum(won.values()))
    if plan.choices:
        assert gain(case, plan.choices) > least(case) - 1e-9


@settings(max_examples=150, deadline=None)
@given(snapshots(is_simple=False, num_routes=3))
def test_no_plan_leaves_a_route_behind(case: Snapshot) -> None:
    assert leaves_nobody_behind(case, decide(case).choices)


@settings(max_examples=100, deadline=None)
@given(snapshots(is_simple=True), st.floats(-1e3, -1.0))
def test_a_route_that_is_far_behind_may_still_gain(case: Snapshot, credit_s: float) -> None:
    """Where all seats are of one route, what the batch gains is what the route gains."""
    if not case.has_prompt_rows and not case.other_tokens:
        poor = replace(case, credits_s=dict.fromkeys(case.credits_s, credit_s))
        assert gain(poor, decide(poor).choices) == pytest.approx(gain(case, decide(case).choices))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.2, 1.0), st.floats(0.05, 1.0)), min_size=1, max_size=6), pass_costs(), seconds)
def test_a_draft_that_ends_early_costs_what_it_gets_to(
    chances: list[tuple[float, float]], cost: PassCost, draft_s: float
):
    """One seat, so that the best plan is a depth: rows and passes count as far as the draft is expected to reach."""
    reach = tuple(accumulate((1.0, *(r for _, r in chances[1:])), lambda a, b: a * b))
    survival = tuple(accumulate((alpha * r for alpha, r in chances), lambda a, b: a * b))
    candidate = Candidate(RUN, survival, is_ready=False, reach=reach)
    case = snapshot((seat(0, candidate),), cost, draft_costs={RUN: PassCost((1,), (draft_s / 10,))})
    gains = [0.0]
    for depth in (depth for depth in DEPTHS if depth <= len(survival)):
        num_drafted = sum(reach[:depth])
        rate = (1 + sum(survival[:depth])) / (cost(1 + num_drafted) + num_drafted * draft_s / 10)
        gains.append(rate * cost(1) - 1)
    plan = decide(case)
    if max(gains) > START_GAIN + 1e-9:
        assert plan.expected_tokens / plan.step_s * plan.plain_s - 1 >= max(gains) - 1e-9
    else:
        assert not plan.choices


# A 1.5B model on two cores.
MEASURED = PassCost((1, 2, 4, 8, 16), tuple(0.05 * ratio for ratio in (1.0, 1.02, 1.06, 1.37, 2.49)))


def powers(alpha: float, count: int = 8) -> tuple[float, ...]:
    return tuple(alpha ** (depth + 1) for depth in range(count))


def alike(num_seats: int, *candidates: Candidate, draft_s: float = 0.01) -> Snapshot:
    seats = tuple(seat(context_id, *candidates) for context_id in range(num_seats))
    return snapshot(seats, MEASURED, draft_costs={RUN: PassCost((1, 2), (draft_s, draft_s * 1.1))})


@pytest.mark.parametrize(
    ("num_seats", "alpha", "drafts"),
    [
        (1, 0.2, True),
        (1, 0.9, True),
        (2, 0.45, True),
        (8, 0.1, False),
        (8, 0.95, True),
        (16, 0.45, False),
        (64, 0.45, False),
    ],
)
def test_drafts_that_are_ready_on_a_measured_curve(num_seats: int, alpha: float, drafts: bool) -> None:
    assert bool(decide(alike(num_seats, Candidate(READY, powers(alpha), True))).choices) == drafts


@pytest.mark.parametrize(
    ("num_seats", "alpha", "drafts"),
    [(1, 0.2, False), (1, 0.8, True), (4, 0.8, True), (16, 0.8, False), (64, 0.95, False)],
)
def test_a_draft_model_on_a_measured_curve(num_seats: int, alpha: float, drafts: bool) -> None:
    assert bool(decide(alike(num_seats, Candidate(RUN, powers(alpha), False))).choices) == drafts


def test_better_drafts_go_further() -> None:
    depths = [
        decide(alike(1, Candidate(READY, powers(alpha), True))).num_draft_tokens for alpha in (0.01, 0.5, 0.8, 1.0)
    ]
    assert depths == sorted(depths)
    assert depths == [0, 3, 6, 8]  # the curve is flat up to 4 rows, and steep from 8 on


def test_seats_compete_by_survival() -> None:
    """The one with the better draft gets the rows before the curve turns up."""
    case = snapshot(
        (seat(0, Candidate(READY, powers(0.3), True)), seat(1, Candidate(READY, powers(0.95), True)), seat(2)),
        PassCost((1, 6, 7), (0.01, 0.0101, 0.02)),
    )
    assert decide(case).choices == {1: Choice(READY, 3)}


def test_a_seat_gets_the_better_of_its_drafts() -> None:
    ready, run = Candidate(READY, powers(0.2), True), Candidate(RUN, powers(0.95), False)
    assert decide(alike(1, ready, run, draft_s=0.001)).choices[0].proposer == RUN
    assert decide(alike(1, ready, run, draft_s=0.1)).choices[0].proposer == READY
    assert decide(alike(1, Candidate(READY, powers(0.99), True), run)).choices[0].proposer == READY


def test_reading_up_has_to_pay_and_keeps_only_its_own_seat_from_drafting() -> None:
    near, far = Candidate(RUN, powers(0.9), False), Candidate(RUN, powers(0.9), False, catch_up=20_000)
    assert decide(alike(1, near)).choices
    assert not decide(alike(1, far)).choices
    seats = (seat(0, near), seat(1, far))
    case = replace(alike(2, near), seats=seats)
    assert decide(case).choices.keys() == {0}
    case = replace(case, seats=(seats[0], replace(seats[1], horizon=10**6)))
    assert decide(case).choices.keys() == {0, 1}


def test_a_seat_with_little_room_drafts_along() -> None:
    case = alike(2, Candidate(RUN, powers(0.95), False), draft_s=0.001)
    short = replace(case.seats[1], candidates=(Candidate(RUN, powers(0.95, 1), False),))
    plan = decide(replace(case, seats=(case.seats[0], short)))
    assert plan.choices[0].num_tokens > plan.choices[1].num_tokens == 1


def test_a_draft_that_ends_where_it_would_be_refused_costs_less() -> None:
    """Both win as many tokens, but one of them stops in time."""
    survival, reach = powers(0.5), tuple(min(1.0, 1.2 * s) for s in powers(0.5))
    whole, ends = Candidate(RUN, survival, False), Candidate(RUN, survival, False, reach)
    always = Candidate(RUN, survival, False, (1.0,) * len(survival))
    case = alike(1, ends, draft_s=0.015)
    assert decide(case).num_draft_tokens > decide(alike(1, whole, draft_s=0.015)).num_draft_tokens
    assert decide(alike(3, always, draft_s=0.004)) == decide(alike(3, whole, draft_s=0.004))


def test_a_row_that_is_rarely_there_rarely_costs() -> None:
    """Half of the drafts end after one token; nearly all that go on are right to, however dear a row is."""
    ends = Candidate(RUN, (0.9, 0.45, 0.3), False, (1.0, 0.46, 0.31))
    steep, cheap = PassCost((1, 2), (0.010, 0.015)), PassCost((1, 2), (0.0005, 0.0005))
    case = snapshot((seat(0, ends),), steep, draft_costs={RUN: cheap})
    assert decide(case).choices == {0: Choice(RUN, 3)}
    assert gain(case, decide(case).choices) == pytest.approx(best_gain(case))


def test_whoever_is_not_drafted_for_does_not_pay_for_others() -> None:
    """Each step costs the other route time. It lets that happen for some steps, then no more; credit pays for more."""
    good = Candidate(READY, powers(0.95, 6), True)
    curve = PassCost((1, 2, 8), (0.01, 0.0105, 0.0165))
    case = snapshot((seat(0, good, route="a"), seat(1, route="b")), curve)
    plan = decide(case)
    assert plan.choices
    added = plan.step_s - plan.plain_s
    behind = dict(case.credits_s, b=-SLACK_STEPS * turn_s(case))
    assert not decide(replace(case, credits_s=behind)).choices
    assert decide(replace(case, credits_s=dict(behind, b=behind["b"] + added * 1.001))).choices == plan.choices
    fewer = decide(replace(case, credits_s=dict(behind, b=behind["b"] + added * 0.6))).num_draft_tokens
    assert 0 < fewer < plan.num_draft_tokens


def test_drafting_is_started_for_more_than_it_is_kept_for() -> None:
    """A gain between the two margins."""
    case = snapshot((seat(0, Candidate(READY, (0.5,), True)),), PassCost((1, 2), (0.01, 0.015 / 1.025)))
    assert KEEP_GAIN < best_gain(case) < START_GAIN
    assert not decide(case).choices
    assert decide(replace(case, is_drafting=True)).choices


def test_rows_are_not_cheap_because_prompts_are_read() -> None:
    """The pass takes long anyway, but the drafted rows add to it what they always add."""
    curve = PassCost((1, 1000), (0.01, 10.0))  # each row as dear as a pass
    case = snapshot(
        (seat(0, Candidate(READY, (0.6, 0.36), True)),), curve, num_rows=500, has_prompt_rows=True, rate=100.0
    )
    assert not decide(case).choices
    assert decide(replace(case, rate=30.0)).choices  # where time is worth less, they pay


def test_nobody_to_draft_for() -> None:
    assert decide(snapshot((seat(0), seat(1)), MEASURED)).choices == {}


# With one guess for a place right at 0.6 and the next at 0.2, in falling order of what the paths make of that.
UNSURE_CHAIN = Candidate(RUN, powers(0.6), False)
UNSURE_TREE = Candidate(
    RUN, (0.6, 0.36, 0.216, 0.2, 0.13, 0.12, 0.12, 0.078), False, (), 0, width=3, parents=(-1, 0, 1, -1, 2, 3, 0, 4)
)


def choice_of(num_seats: int, *candidates: Candidate, draft_s: float = 0.002) -> Choice | None:
    return decide(alike(num_seats, *candidates, draft_s=draft_s)).choices.get(0)


def test_a_tree_where_rows_are_cheap_and_a_chain_where_they_are_not() -> None:
    """On a pass that has room for rows a tree's further guesses cost next to nothing; with 16 sequences each costs."""
    alone, crowded = (choice_of(count, UNSURE_CHAIN, UNSURE_TREE) for count in (1, 16))
    assert alone
    assert alone.width == 3
    assert alone.num_tokens >= 4
    assert crowded is None or (crowded.width, crowded.num_tokens) in [(1, 1), (3, 1)]


def test_a_sure_drafter_makes_chains() -> None:
    sure = Candidate(RUN, powers(0.95), False)
    tree = Candidate(RUN, (0.95, 0.9, 0.86, 0.81, 0.77, 0.03, 0.03), False, width=3, parents=(-1, 0, 1, 2, 3, -1, 0))
    choice = choice_of(1, sure, tree)
    assert choice
    assert choice.width == 1
    assert choice.num_tokens >= 6


def test_a_tree_saves_passes_of_a_dear_drafter() -> None:
    """Two guesses for the next token need one pass, a second token another."""
    chain = Candidate(RUN, (0.6, 0.36), False)
    flat = Candidate(RUN, (0.6, 0.25, 0.1), False, width=3, parents=(-1, -1, -1))
    choice = choice_of(1, chain, flat, draft_s=0.012)
    assert choice == Choice(RUN, 3, 3)
