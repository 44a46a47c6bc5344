"""How far drafts get that end by themselves: planted frequencies are found, and only by drafts that could get there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.governor.reach import STRENGTH, Reach

SURVIVAL = (0.8, 0.6, 0.4, 0.2)


def test_before_any_draft_all_get_to_the_end() -> None:
    assert Reach().estimate("a", "p", 1, SURVIVAL) == (SURVIVAL, (1.0,) * 4)
    assert Reach().estimate("a", "p", 1, ()) == ((), ())


def test_planted_frequencies_are_found() -> None:
    """The mean over many moments shows the error of the method."""
    goes_on, alpha, rng, reach = (1.0, 0.75, 0.5, 0.5), 0.9, random.Random(0), Reach()
    sums = [[0.0] * 4, [0.0] * 4]
    for _ in range(200):
        for _ in range(20):
            length = accepted = 0
            while length < 4 and rng.random() < goes_on[length]:
                length += 1
            while accepted < length and rng.random() < alpha:
                accepted += 1
            reach.observe("a", "p", 1, 4, length, range(accepted))
        sums = [[s + e for s, e in zip(*each, strict=True)]
                for each in zip(sums, reach.estimate("a", "p", 1, SURVIVAL), strict=True)]  # fmt: skip
    planted = [1.0, 0.75, 0.375, 0.1875]
    prior = STRENGTH / (40 + STRENGTH)  # what the estimate before any draft still weighs
    for depth in range(4):
        accepted, reached = (each[depth] / 200 for each in sums)
        assert reached == pytest.approx(planted[depth], abs=prior * (1 - planted[depth]) + 0.03)
        assert accepted == pytest.approx(planted[depth] * alpha ** (depth + 1), abs=0.06)


def test_a_budget_of_fewer_tokens_says_nothing_of_those_beyond() -> None:
    reach, deep = Reach(), Reach()
    for each in (reach, deep):
        for _ in range(20):
            each.observe("a", "p", 1, 4, 4, range(4))
    for _ in range(10):
        reach.observe("a", "p", 1, 2, 2, range(2))
    assert reach.estimate("a", "p", 1, SURVIVAL)[0][2:] == deep.estimate("a", "p", 1, SURVIVAL)[0][2:]
    for _ in range(10):
        deep.observe("a", "p", 1, 4, 2, range(2))  # it might have gone on, and did not
    for shallow, ended in zip(reach.estimate("a", "p", 1, SURVIVAL), deep.estimate("a", "p", 1, SURVIVAL), strict=True):
        assert shallow[:2] == ended[:2]
        assert all(a > b for a, b in zip(shallow[2:], ended[2:], strict=True))


def test_nobody_is_thought_to_get_further_where_nobody_has_tried() -> None:
    reach = Reach()
    for _ in range(30):
        reach.observe("a", "p", 1, 2, 1, range(1))
    accepted, reached = reach.estimate("a", "p", 1, SURVIVAL)
    assert reached[0] == 1.0
    assert reached[1] == reached[2] == reached[3] < 0.2
    assert len(accepted) == 4


def test_routes_proposers_and_widths_are_told_apart() -> None:
    reach = Reach()
    for _ in range(10):
        reach.observe("a", "p", 1, 4, 1, range(0))
    assert reach.estimate("a", "p", 1, SURVIVAL) != (SURVIVAL, (1.0,) * 4)
    for other in (("b", "p", 1), ("a", "q", 1), ("a", "p", 3)):
        assert reach.estimate(*other, SURVIVAL) == (SURVIVAL, (1.0,) * 4)


def test_a_change_is_known_after_some_dozens_of_drafts() -> None:
    reach = Reach()
    for _ in range(500):
        reach.observe("a", "p", 1, 2, 2, range(2))
    for _ in range(40):
        reach.observe("a", "p", 1, 2, 1, range(0))
    accepted, reached = reach.estimate("a", "p", 1, SURVIVAL)
    assert reached[1] < 0.45
    assert accepted[0] < 0.45


drafts = st.integers(1, 6).flatmap(
    lambda budget: st.integers(1, budget).flatmap(
        lambda length: st.tuples(st.just(budget), st.just(length), st.integers(0, length))
    )
)


@given(st.lists(drafts, max_size=40), st.integers(0, 6))
def test_chances_fall_with_depth_whatever_budgets_were(seen: list[tuple[int, int, int]], depth: int) -> None:
    """As candidates promise: a depth that few drafts tried must not look better than those before it."""
    reach, survival = Reach(), (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)[:depth]
    for draft in seen:
        budget, num_tokens, num_accepted = draft
        reach.observe("a", "p", 1, budget, num_tokens, range(num_accepted))
    accepted, reached = reach.estimate("a", "p", 1, survival)
    for chances in (accepted, reached):
        assert len(chances) == depth
        assert list(chances) == sorted(chances, reverse=True)
        assert all(0 <= chance <= 1 for chance in chances)
    assert all(a <= r + 1e-12 for a, r in zip(accepted, reached, strict=True))


def test_places_in_a_tree_are_counted_whichever_path_was_right() -> None:
    reach, survival = Reach(), (0.5, 0.5, 0.5, 0.5)
    for path in [(0, 2), (1, 3), (1,), ()] * 10:
        reach.observe("a", "p", 3, 4, 4, path)
    accepted, reached = reach.estimate("a", "p", 3, survival)
    assert reached == (1.0,) * 4
    assert accepted == pytest.approx((0.25, 0.25, 0.25, 0.25), abs=0.1)
