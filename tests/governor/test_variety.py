"""Now and then the other shape, and no more often; nothing changes where there is no choice."""

from __future__ import annotations

from collections import Counter

from foredraft.governor.plan import Candidate, Choice, Plan
from foredraft.governor.variety import EVERY, Variety
from traces import snapshot

CHAIN = Candidate("draft_model", (0.5, 0.25), False)
TREE = Candidate("draft_model", (0.5, 0.2, 0.1), False, width=3, parents=(-1, -1, 0))
READY = Candidate("lookup", (0.5, 0.25), True)


def test_one_draft_in_so_many_has_the_other_shape() -> None:
    variety, case = Variety(), snapshot((CHAIN, TREE))
    for own, other in ((Choice("draft_model", 2), 3), (Choice("draft_model", 3, 3), 1)):
        plan = Plan({1: own}, 1.75, 1.0, 1.0)
        widths = Counter(variety.vary(case, plan).choices[1].width for _ in range(5 * EVERY))
        assert widths == {own.width: 5 * EVERY - 5, other: 5}


def test_the_plan_says_what_it_expects_of_it() -> None:
    variety, case, plan = Variety(), snapshot((CHAIN, TREE)), Plan({1: Choice("draft_model", 3, 3)}, 1.8, 1.0, 1.0)
    varied = next(each for each in (variety.vary(case, plan) for _ in range(EVERY)) if each is not plan)
    assert varied.choices == {1: Choice("draft_model", 2, 1)}  # no chain of so many tokens is on offer
    assert abs(varied.expected_tokens - 1.75) < 1e-9


def test_where_there_is_one_shape_nothing_changes() -> None:
    variety, case = Variety(), snapshot((READY, CHAIN))
    for choice in (Choice("lookup", 2), Choice("draft_model", 1)):
        plan = Plan({1: choice}, 1.5, 1.0, 1.0)
        assert all(variety.vary(case, plan) is plan for _ in range(3 * EVERY))
    assert variety.vary(case, Plan({}, 1.0, 1.0, 1.0)).choices == {}


def test_of_several_seats_one_changes_at_a_time() -> None:
    variety, case = Variety(), snapshot((CHAIN, TREE), (CHAIN, TREE), (CHAIN,))
    plan = Plan({number: Choice("draft_model", 2) for number in (1, 2, 3)}, 5.0, 1.0, 1.0)
    changed = [sum(each.width > 1 for each in variety.vary(case, plan).choices.values()) for _ in range(4 * EVERY)]
    assert set(changed) == {0, 1}
    assert sum(changed) >= 4
