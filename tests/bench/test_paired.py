import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from foredraft.bench.paired import Ratio, comparisons, paired_ratio, t_975
from foredraft.bench.records import Record
from foredraft.core import SpeculationStats


def record(arm, number, speed, workload="w", concurrency=1):
    return Record(number, workload, concurrency, arm, speed, None, None, None, None, "", SpeculationStats())


def records(**speeds):
    """Records of arms (on_4 for on:lookup:4), a speed for each round."""
    return [
        record(arm.replace("_", ":lookup:"), number, speed)
        for arm, each in speeds.items()
        for number, speed in enumerate(each, 1)
    ]


def test_quantiles():
    for degrees in range(1, 31):
        assert t_975(degrees) == pytest.approx(scipy_stats.t.ppf(0.975, degrees), abs=6e-4)
    for degrees in (31, 60, 99):
        assert 0 < t_975(degrees) - scipy_stats.t.ppf(0.975, degrees) < 0.07


def test_interval_is_that_of_the_t_test():
    rng = np.random.default_rng(3)
    ours, theirs = rng.lognormal(3, 0.1, 7), rng.lognormal(3, 0.1, 7)
    ratio = paired_ratio(dict(enumerate(ours)), dict(enumerate(theirs)))
    expected = scipy_stats.ttest_1samp(np.log(ours / theirs), 0).confidence_interval(0.95)
    assert ratio.low == pytest.approx(math.exp(expected.low), rel=1e-4)
    assert ratio.high == pytest.approx(math.exp(expected.high), rel=1e-4)


def test_pairs_take_out_what_hits_a_whole_round():
    """The machine halves its speed in the second round; auto is 10% faster in each."""
    ratio = paired_ratio({1: 110.0, 2: 55.0, 3: 110.0}, {1: 100.0, 2: 50.0, 3: 100.0})
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_only_rounds_of_both_count():
    assert paired_ratio({1: 2.0, 2: 9.0}, {1: 1.0, 3: 5.0}) == Ratio(pytest.approx(2.0), None, None)
    assert paired_ratio({1: 2.0}, {2: 1.0}) is None


def test_a_bound_holds_while_the_interval_reaches_it():
    assert Ratio(0.97, 0.95, 0.99).holds(0.98)
    assert not Ratio(0.97, 0.96, 0.975).holds(0.98)
    assert Ratio(1.2, None, None).holds(0.98) is None


def test_to_hold_is_less_than_to_be_proven():
    noisy, clear = Ratio(1.1, 0.5, 2.0), Ratio(1.1, 1.05, 1.15)
    assert noisy.holds(1.0)
    assert not noisy.is_proven(1.0)
    assert clear.is_proven(1.0)
    assert not Ratio(1.2, None, None).is_proven(1.0)


def test_best_is_the_fixed_arm_with_the_highest_median():
    (one,) = comparisons(records(off=[10, 10, 10], on_2=[1, 12, 12], on_8=[11, 11, 99], auto=[12, 12, 12]))
    assert one.best == "on:lookup:2"
    assert one.over_off.mean == pytest.approx(1.2)
    assert one.over_best.mean == pytest.approx((12 * 1 * 1) ** (1 / 3))


def test_off_can_be_the_best():
    (one,) = comparisons(records(off=[10, 10], on_2=[5, 5], auto=[9, 9]))
    assert one.best == "off"
    assert one.over_best == one.over_off
    assert not one.over_off.holds(1.0)


def test_a_comparison_for_each_cell_and_automatic_arm():
    cells = [("w", 1), ("w", 2), ("v", 1)]
    arms = ("off", "auto", "auto:lookup")
    made = [record(arm, number, 5.0, *cell) for number in (1, 2) for cell in cells for arm in arms]
    found = [(one.workload, one.concurrency, one.arm) for one in comparisons(made)]
    assert found == [(*cell, arm) for cell in cells for arm in arms[1:]]
    assert comparisons(records(off=[1], on_2=[2])) == []


def test_without_off_or_without_speeds():
    (one,) = comparisons(records(on_2=[5, 5], auto=[9, 9]))
    assert (one.over_off, one.best) == (None, "on:lookup:2")
    (one,) = comparisons(records(off=[None, None], auto=[9, 9]))
    assert (one.over_off, one.best, one.over_best) == (None, None, None)
