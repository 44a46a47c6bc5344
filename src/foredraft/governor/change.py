"""Noticing that a route's traffic has changed: trials come out otherwise than expected, again and again.

Two cumulative sums of log likelihood ratios (Page 1954): against half the expected chance, and against half the
expected chance of a refusal. A sum that would fall below 0 begins anew; one above ALARM is a change.
"""

from __future__ import annotations

from math import log

# The best of three settings in a simulation of a first version: settled after 13 steps where it took 29, a false alarm
# in 1,500 steps. tests/governor/test_change.py holds this version to looser bounds.
ALARM = 6.0
SUREST = 0.98  # what is expected is never surer than this, so that no single trial is a change


class Change:
    """Of one proposer on one route."""

    def __init__(self) -> None:
        self._worse = self._better = 0.0

    def add(self, expected: float, is_accepted: bool) -> None:
        """A trial. expected: the chance that it was given."""
        chance = min(max(expected, 1 - SUREST), SUREST)
        of_this = chance if is_accepted else 1 - chance
        against = log((1 - (1 - of_this) / 2) / of_this)
        self._worse = max(0.0, self._worse + (log(0.5) if is_accepted else against))
        self._better = max(0.0, self._better + (against if is_accepted else log(0.5)))

    def is_found(self) -> bool:
        """Whether there is a change; if so, the sums begin anew."""
        found = max(self._worse, self._better) > ALARM
        if found:
            self._worse = self._better = 0.0
        return found
