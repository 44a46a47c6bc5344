"""Advice begins when it has lasted and ends when it has been quiet: no alert flaps."""

from __future__ import annotations

import random
from dataclasses import replace

from foredraft.governor.advice import Acceptance, Situation
from foredraft.governor.adviser import BEGIN_S, END_S, Adviser

WELL = Situation("interactive", "chat", "off", concurrency=2.0, itl_p95_ms=30.0, itl_objective_ms=50)
LATE = replace(WELL, itl_p95_ms=60.0)
COLLAPSED = replace(WELL, acceptance={"draft_model": Acceptance(1, 90, 4000, 5000)})


def states(adviser: Adviser, *times: tuple[float, Situation]) -> list[tuple[list[str], list[str]]]:
    """What began and ended at each time."""
    found = []
    for now, situation in times:
        changes = adviser.evaluate([situation], now)
        found.append(([advice.rule for advice in changes.begun], [advice.rule for advice in changes.ended]))
    return found


def test_it_begins_once_it_has_lasted_and_is_told_once():
    adviser = Adviser()
    times = [0.0, BEGIN_S - 1, BEGIN_S, BEGIN_S + 1, 10 * BEGIN_S]
    assert states(adviser, *((now, LATE) for now in times)) == [
        ([], []),
        ([], []),
        (["turn_on"], []),
        ([], []),
        ([], []),
    ]
    assert [advice.rule for advice in adviser.active.values()] == ["turn_on"]


def test_a_burst_is_no_state():
    adviser = Adviser()
    found = states(adviser, (0.0, LATE), (BEGIN_S / 2, WELL), (BEGIN_S, LATE), (1.9 * BEGIN_S, LATE))
    assert found == [([], [])] * 4


def test_it_ends_once_it_has_been_quiet_for_long():
    adviser = Adviser()
    states(adviser, (0.0, LATE), (BEGIN_S, LATE))
    assert states(adviser, (100.0, WELL), (99 + END_S, WELL), (100 + END_S, WELL), (101 + END_S, WELL)) == [
        ([], []),
        ([], []),
        ([], ["turn_on"]),
        ([], []),
    ]
    assert not adviser.active


def test_a_new_burst_starts_the_quiet_anew():
    adviser = Adviser()
    states(adviser, (0.0, LATE), (BEGIN_S, LATE))
    assert states(adviser, (100.0, WELL), (200.0, LATE), (300.0, WELL), (299 + END_S, WELL)) == [([], [])] * 4
    assert adviser.active


def test_a_figure_that_dances_on_its_threshold_is_one_matter():
    adviser, rng = Adviser(), random.Random(1)
    changes = [
        adviser.evaluate([replace(LATE, itl_p95_ms=rng.uniform(47.0, 60.0))], 15.0 * number) for number in range(1000)
    ]
    assert sum(len(each.begun) + len(each.ended) for each in changes) == 1


def test_a_collapse_does_not_wait():
    assert states(Adviser(), (0.0, COLLAPSED)) == [(["quarantine"], [])]


def test_advice_is_kept_as_it_read_when_it_began():
    adviser = Adviser()
    states(adviser, (0.0, COLLAPSED))
    resting = replace(WELL, acceptance={"draft_model": Acceptance(0, 0, 4000, 5000, is_quarantined=True)})
    states(adviser, (1000.0, resting))
    (advice,) = adviser.active.values()
    assert advice.reason == "alpha of draft_model is 0.01 over 90 trials; it was 0.80 over 5000"


def test_routes_do_not_disturb_each_other_and_one_that_is_gone_is_quiet():
    adviser, other = Adviser(), replace(LATE, route="other")
    for now in (0.0, BEGIN_S):
        adviser.evaluate([LATE, other], now)
    assert len(adviser.active) == 2
    for now in (100.0, 100 + END_S):
        changes = adviser.evaluate([LATE], now)
    assert [advice.route for advice in changes.ended] == ["other"]
    assert [advice.route for advice in adviser.active.values()] == ["chat"]
