"""What a pass costs: begun from a profile, corrected by steps, and sane whatever is measured."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.governor.cost_curve import MORE_KNOTS, CostCurve, Curves
from foredraft.governor.plan import PassCost
from foredraft.governor.profile import Point

ROWS = (1, 2, 4, 8, 16, 32)
TRUTH = PassCost(ROWS, (0.05, 0.051, 0.053, 0.0685, 0.125, 0.245), sequence_token_s=4e-6, row_token_s=1e-6)


def points(cost: PassCost, contexts: tuple[int, ...] = (64, 1024), factor: float = 1.0) -> list[Point]:
    """A profile of passes over the rows of one sequence."""
    return [
        Point(rows, context, factor * 1e3 * cost(rows, context, rows * context), 0)
        for rows in ROWS
        for context in contexts
    ]


def observe(curve: CostCurve, cost: PassCost, rows: int, factor: float = 1.0, context: int = 200) -> None:
    curve.observe(rows, context, rows * context, factor * cost(rows, context, rows * context))


def test_a_profile_is_taken_apart() -> None:
    found = CostCurve(points(TRUTH)).cost
    assert found.sequence_token_s == pytest.approx(TRUTH.sequence_token_s)
    assert found.row_token_s == pytest.approx(TRUTH.row_token_s)
    for rows in (*ROWS, 3, 12, 60):
        for context in (0, 500, 4000):
            there = rows, context, rows * context
            assert found(*there) == pytest.approx(TRUTH(*there))


def test_a_profile_of_one_context_says_nothing_of_contexts() -> None:
    found = CostCurve(points(TRUTH, contexts=(64,))).cost
    assert (found.sequence_token_s, found.row_token_s) == (0.0, 0.0)
    assert found(8) == pytest.approx(TRUTH(8, 64, 8 * 64))


def test_noise_of_a_profile_does_not_make_contexts_cheap() -> None:
    """Here reading keys and values seems to save time."""
    odd = [Point(rows, context, 50.0 + rows - context / 1000, 0) for rows in ROWS for context in (64, 1024)]
    found = CostCurve(odd).cost
    assert found.sequence_token_s >= 0
    assert found.row_token_s >= 0
    assert found(4, 1000, 4000) == pytest.approx(found(4))


@pytest.mark.parametrize("start", [0.4, 1.0, 2.5])
def test_a_planted_curve_is_learned_from_noisy_steps(start: float) -> None:
    """The profile was off by a factor, and steep where the truth is flat; some steps were interrupted."""
    curve, rng = CostCurve([Point(1, 0, 50 * start, 0), Point(64, 0, 400 * start, 0)]), np.random.default_rng(0)
    planted = PassCost((1, 64), (0.05, 0.1))
    for _ in range(1500):
        rows, hiccup = int(rng.integers(1, 65)), 10.0 if rng.random() < 0.01 else 1.0
        curve.observe(rows, 0, 0, planted(rows) * rng.lognormal(0, 0.05) * hiccup)
    for rows in (1, 16, 64):
        assert curve.cost(rows) == pytest.approx(planted(rows), rel=0.25)


def test_a_row_count_that_is_dearer_than_was_thought_is_learned_alone() -> None:
    curve, before = CostCurve(points(TRUTH)), CostCurve(points(TRUTH)).cost
    for _ in range(200):
        for rows, factor in ((1, 1.0), (4, 1.0), (8, 1.5), (16, 1.0)):
            observe(curve, TRUTH, rows, factor)
    assert curve.cost(8) == pytest.approx(1.5 * TRUTH(8), rel=0.1)
    for rows in (1, 4, 16):
        assert curve.cost(rows) == pytest.approx(before(rows), rel=0.1)


def test_a_slower_machine_is_slower_at_row_counts_that_never_come() -> None:
    curve = CostCurve(points(TRUTH))
    for _ in range(200):
        for rows in (1, 2, 4):
            observe(curve, TRUTH, rows, 2.0)
    for rows in (1, 2, 4):
        assert curve.cost(rows) == pytest.approx(2 * TRUTH(rows), rel=0.1)
    for rows in (8, 32, 300):
        assert curve.cost(rows) > 1.3 * TRUTH(rows)
    assert curve.cost.sequence_token_s > 1.3 * TRUTH.sequence_token_s


def test_one_interrupted_step_says_little() -> None:
    curve = CostCurve(points(TRUTH))
    observe(curve, TRUTH, 4, factor=1000.0)
    assert curve.cost(4) < 1.1 * TRUTH(4)
    assert curve.cost(32) < 1.05 * TRUTH(32)


def test_a_draft_model_is_corrected_by_its_runs() -> None:
    curve = CostCurve(points(TRUTH))
    for _ in range(60):
        curve.observe_ratio(3 * TRUTH(4) / curve.cost(4))
    for rows in (1, 4, 32):
        assert curve.cost(rows) == pytest.approx(3 * TRUTH(rows), rel=0.02)


def test_a_curve_that_nobody_measured() -> None:
    curves = Curves.unmeasured()
    assert curves.target.cost(8) < 1.2 * curves.target.cost(1)
    draft = curves.draft("draft_model")
    assert draft.cost(3) == pytest.approx(curves.target.cost(3) / 5)
    assert curves.draft("draft_model") is draft


steps = st.tuples(
    st.integers(1, 2000), st.integers(0, 100_000), st.integers(0, 10**6), st.floats(0, 1e6, allow_subnormal=False)
)
times_ms, contexts = st.floats(0.01, 1e4), st.sampled_from([0, 64, 1024])
first_points = st.builds(Point, st.just(1), contexts, times_ms, st.just(0))
profiles = st.builds(
    lambda first, others: [first, *others],
    first_points,
    st.lists(st.builds(Point, st.integers(1, 64), contexts, times_ms, st.just(0)), max_size=8),
)


@settings(max_examples=100, deadline=None)
@given(profiles, st.lists(steps, max_size=20), st.lists(st.floats(0, 1e9), max_size=5))
def test_a_curve_stays_positive_and_rising(profile: list[Point], seen: list[tuple], ratios: list[float]) -> None:
    curve = CostCurve(profile)
    for step in seen:
        curve.observe(*step)
    for ratio in ratios:
        curve.observe_ratio(ratio)
    cost = curve.cost
    values = [cost(rows, 100, rows * 100) for rows in range(1, 600, 23)]
    assert all(np.isfinite(values))
    assert values[0] > 0
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(values))
    assert cost.least_row_s(1) >= 0
    assert cost.row_s >= 0
    assert cost.rows[-1] >= MORE_KNOTS[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 0.01), min_size=1, max_size=6), st.integers(1, 200))
def test_what_one_more_row_costs_at_least(rises: list[float], rows: int) -> None:
    knots = tuple(2**i for i in range(len(rises)))
    cost = PassCost(knots, tuple(np.cumsum([0.01, *rises[1:]])))
    least = min(cost(more + 1) - cost(more) for more in range(rows, rows + 100))
    assert cost.least_row_s(rows) <= least + 1e-12
