"""What is learned of drafts: planted chances are found, changes are noticed, and nothing grows without bound."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.governor.acceptance import (
    CURIOUS,
    LEAST_SURVIVAL,
    PRIOR,
    ROUTE_CAP,
    SEQUENCE_CAP,
    Acceptance,
    Calibration,
    Tally,
)
from traces import tried

K = 4
NO_GRADES: tuple[int, ...] = ()


class Traffic:
    """Drafts whose tokens are accepted with planted chances: by depth, or by grade."""

    def __init__(self, acceptance: Acceptance, seed: int = 0) -> None:
        self.acceptance, self._random = acceptance, random.Random(seed)

    def drafts(
        self,
        count: int,
        alphas: Sequence[float],
        grades: Sequence[int] = NO_GRADES,
        context_id: int = 1,
        route: str = "a",
        proposer: str = "p",
    ) -> None:
        for _ in range(count):
            accepted = 0
            while accepted < len(alphas) and self._random.random() < alphas[accepted]:
                accepted += 1
            self.acceptance.observe(context_id, route, proposer, tried(grades, accepted, accepted < len(alphas)))


def alphas(
    acceptance: Acceptance, route: str = "a", proposer: str = "p", context_id: int = 999, grade: int | None = None
) -> list[float]:
    return [acceptance.alpha(context_id, route, proposer, grade, depth) for depth in range(K)]


def chance(acceptance: Acceptance, grade: int | None = None) -> float:
    """Of the first token of anybody's draft on route "a"."""
    return acceptance.chance(999, "a", "p", grade, 0)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_planted_alpha_is_found(alpha: float) -> None:
    """Within the error of so many trials as are remembered."""
    acceptance = Acceptance()
    Traffic(acceptance).drafts(1000, [alpha] * K)
    error = 3 * (alpha * (1 - alpha) / ROUTE_CAP) ** 0.5 + 0.03
    assert alphas(acceptance)[:2] == pytest.approx([alpha] * 2, abs=error)
    assert acceptance.mean("a", "p") == pytest.approx(alpha, abs=error)


@pytest.mark.parametrize("context_id", [1, 999])
@pytest.mark.parametrize("planted", [[0.9, 0.7, 0.5, 0.5], [0.5, 0.8, 0.9, 0.9], [0.7] * K, [0.3] * K])
def test_depths_are_told_apart(planted: Sequence[float], context_id: int) -> None:
    """By the sequence that drafts as by one that starts. The mean over many moments shows the error of the method."""
    acceptance = Acceptance()
    traffic, sums = Traffic(acceptance), [0.0] * K
    for _ in range(200):
        traffic.drafts(20, planted)
        found = alphas(acceptance, context_id=context_id)
        sums = [total + alpha / 200 for total, alpha in zip(sums, found, strict=True)]
    assert sums == pytest.approx(planted, abs=0.04)


def test_grades_are_told_apart_and_a_draft_without_one_gets_the_mean() -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    for _ in range(200):
        traffic.drafts(1, [0.95], grades=[5])
        traffic.drafts(1, [0.15], grades=[3])
    assert alphas(acceptance, grade=5)[0] == pytest.approx(0.95, abs=0.07)
    assert alphas(acceptance, grade=3)[0] == pytest.approx(0.15, abs=0.1)
    assert alphas(acceptance)[0] == pytest.approx(0.55, abs=0.15)


def test_routes_and_proposers_are_told_apart() -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    for _ in range(100):
        traffic.drafts(1, [0.9] * K, route="edit")
        traffic.drafts(1, [0.2] * K, context_id=2, route="chat")
        traffic.drafts(1, [0.6] * K, context_id=2, route="chat", proposer="q")
    assert alphas(acceptance, "edit")[0] == pytest.approx(0.9, abs=0.15)
    assert alphas(acceptance, "chat")[0] == pytest.approx(0.2, abs=0.15)
    assert alphas(acceptance, "chat", "q")[0] == pytest.approx(0.6, abs=0.2)


def test_a_change_is_known_within_some_dozens_of_trials() -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    traffic.drafts(500, [0.95] * K)
    before = alphas(acceptance, context_id=1)[0]
    traffic.drafts(12, [0.0])  # the sequence that changed knows first
    assert alphas(acceptance, context_id=1)[0] < 0.6 * before
    traffic.drafts(48, [0.0])
    assert alphas(acceptance)[0] < 0.45 < 0.9 < before
    traffic.drafts(120, [0.0])
    assert alphas(acceptance)[0] < 0.1
    traffic.drafts(60, [1.0] * K)  # and back
    assert alphas(acceptance)[0] > 0.6


def test_a_new_sequence_starts_from_its_route_and_a_new_route_from_its_proposer() -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    for _ in range(100):
        traffic.drafts(1, [0.9] * K, context_id=1)
        traffic.drafts(1, [0.1] * K, context_id=2)
    assert alphas(acceptance, context_id=3) == alphas(acceptance, context_id=999)
    assert (
        alphas(acceptance, context_id=2)[0] < alphas(acceptance, context_id=3)[0] < alphas(acceptance, context_id=1)[0]
    )
    known, unknown = (acceptance.alpha(3, "new", proposer, None, 0) for proposer in ("p", "q"))
    assert known != unknown
    acceptance.release(2)
    assert alphas(acceptance, context_id=2) == alphas(acceptance, context_id=3)


def test_the_benefit_of_the_doubt_ends() -> None:
    """A proposer nobody knows is tried; each refusal lowers its estimate, and what it has to prove is soon proved."""
    acceptance = Acceptance()
    assert chance(acceptance) > PRIOR + 0.05
    found = []
    for _ in range(2 * CURIOUS):
        acceptance.observe(1, "a", "p", tried(NO_GRADES, 0, True))
        found.append(chance(acceptance))
    assert found == sorted(found, reverse=True)
    assert found[CURIOUS] < 0.2
    generous = Acceptance()
    for i in range(CURIOUS):
        assert chance(generous) > 0.5  # more than it has shown, and never beyond 1
        generous.observe(1, "a", "p", tried(NO_GRADES, i % 2, i % 2 == 0))
    assert chance(generous) == alphas(generous)[0] < 0.55


def test_a_token_that_is_there_counts_for_less_the_less_is_known() -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    known, unknown = [], []
    for _ in range(50):
        traffic.drafts(1, [0.8], grades=[3])
        known.append(alphas(acceptance, grade=3)[0] - chance(acceptance, grade=3))
        unknown.append(alphas(acceptance, grade=4)[0] - chance(acceptance, grade=4))
    assert known[0] > known[-1] > 0.03
    assert min(unknown) > known[-1]


@pytest.mark.parametrize("planted", [[0.9] * K, [0.4] * K, [0.95, 0.7, 0.5, 0.3]])
def test_chances_mean_what_they_say(planted: Sequence[float]) -> None:
    acceptance = Acceptance()
    traffic = Traffic(acceptance)
    for context_id in range(100):
        traffic.drafts(20, planted, context_id=context_id)
        acceptance.release(context_id)
    error = acceptance.calibration["a", "p"].error
    assert error is not None
    assert error < 0.1  # which is about the noise of what few trials tell of a sequence


def test_the_error_of_chances() -> None:
    calibration = Calibration()
    assert calibration.error is None
    for is_accepted in (True, False, False, False):
        calibration.add(0.75, is_accepted)
    assert calibration.error == pytest.approx(0.5)
    calibration.add(1.0, True)  # in the last bin
    assert calibration.error == pytest.approx(0.4)


def test_survival_multiplies_and_ends() -> None:
    acceptance = Acceptance()
    Traffic(acceptance).drafts(300, [0.5] * K)
    survival = acceptance.survival(999, "a", "p", [None] * 30)
    first = acceptance.alpha(999, "a", "p", None, 0)
    second = acceptance.alpha(999, "a", "p", None, 1)
    assert survival[:2] == pytest.approx((first, first * second))
    assert len(survival) < 15
    assert survival[-1] >= LEAST_SURVIVAL
    assert acceptance.survival(999, "a", "p", [None] * 2) == survival[:2]
    assert acceptance.survival(999, "a", "p", []) == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 6), st.booleans(), st.integers(0, 3)),
        max_size=60,
    )
)
def test_chances_are_chances_whatever_happens(outcomes: list[tuple[int, str, int, bool, int]]) -> None:
    acceptance = Acceptance()
    for context_id, route, num_accepted, is_rejected, grade in outcomes:
        acceptance.observe(context_id, route, "p", tried([grade] * 7, num_accepted, is_rejected))
        for known in (None, grade):
            survival = acceptance.survival(context_id, route, "p", [known] * 9)
            assert all(0 <= s <= 1 for s in survival)
            assert list(survival) == sorted(survival, reverse=True)


def test_what_is_kept_is_bounded() -> None:
    """Over 10**5 trials of a thousand sequences."""
    acceptance, rng = Acceptance(), random.Random(0)
    for context_id in range(1000):
        for _ in range(50):
            num_accepted = rng.randint(0, 2)
            acceptance.observe(context_id, "a", "p", tried([context_id % 4] * 3, num_accepted, num_accepted < 2))
        if context_id % 10:
            acceptance.release(context_id)
    tallies: Mapping[object, Tally] = acceptance._levels
    assert len(tallies) < 40
    assert all(0 <= tally.accepted <= tally.trials <= ROUTE_CAP + 1e-9 for tally in tallies.values())
    assert len(acceptance._sequences) == 100
    own = [tally for tallies in acceptance._sequences.values() for tally in tallies.values()]
    assert all(abs(tally.accepted) <= tally.trials <= SEQUENCE_CAP + 1e-9 for tally in own)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(any), min_size=1), st.floats(1, 100))
def test_a_tally_forgets_beyond_its_cap(trials: list[tuple[int, int]], cap: float) -> None:
    tally = Tally()
    for accepted, refused in trials:
        tally.add(accepted, accepted + refused, cap)
        assert 0 <= tally.accepted <= tally.trials * (1 + 1e-9)
        assert tally.trials <= cap * (1 + 1e-9)
    assert tally.trials == pytest.approx(min(cap, sum(map(sum, trials))))
