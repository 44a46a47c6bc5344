"""How soon a change is noticed, and how seldom there is none: simulated trials with fixed seeds."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from foredraft.governor.acceptance import Acceptance
from foredraft.governor.change import Change
from foredraft.governor.trials import Trial

K = 4


def step(random_: random.Random, acceptance: Acceptance, alpha: float, context_id: int) -> float:
    """A draft of K tokens, each accepted with chance alpha; returns what was expected of its first token."""
    expected = acceptance.alpha(context_id, "route", "p", None, 0)
    trials = []
    for depth in range(K):
        trials.append(Trial(None, depth, random_.random() < alpha))
        if not trials[-1].is_accepted:
            break
    acceptance.observe(context_id, "route", "p", trials)
    return expected


@pytest.mark.parametrize(("before", "after"), [(0.95, 0.0), (0.9, 0.3), (0.2, 0.9)])
def test_a_change_is_known_within_30_steps(before, after):
    """Three quarters of the way to the new alpha, in nine of ten runs; in the mean within 20."""
    delays = []
    for seed in range(20):
        random_, acceptance = random.Random(seed), Acceptance()
        for number in range(120):
            step(random_, acceptance, before, number // 60)
        bound = after + (before - after) / 4
        delays.append(0)
        while (step(random_, acceptance, after, 2) > bound) == (before > after) and delays[-1] < 100:
            delays[-1] += 1
    assert mean(delays) < 20
    assert sorted(delays)[17] < 30


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_false_alarms_are_rare(alpha, monkeypatch):
    """Fewer than one in 500 steps, though the sequences of a route are not all alike."""
    alarms = []
    is_found = Change.is_found
    monkeypatch.setattr(Change, "is_found", lambda self: is_found(self) and not alarms.append(self))
    for seed in range(5):
        random_, acceptance = random.Random(seed), Acceptance()
        for number in range(400):
            if number % 60 == 0:
                own = min(0.99, alpha + random_.uniform(-0.1, 0.1))
            step(random_, acceptance, own, number // 60)
    assert len(alarms) <= 5 * 400 / 500
