"""Rules of advice: each at its threshold, with its slack, and with the numbers in the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foredraft.governor.advice import (
    COLLAPSE,
    CRITICAL,
    LOW_CONCURRENCY,
    MIN_TRIALS,
    RULES,
    Acceptance,
    Advice,
    Ratio,
    Situation,
    advise,
)

QUIET = Situation("interactive", "chat", "auto", itl_objective_ms=50, ttft_objective_ms=500)
LATE = replace(QUIET, mode="off", concurrency=2.0, itl_p95_ms=60.0)
SPENT = replace(QUIET, concurrency=12.0, crossover=6.0, itl_p95_ms=60.0, tokens_per_step=1.2)
WRONG = replace(QUIET, mode="on", concurrency=12.0, crossover=6.0, drafts_per_step=0.9)
LOW = replace(QUIET, acceptance={"lookup": Acceptance(40, MIN_TRIALS), "draft_model": Acceptance(80, MIN_TRIALS)})
COLLAPSED = replace(QUIET, acceptance={"draft_model": Acceptance(1, 90, 4000, 5000)})


def rules(situation: Situation, *holding: str) -> list[str]:
    proposers = (None, *situation.acceptance)
    keys = {(rule, situation.pool, situation.route, each) for rule in holding for each in proposers}
    return [advice.rule for advice in advise(situation, keys)]


def only(situation: Situation) -> Advice:
    (advice,) = advise(situation)
    assert (advice.pool, advice.route) == ("interactive", "chat")
    assert advice.severity == ("critical" if advice.rule in CRITICAL else "warning")
    return advice


def test_nothing_is_said_of_what_is_not_known_or_well():
    assert rules(QUIET) == []
    assert rules(Situation("p", "r", "off", concurrency=1.0, itl_p95_ms=1e6, ttft_p95_ms=1e6)) == []
    well = replace(QUIET, concurrency=2.0, itl_p95_ms=40.0, ttft_p95_ms=100.0, crossover=6.0, drafts_per_step=0.9)
    assert rules(replace(well, acceptance={"lookup": Acceptance(900, 1000, 9000, 10_000)})) == []


def test_speculation_comes_before_devices():
    advice = only(LATE)
    assert advice.rule == "turn_on"
    assert advice.reason == (
        "ITL p95 is 60.0 ms, the objective 50 ms; "
        "speculation is off, and 2.0 answers run, where up to 4.0 it should pay"
    )
    assert advice.action == "set the mode of pool interactive to auto before adding devices"


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "auto"},
        {"mode": "on"},
        {"itl_p95_ms": 50.0},
        {"concurrency": LOW_CONCURRENCY},
        {"concurrency": 3.0, "crossover": 2.5, "itl_objective_ms": 1e3},
        {"ratio": Ratio(0.99), "itl_objective_ms": 1e3},
        {"concurrency": None},
        {"itl_p95_ms": None},
        {"itl_objective_ms": None},
    ],
)
def test_speculation_is_not_turned_on_elsewhere(change):
    assert rules(replace(LATE, **change)) == []


def test_a_known_crossover_takes_the_place_of_a_low_concurrency():
    assert rules(replace(LATE, concurrency=10.0, crossover=16.0)) == ["turn_on"]
    assert rules(replace(LATE, concurrency=10.0, crossover=8.0)) == ["add_devices"]


def test_devices_where_speculation_cannot_help():
    advice = only(SPENT)
    assert advice.rule == "add_devices"
    assert advice.reason == (
        "ITL p95 is 60.0 ms, the objective 50 ms; 12.0 answers run, and no draft pays from 6.0 on; "
        "a step adds 1.20 tokens to an answer"
    )
    assert rules(replace(SPENT, mode="off")) == ["add_devices"]
    assert rules(replace(SPENT, concurrency=5.9)) == []
    assert rules(replace(SPENT, itl_p95_ms=50.0)) == []
    assert rules(replace(SPENT, itl_p95_ms=50.0, ttft_p95_ms=501.0)) == ["add_devices"]
    assert only(replace(SPENT, itl_p95_ms=None, ttft_p95_ms=501.0)).reason.startswith("TTFT p95 is 501.0 ms")


def test_off_past_the_crossover_where_drafts_are_made():
    advice = only(WRONG)
    assert advice.rule == "turn_off"
    assert advice.reason == "12.0 answers run, and no draft pays from 6.0 on, and 90% of the steps have drafts"
    assert advice.action == "set the mode of pool interactive to off, or to auto, which drafts where it pays"
    assert only(replace(WRONG, mode="auto")).action == "set the mode of pool interactive to off"
    assert rules(replace(WRONG, drafts_per_step=0.01)) == []
    assert rules(replace(WRONG, drafts_per_step=None)) == []
    assert rules(replace(WRONG, crossover=None)) == []


@pytest.mark.parametrize(("value", "expected"), [(0.9, ["turn_off"]), (1.0, ["turn_off"]), (1.01, [])])
def test_off_where_a_test_found_no_gain(value, expected):
    tested = replace(QUIET, ratio=Ratio(value, (value - 0.02, value + 0.02)))
    assert rules(tested) == expected
    assert rules(replace(tested, mode="off")) == []


def test_the_interval_of_a_test_is_in_the_reason():
    found = replace(QUIET, ratio=Ratio(0.9, (0.88, 0.92)))
    assert (
        only(found).reason
        == "the last A/B test found speculation to run at 0.900 (0.880 to 0.920) of the speed without"
    )
    late = replace(found, mode="off", itl_p95_ms=60.0, concurrency=2.0)
    assert "speculation does not help (A/B test: 0.900 (0.880 to 0.920))" in only(late).reason


def test_a_drafter_that_is_refused_too_often():
    advice = only(LOW)
    assert (advice.rule, advice.proposer) == ("change_drafter", "lookup")
    assert advice.reason == (
        "alpha of lookup is 0.40 over 100 trials; under 0.5 a draft adds less than one token to a step"
    )
    assert rules(replace(LOW, acceptance={"lookup": Acceptance(40, MIN_TRIALS - 1)})) == []
    assert rules(replace(LOW, acceptance={"lookup": Acceptance(50, 100)})) == []


def test_a_collapse():
    advices = advise(COLLAPSED)
    assert [advice.rule for advice in advices] == ["quarantine"]  # with 90 trials it is too early for the other rule
    assert advices[0].reason == "alpha of draft_model is 0.01 over 90 trials; it was 0.80 over 5000"
    assert advices[0].severity == "critical"


@pytest.mark.parametrize(
    ("acceptance", "expected"),
    [
        (Acceptance(0, 36, 4000, 5000), False),  # may be 0.2 by chance
        (Acceptance(0, 40, 4000, 5000), True),
        (Acceptance(0, 0, 4000, 5000), False),
        (Acceptance(0, 1000, 60, MIN_TRIALS - 1), False),  # who knows what it was
        (Acceptance(400, 1000, 8000, 10_000), False),  # half of it: other texts
        (Acceptance(0, 1000, 0, 10_000), False),  # it never was any good
        (Acceptance(1000, 1000, 8000, 10_000), False),
    ],
)
def test_a_collapse_needs_evidence(acceptance, expected):
    assert acceptance.has_collapsed == expected


def test_quarantine_stands_as_long_as_it_lasts():
    resting = Acceptance(0, 0, 4000, 5000, is_quarantined=True)
    assert rules(replace(QUIET, acceptance={"draft_model": resting})) == ["quarantine"]
    back = replace(QUIET, acceptance={"draft_model": Acceptance(0, 0, 4000, 5000)})
    assert rules(back, "quarantine") == []


def test_without_quarantine_a_collapse_is_over_well_above_where_it_began():
    def at(alpha: float) -> Situation:
        return replace(QUIET, acceptance={"draft_model": Acceptance(int(alpha * 1000), 1000, 8000, 10_000)})

    between = 1.5 * COLLAPSE * 0.8
    assert "quarantine" not in rules(at(between))
    assert "quarantine" in rules(at(between), "quarantine")
    assert "quarantine" not in rules(at(2.1 * COLLAPSE * 0.8), "quarantine")


@pytest.mark.parametrize(
    ("situation", "rule", "near", "well"),
    [
        (LATE, "turn_on", {"itl_p95_ms": 46.0}, {"itl_p95_ms": 44.0}),
        (LATE, "turn_on", {"concurrency": 4.3}, {"concurrency": 4.5}),
        (SPENT, "add_devices", {"itl_p95_ms": 46.0}, {"itl_p95_ms": 44.0}),
        (SPENT, "add_devices", {"concurrency": 5.6}, {"concurrency": 5.3}),
        (WRONG, "turn_off", {"concurrency": 5.6}, {"concurrency": 5.3}),
        (
            LOW,
            "change_drafter",
            {"acceptance": {"lookup": Acceptance(54, 100)}},
            {"acceptance": {"lookup": Acceptance(56, 100)}},
        ),
    ],
)
def test_what_holds_stays_until_it_is_clearly_over(situation, rule, near, well):
    assert rule in rules(situation)
    assert rule not in rules(replace(situation, **near))
    assert rule in rules(replace(situation, **near), rule)
    assert rule not in rules(replace(situation, **well), rule)


def test_every_rule_speaks_somewhere():
    said = {rule for situation in (LATE, SPENT, WRONG, LOW, COLLAPSED) for rule in rules(situation)}
    assert said == RULES.keys()
