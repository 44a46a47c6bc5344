import pytest

from foredraft import theory
from foredraft.governor.crossover import MOST_CONCURRENCY, curve, profile_costs
from foredraft.governor.profile import Point, Profile

ROWS = (1, 2, 4, 8, 16, 32)


def points(cost, rows=ROWS, context=64):
    return tuple(Point(count, context, cost(count), 1) for count in rows)


def profile(cost, draft=()):
    """A profile whose passes take cost(rows) ms after 64 tokens, and twice that after 1024."""
    longer = points(lambda rows: 2 * cost(rows), context=1024)
    return Profile({}, 10.0, (*longer, *points(cost)), tuple(draft))


def affine(rows):
    return 8 + 2 * rows


def test_gains_are_those_of_the_formula():
    costs = profile_costs(profile(affine))
    found = curve(0.8, costs)
    assert [gain.concurrency for gain in found.gains] == list(range(1, MOST_CONCURRENCY + 1))
    alone, two = found.gains[:2]
    best = max(range(32), key=lambda k: theory.expected_tokens(0.8, k) * 10 / affine(k + 1))
    assert alone.k == best
    assert alone.speedup == pytest.approx(theory.expected_tokens(0.8, best) * 10 / affine(best + 1))
    assert two.speedup == pytest.approx(theory.expected_tokens(0.8, two.k) * 12 / affine(2 * (two.k + 1)))


@pytest.mark.parametrize("alpha", [0.4, 0.6, 0.8, 0.9])
def test_crossover_is_where_the_formula_has_it(alpha):
    """With t = a + s n, one token for each of b pays by 2% while (1 + alpha) (a + s b) >= 1.02 (a + 2 s b)."""
    found = curve(alpha, profile_costs(profile(affine)))
    pays = [b for b in range(1, 65) if (1 + alpha) * affine(b) >= 1.02 * affine(2 * b)]
    assert found.crossover == (pays[-1] + 1 if pays else 1)
    assert found.gains[found.crossover - 1].k == 0


def test_rows_that_cost_nothing_have_no_crossover_and_rows_that_cost_all_have_it_at_once():
    assert curve(0.4, profile_costs(profile(lambda rows: 5.0))).crossover is None
    never = curve(0.95, profile_costs(profile(lambda rows: 5.0 * rows)))
    assert never.crossover == 1
    assert {(gain.k, gain.speedup) for gain in never.gains} == {(0, 1.0)}


def test_what_was_not_measured_is_marked():
    found = curve(0.9, profile_costs(profile(affine)))
    for gain in found.gains:
        assert gain.is_extrapolated == (gain.concurrency * (max(gain.k, 1) + 1) > 32)


def test_extrapolation_goes_on_with_the_upper_slope():
    costs = profile_costs(profile(affine))
    assert costs.measured_rows == 32
    assert costs.pass_cost(500) == pytest.approx(affine(500) / 1e3)


def test_a_disturbed_point_bends_nothing():
    def disturbed(rows):
        return affine(rows) + 40 * (rows == 16) + 3 * (rows == 32)

    costs = profile_costs(profile(disturbed))
    # A pass over 16 rows cannot take longer than one over 32.
    assert costs.pass_cost(16) == pytest.approx(disturbed(32) / 1e3)
    assert costs.pass_cost(100) == pytest.approx(affine(100) / 1e3, rel=0.1)
    assert costs.pass_cost(1) == pytest.approx(affine(1) / 1e3)


def test_gain_that_comes_back_beyond_what_was_measured_does_not_count():
    def wall(rows):  # every row at full price, the last one at ten times that
        return 10.0 * rows + 90 * (rows == 32)

    measured = Profile({}, 10.0, points(wall, rows=(1, 8, 16, 24, 31, 32)))
    found = curve(0.95, profile_costs(measured))
    assert any(gain.k for gain in found.gains[16:]), "or this tests nothing"
    assert found.crossover == 1


def test_cost_of_a_draft():
    free = profile_costs(profile(affine))
    assert free.c() == 0
    given = profile_costs(profile(affine), c=0.25)
    assert given.c(1) == given.c(20) == pytest.approx(0.25)
    # One measured row: the rest is taken to go like the target's.
    scaled = profile_costs(profile(affine, [Point(1, 64, 2.0, 1), Point(1, 1024, 9.0, 1)]))
    assert scaled.is_draft_scaled
    assert scaled.c(1) == scaled.c(20) == pytest.approx(0.2)
    # More of them: they count as they are.
    own = profile_costs(profile(affine, points(lambda rows: 2.0, rows=(1, 8, 32))))
    assert not own.is_draft_scaled
    assert own.c(1) == pytest.approx(0.2)
    assert own.c(16) == pytest.approx(2 / affine(16))


def test_what_would_change_the_answer():
    costs = profile_costs(profile(affine), c=0.2)
    half = costs.with_draft(0.5)
    assert half.c(3) == pytest.approx(0.1)
    assert half.pass_cost(9) == costs.pass_cost(9)
    cheaper = costs.with_rows(0.5)
    assert cheaper.pass_cost(1) == costs.pass_cost(1)
    assert cheaper.pass_cost(300) == pytest.approx((10 + 299) / 1e3)
    here, with_half, with_rows = (curve(0.8, each).crossover for each in (costs, half, cheaper))
    assert here < with_half
    assert here < with_rows


def test_a_model_of_which_one_row_was_measured():
    costs = profile_costs(Profile({}, 10.0, points(affine, rows=(1,))))
    assert curve(0.9, costs).gains[0].is_extrapolated
