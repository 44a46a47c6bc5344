"""How far to draft: the plan that gets most tokens per second out of the whole batch. Pure; no clock, no randomness.

Slots, one for each drafted token of each seat, compete for rows. A slot is worth the chance that its token and all
before it are accepted, in the order of which a tree's tokens come too. So any number of slots from the front makes a
plan, and ALL of them are compared, the empty one included: the cost of a pass has steps, and a draft model's passes are
shared by the seats that use it, so that the first slot that lowers the result need not be the last.

No kind of traffic pays for another: a route's credit is the time by which its sequences are ahead of where they would
be without drafts, in the mean, and no plan may take a route further behind than SLACK_STEPS plain steps. One that is
further behind already, because less came than was expected or steps have become shorter, may only not lose more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from foredraft.governor.plan import Candidate, Choice, Plan, Seat, Snapshot

# What drafting has to promise to be started, and to be gone on with: estimates are never exact, and whoever picks the
# best of many picks some luck with it.
START_GAIN, KEEP_GAIN = 0.05, 0.02
SLACK_STEPS = 4.0
ROW_PRICES = (0.0, 0.15, 0.3, 0.5)  # of a row in tokens, at which drafts that are there are compared
DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # of a proposer that runs a model


@dataclass(frozen=True)
class _Way:
    """A way to draft: the candidate of each seat, if any.

    catch_up_s: of the seats, by index, whose proposer has to run, a step's share of the seconds for reading up.
    pass_s: seconds of that proposer's pass, by its number of rows.
    """

    chosen: Sequence[Candidate | None]
    catch_up_s: Mapping[int, float]
    pass_s: Sequence[float] = ()

    @cached_property
    def least_reach(self) -> float:
        return min((reach for reaches in self.reaches for reach in reaches), default=1.0)

    @cached_property
    def reaches(self) -> list[tuple[float, ...]]:
        """Of each seat's candidate; empty for always."""
        return [candidate.reach if candidate else () for candidate in self.chosen]

    @cached_property
    def depths(self) -> list[Sequence[int]]:
        """Of each seat's candidate; see there."""
        return [candidate.depths if candidate else () for candidate in self.chosen]

    @cached_property
    def rows(self) -> list[Sequence[int]]:
        """Of each seat's candidate; see there."""
        return [candidate.rows if candidate else () for candidate in self.chosen]


def decide(snapshot: Snapshot) -> Plan:
    """The best plan, or the empty one where no other is clearly better."""
    best = empty_plan(snapshot)
    best_gain = KEEP_GAIN if snapshot.is_drafting else START_GAIN
    for way in _ways(snapshot, best.plain_s):
        gain, plan = _best_prefix(snapshot, way, best.plain_s, best_gain)
        if plan:
            best, best_gain = plan, gain
    return best


def _best_prefix(snapshot: Snapshot, way: _Way, plain_s: float, least_gain: float) -> tuple[float, Plan | None]:
    """The number of slots that gains most, if it gains more than `least_gain`, and that leaves no route behind."""
    seats, cost, turn = snapshot.seats, snapshot.pass_cost, turn_s(snapshot)
    num_seats = Counter(seat.route for seat in seats)
    room_s = {route: max(credit_s + SLACK_STEPS * turn, 0.0) for route, credit_s in snapshot.credits_s.items()}
    rows, row_context, won, draft_s = float(snapshot.num_rows), float(snapshot.row_context), 0.0, 0.0
    num_running = [0] * DEPTHS[-1]  # rows of the proposer's pass, by depth
    idle = [1.0] * DEPTHS[-1]  # the chance that there is no such pass
    best_gain, best_count, best_won, best_s = least_gain, 0, 0.0, plain_s
    slots = _slots(snapshot, way)
    least_row_s, plain_tokens = way.least_reach * cost.least_row_s(rows), len(seats) + snapshot.other_tokens
    rate = _rate(snapshot, plain_s)
    for count, (negative_survival, place, at) in enumerate(slots, 1):
        if -negative_survival < least_row_s * rate:
            break  # neither this slot nor a later one, which are worth no more, brings tokens faster than `rate`
        reach = way.reaches[at][place] if way.reaches[at] else 1.0
        rows += reach
        row_context += reach * seats[at].context_len
        won -= negative_survival
        room_s[seats[at].route] -= negative_survival * turn / num_seats[seats[at].route]
        if at in way.catch_up_s and way.rows[at][place]:
            depth = way.depths[at][place]
            num_others, alone = num_running[depth], reach * idle[depth]
            draft_s += alone * way.pass_s[1] + (reach - alone) * (way.pass_s[num_others + 1] - way.pass_s[num_others])
            draft_s += 0.0 if depth else way.catch_up_s[at]
            num_running[depth] += 1
            idle[depth] -= alone
        step_s = cost(rows, snapshot.sequence_context, row_context) + draft_s + snapshot.overhead_s
        gain = _gain(snapshot, won, step_s, plain_s)
        if gain > best_gain and step_s - plain_s <= min(room_s.values()):
            best_gain, best_count, best_won, best_s = gain, count, won, step_s
            rate = rate if snapshot.has_prompt_rows else (plain_tokens + won) / step_s
    if not best_count:
        return least_gain, None
    sizes = Counter(at for _, _, at in slots[:best_count])
    choices = {
        seats[at].context_id: Choice(candidate.proposer, sizes[at], candidate.width)
        for at, candidate in enumerate(way.chosen)
        if candidate and sizes[at]
    }
    return best_gain, Plan(choices, len(seats) + best_won, best_s, plain_s)


def _slots(snapshot: Snapshot, way: _Way) -> list[tuple[float, int, int]]:
    """(minus survival, place in the draft, seat), in order: falling survival, then rising place."""
    return sorted(
        (-survival, place, at)
        for at, candidate in enumerate(way.chosen)
        if candidate
        for place, survival in enumerate(candidate.survival)
    )


def _gain(snapshot: Snapshot, won: float, step_s: float, plain_s: float) -> float:
    """By what share a step that wins so many tokens beats the one without drafts: in tokens per second of the step.

    A pass that reads prompts too takes so long anyway that any draft would look cheap. There, the tokens that are won
    count against those that would otherwise come in the time that is added.
    """
    plain_tokens = len(snapshot.seats) + snapshot.other_tokens
    if snapshot.has_prompt_rows:
        return (won - snapshot.rate * (step_s - plain_s)) / plain_tokens
    return (1 + won / plain_tokens) * plain_s / step_s - 1


def _rate(snapshot: Snapshot, plain_s: float) -> float:
    """Tokens per second that a draft has to beat; see `_gain`."""
    if snapshot.has_prompt_rows:
        return snapshot.rate
    return (len(snapshot.seats) + snapshot.other_tokens) / plain_s


def empty_plan(snapshot: Snapshot) -> Plan:
    """No drafts."""
    plain_s = snapshot.pass_cost(snapshot.num_rows, snapshot.sequence_context, snapshot.row_context)
    return Plan({}, float(len(snapshot.seats)), plain_s, plain_s)


def turn_s(snapshot: Snapshot) -> float:
    """Seconds that a token takes without drafts: a pass over one row of each sequence that goes on."""
    return snapshot.pass_cost(len(snapshot.seats) + snapshot.other_tokens, snapshot.sequence_context)


def worth_of_row(snapshot: Snapshot, plan: Plan) -> float:
    """Tokens that come in the time of one more row of the target's pass anyway, under a plan: what a row has to win."""
    rate = (plan.expected_tokens + snapshot.other_tokens) / plan.step_s
    return rate * snapshot.pass_cost.least_row_s(snapshot.num_rows)


def worth_going_on(snapshot: Snapshot, plan: Plan, proposer: str, survival: Mapping[int, Sequence[float]]) -> set[int]:
    """Which of the drafts that are being made under a plan are worth another token: those whose next tokens together
    exceed most what comes in the time of a further pass anyway (none where a draft is made at once).

    survival: by draft, for each of its rows in that pass, the chance that the next token and all before it are
    accepted.
    """
    cost, row_s = snapshot.draft_costs[proposer], snapshot.pass_cost.least_row_s(snapshot.num_rows)
    offers = (each for seat in snapshot.seats for each in seat.candidates if each.proposer == proposer)
    is_at_once = any(each.is_at_once for each in offers)
    rate = (plan.expected_tokens + snapshot.other_tokens) / plan.step_s
    best_first = sorted(survival, key=lambda draft: -sum(survival[draft]) / len(survival[draft]))
    gained = accumulate(sum(survival[draft]) for draft in best_first)
    rows = accumulate(len(survival[draft]) for draft in best_first)
    costs_s = (n * row_s + (0.0 if is_at_once else cost(n)) for n in rows)
    values = [0.0, *(won - rate * cost_s for won, cost_s in zip(gained, costs_s, strict=True))]
    return set(best_first[: values.index(max(values))])


def _ways(snapshot: Snapshot, plain_s: float) -> Iterator[_Way]:
    """Drafts that are ready alone, and with each depth of each proposer that has to run, in chains and in trees."""
    for ready in _ready(snapshot.seats):
        yield from _ways_with(snapshot, plain_s, ready)


def _ready(seats: Sequence[Seat]) -> list[list[Candidate | None]]:
    """Which of its drafts that are there each seat may take: the one whose tokens are worth most, at each price of a
    row, since a long draft may win more tokens than a surer one, but not where only the first of them are worth it."""
    found: list[list[Candidate | None]] = []
    for price in ROW_PRICES:
        best = [_best_ready(seat, price) for seat in seats]
        if best not in found:
            found.append(best)
    return found


def _ways_with(snapshot: Snapshot, plain_s: float, ready: list[Candidate | None]) -> Iterator[_Way]:
    seats, rate = snapshot.seats, _rate(snapshot, plain_s)
    if any(ready):
        yield _Way(ready, {})
    for proposer, cost in snapshot.draft_costs.items():
        own = [(at, each) for at, seat in enumerate(seats) for each in seat.candidates if each.proposer == proposer]
        for width in sorted({each.width for _, each in own}):
            # The widest of each seat, up to this width: where only some may have trees, the others have chains.
            runs = dict(sorted(((at, each) for at, each in own if each.width <= width), key=lambda one: one[1].width))
            pass_s = [0.0, *(cost(num_rows) for num_rows in range(1, len(runs) * width + 1))]
            longest = max((max(run.depths, default=-1) + 1 for run in runs.values()), default=0)
            depths = [depth for depth in DEPTHS if depth <= longest]
            for depth in depths[-1:] if any(run.is_at_once for run in runs.values()) else depths:
                chosen, catch_up_s = list(ready), {}
                for at, whole in runs.items():
                    run, other = whole.down_to(depth), ready[at]
                    own_s = run.catch_up / seats[at].horizon * cost.row_s
                    # A seat that would have to read more than its tokens are worth does not keep others from drafting.
                    if sum(run.survival) - own_s * rate > (sum(other.survival) if other else 0.0):
                        chosen[at], catch_up_s[at] = run, own_s
                if catch_up_s:
                    yield _Way(chosen, catch_up_s, pass_s)


def _best_ready(seat: Seat, price: float) -> Candidate | None:
    """The draft that is there whose tokens are worth most beyond their rows, in tokens. price: of a row."""
    ready = [candidate for candidate in seat.candidates if candidate.is_ready and candidate.survival]
    if len(ready) < 2:
        return ready[0] if ready else None
    return max(ready, key=lambda candidate: sum(max(chance - price, 0.0) for chance in candidate.survival))
