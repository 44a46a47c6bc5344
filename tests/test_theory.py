"""The cost maths against figures worked out elsewhere and against its own definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft import theory
from foredraft.errors import ConfigError

alphas = st.floats(0, 1)
lengths = st.integers(1, 16)
costs = st.floats(0, 2)


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"), [(0.8, 4, 3.3616), (0.85, 8, 5.1226), (0.4, 8, 1.666), (1.0, 5, 6.0), (0.0, 5, 1.0)]
)
def test_expected_tokens(alpha: float, k: int, tokens: float) -> None:
    assert theory.expected_tokens(alpha, k) == pytest.approx(tokens, abs=5e-4)


@pytest.mark.parametrize(
    ("alpha", "k", "c", "speedup"), [(0.8, 4, 0.05, 2.801), (0.4, 4, 0.05, 1.3747), (0.75, 7, 0.02, 3.16)]
)
def test_speedup_when_a_pass_costs_the_same_for_any_rows(alpha: float, k: int, c: float, speedup: float) -> None:
    assert theory.speedup(alpha, k, c) == pytest.approx(speedup, abs=5e-3)


def test_speedup_with_a_measured_pass_cost() -> None:
    cost = {2: 10.0, 10: 15.0}
    assert theory.speedup(0.8, 4, 0.1, cost.__getitem__, batch=2) == pytest.approx(3.3616 / (1.5 + 0.4))


@given(alphas, lengths)
def test_expected_tokens_is_the_closed_form(alpha: float, k: int) -> None:
    if alpha < 0.999:
        assert theory.expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_a_mean_alpha_hides_the_spread() -> None:
    assert theory.expected_tokens_mixture([0.4, 0.98], [1, 1], 8) == pytest.approx(4.99, abs=0.005)
    assert theory.expected_tokens(0.69, 8) == pytest.approx(3.11, abs=0.005)


def test_summarization_cannot_reach_the_published_row() -> None:
    assert theory.speedup(0.65, 5, 0.0) == pytest.approx(2.64, abs=0.005)


def test_break_even_at_one_token_is_the_draft_cost() -> None:
    assert theory.break_even_alpha(1, 0.3) == pytest.approx(0.3)
    assert theory.break_even_alpha(1, 0.0) == pytest.approx(0.0, abs=1e-12)


def test_there_is_no_break_even_where_even_full_acceptance_does_not_pay() -> None:
    assert theory.break_even_alpha(2, 0.0, lambda rows: float(rows)) is None


@given(lengths, costs)
def test_break_even_separates(k: int, c: float) -> None:
    alpha = theory.break_even_alpha(k, c)
    if alpha is None:
        assert theory.speedup(1.0, k, c) <= 1
    else:
        assert theory.speedup(min(alpha + 1e-6, 1.0), k, c) > 1
        assert alpha < 1e-6 or theory.speedup(alpha - 1e-6, k, c) <= 1


def test_best_k_looks_beyond_a_step_in_the_pass_cost() -> None:
    def stepped(rows: int) -> float:  # tiles of 4 rows: the 2nd row opens a tile that holds three more
        return 1.0 if rows == 1 else 1.9 if rows <= 4 else 9.0

    assert theory.speedup(0.8, 1, 0.0, stepped) < 1
    assert theory.best_k(0.8, 0.0, 6, stepped) == 3


def test_best_k_is_zero_where_drafting_does_not_pay() -> None:
    assert theory.best_k(0.1, 0.5, 8) == 0
    assert theory.best_k(1.0, 0.0, 8) == 8


@given(alphas, costs, st.integers(0, 10))
def test_best_k_is_the_best(alpha: float, c: float, k_max: int) -> None:
    best = theory.speedup(alpha, theory.best_k(alpha, c, k_max), c)
    assert all(best >= theory.speedup(alpha, k, c) for k in range(k_max + 1))


def test_alpha_and_acceptance_rate_are_two_figures() -> None:
    assert theory.acceptance_rate(0.8, 8) == pytest.approx(0.42, abs=0.005)
    assert theory.estimate_alpha(80, 20) == pytest.approx(0.8)
    assert theory.estimate_alpha(0, 0) is None


@given(alphas, lengths)
def test_alpha_is_found_again_from_the_acceptance_rate(alpha: float, k: int) -> None:
    rate = theory.acceptance_rate(alpha, k)
    found = theory.alpha_from_acceptance_rate(min(rate, 1.0), k)
    assert theory.acceptance_rate(found, k) == pytest.approx(rate, abs=1e-9)


def test_seconds_saved() -> None:
    assert theory.seconds_saved(1000, 0.1, 2.0) == pytest.approx(50.0)
    assert theory.seconds_saved(1000, 0.1, 0.5) == pytest.approx(-100.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.expected_tokens(1.5, 4),
        lambda: theory.expected_tokens(float("nan"), 4),
        lambda: theory.expected_tokens(0.5, -1),
        lambda: theory.speedup(0.5, 4, -0.1),
        lambda: theory.speedup(0.5, 4, float("inf")),
        lambda: theory.speedup(0.5, 4, 0.1, batch=0),
        lambda: theory.break_even_alpha(0, 0.1),
        lambda: theory.best_k(0.5, 0.1, -1),
        lambda: theory.acceptance_rate(0.5, 0),
        lambda: theory.alpha_from_acceptance_rate(1.1, 2),
        lambda: theory.estimate_alpha(-1, 0),
        lambda: theory.expected_tokens_mixture([0.5], [1, 2], 3),
        lambda: theory.expected_tokens_mixture([0.5], [0], 3),
        lambda: theory.seconds_saved(10, 0.1, 0),
        lambda: theory.seconds_saved(-1, 0.1, 2),
    ],
)
def test_values_outside_their_range_are_named(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=r"allowed|needs|give"):
        call()
