"""Which drafts in the making go on: those whose next tokens together are worth the pass that makes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.core import Context, Draft, SamplingParams
from foredraft.governor.cost_curve import CostCurve, Curves
from foredraft.governor.governor import Governor, Load, Turn
from foredraft.governor.plan import Snapshot
from foredraft.governor.profile import Point
from foredraft.governor.trials import Trial
from foredraft.governor.turns import Runner
from foredraft.sampling.noise import noise_key
from traces import tried

RUN = "draft_model"
ROUTE = "default"
ALPHAS = (0.05, 0.5, 0.95)  # of the tokens that a grade says little about, something, and much


class Drafting:
    """A governor that has learned what grades mean, in the middle of a step with so many sequences.

    draft_s: seconds of a draft model's pass; further_s: for each further sequence in it; row_s: for each further row of
    the target's pass, which takes 10 ms.
    """

    def __init__(
        self, num_turns: int, draft_s: float, row_s: float = 0.0, further_s: float = 0.0, is_at_once: bool = False
    ) -> None:
        target, draft = (
            CostCurve(Point(rows, 0, (first + (rows - 1) * more) * 1e3, 0) for rows in (1, 2, 64))
            for first, more in ((0.01, row_s), (draft_s, further_s))
        )
        self.governor = Governor(measure=lambda: Curves(target, {RUN: draft}))
        self.snapshot: Snapshot | None = None
        self.governor.on_plan.append(self._hear)
        for number in range(20):
            for grade, alpha in enumerate(ALPHAS):
                outcome = tried([grade], int(number < 20 * alpha), number >= 20 * alpha)
                self.governor.acceptance.observe(99, ROUTE, RUN, outcome)
        runners = {RUN: Runner(ends_drafts=True, drafts_at_once=is_at_once)}
        turns = [
            Turn(Context(i, [1, 2, 3], 2, SamplingParams(), noise_key(i, 0), "exact"), ROUTE, 4, runners, 99)
            for i in range(num_turns)
        ]
        self.plan = self.governor.plan(turns, {}, Load(num_turns, 0, 0, 0.0, False))
        self.turns, self._goes_on = turns, self.governor.goes_on(RUN, turns)

    def goes_on(self, drafts: Mapping[int, Sequence[int]]) -> Collection[int]:
        """Of chains, given by the grades of their tokens."""
        return self._goes_on({number: [grades] for number, grades in drafts.items()})

    def _hear(self, snapshot: Snapshot, plan: object) -> None:
        self.snapshot = snapshot

    def survival(self, number: int, grades: Sequence[int]) -> float:
        """The chance that the next token of a draft is accepted, and all before it."""
        chance = 1.0
        for depth, grade in enumerate([*grades, None]):
            chance *= self.governor.acceptance.chance(number, ROUTE, RUN, grade, depth)
        return chance

    def worth(self, drafts: Mapping[int, Sequence[int]], chosen: Collection[int]) -> float:
        """Tokens that one more pass for these brings beyond what comes in its time anyway."""
        assert self.snapshot is not None
        cost, row_s = self.snapshot.draft_costs[RUN], self.snapshot.pass_cost.least_row_s(self.snapshot.num_rows)
        seconds = cost(len(chosen)) + len(chosen) * row_s if chosen else 0.0
        rate = self.plan.expected_tokens / self.plan.step_s
        return sum(self.survival(number, drafts[number]) for number in chosen) - rate * seconds


def test_all_go_on_where_that_is_free() -> None:
    assert Drafting(3, draft_s=1e-7).goes_on({0: [2], 1: [0], 2: [1, 1]}) == {0, 1, 2}


@pytest.mark.parametrize("dear", [{"draft_s": 0.02}, {"draft_s": 1e-7, "row_s": 0.02}])
def test_nobody_goes_on_where_passes_or_rows_are_dear(dear: dict[str, float]) -> None:
    drafting = Drafting(3, **dear)
    assert drafting.goes_on({0: [2], 1: [2, 2], 2: [0]}) == set()
    assert drafting.goes_on({}) == set()


def test_unsure_drafts_end_and_sure_ones_go_on() -> None:
    drafting = Drafting(3, draft_s=0.0005, further_s=0.0005)
    assert drafting.goes_on({0: [2], 1: [0], 2: [2, 0]}) == {0}


def test_a_pass_that_does_not_pay_for_one_may_pay_for_several() -> None:
    drafting = Drafting(4, draft_s=0.0015)
    drafts = {number: [1] for number in range(4)}
    for number in drafts:
        assert drafting.goes_on({number: [1]}) == set()
    assert drafting.goes_on(drafts) == set(drafts)
    assert 1 in drafting.goes_on({0: [2], 1: [1], 2: [2]})  # along with those for which the pass is made anyway


grades = st.lists(st.integers(0, len(ALPHAS) - 1), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(0, 4), grades, max_size=5),
    st.sampled_from([1e-5, 0.001, 0.003, 0.006]),
    st.sampled_from([0.0, 0.0005, 0.002]),
    st.sampled_from([0.0, 0.0003, 0.001]),
)
def test_no_other_drafts_are_worth_more(drafts, draft_s, row_s, further_s) -> None:
    drafting = Drafting(5, draft_s, row_s, further_s)
    found = drafting.worth(drafts, drafting.goes_on(drafts))
    others = (each for count in range(len(drafts) + 1) for each in combinations(drafts, count))
    assert found == pytest.approx(max(drafting.worth(drafts, each) for each in others), abs=1e-9)
    assert found >= -1e-9


def test_a_draft_that_is_there_at_once_goes_on_as_long_as_its_rows_pay():
    """What its pass took is spent already."""
    dear = Drafting(1, draft_s=0.02)
    at_once = Drafting(1, draft_s=0.02, is_at_once=True)
    assert not dear.goes_on({0: [2]})
    assert set(at_once.goes_on({0: [2]})) == {0}
    assert not Drafting(1, draft_s=0.02, row_s=0.009, is_at_once=True).goes_on({0: [0]})


# Two sure guesses one after the other, and siblings of both that nobody believes in.
TREE = Draft(RUN, (1, 2, 3, 4), (-1, 0, -1, 0), grades=(2, 2, -1, -1))


def learned(row_s: float) -> Drafting:
    """What is known of siblings too: one in forty is right."""
    drafting = Drafting(1, draft_s=1e-5, row_s=row_s)
    for number in range(40):
        drafting.governor.acceptance.observe(
            99, ROUTE, RUN, [Trial(2, 0, number > 0), Trial(-1, 0, number == 0, False)]
        )
    return drafting


@pytest.mark.parametrize(("row_s", "num_kept"), [(1e-6, 4), (0.002, 2), (0.5, 1)])
def test_a_tree_is_cut_to_what_is_worth_its_rows(row_s: float, num_kept: int) -> None:
    """All of it where rows are free, and a token at least, which was paid for."""
    drafting = learned(row_s)
    assert drafting.governor.keep(drafting.turns[0], TREE) == TREE.cut(num_kept)


def test_chains_and_drafts_that_were_drawn_are_kept_whole() -> None:
    """A chain has ended where it should; what was drawn may not be left out for what it turned out to be."""
    drafting = learned(0.5)
    chain = Draft.chain(RUN, (1, 2, 3), grades=(0, 0, 0))
    drawn = Draft(RUN, TREE.tokens, TREE.parents, np.full((4, 9), 1 / 9, np.float32), TREE.grades)
    for draft in (chain, drawn):
        assert drafting.governor.keep(drafting.turns[0], draft) is draft
