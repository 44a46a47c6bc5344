"""Up to how many sequences at once drafting pays: speed-up over concurrency, from measured costs. Pure.

Drafts turn rows that a pass has room for into tokens; the more sequences share a pass, the less room is left. The
*crossover* is the concurrency from which on no k pays.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

from foredraft import theory
from foredraft.governor.plan import PassCost
from foredraft.governor.profile import Point, Profile

MOST_CONCURRENCY = 64
MOST_K = 31
LEAST_GAIN = 1.02  # a speed-up below is less than measuring can tell, and does not count as paying


@dataclass(frozen=True)
class Costs:
    """Seconds of a pass over so many rows, of the target and of who drafts, which makes a pass for each drafted token
    of all sequences. measured_rows: where the target's measured part ends. is_draft_scaled: only the draft's first row
    is measured, the rest has the shape of the target's.
    """

    target: PassCost
    draft: PassCost
    measured_rows: int
    is_draft_scaled: bool = True

    def c(self, concurrency: int = 1) -> float:
        """Time of a draft step over that of a target step, as in theory.py, with so many sequences at once."""
        return float(self.draft(concurrency) / self.target(concurrency))

    @property
    def pass_cost(self) -> Callable[[int], float]:
        """The target's pass as theory.py asks for it."""
        return cache(lambda rows: float(self.target(rows)))

    def with_draft(self, factor: float) -> Costs:
        """With drafts that take `factor` of the time."""
        return replace(self, draft=_scaled(self.draft, factor))

    def with_rows(self, factor: float) -> Costs:
        """With a target whose rows after the first add `factor` of the time that they add to a pass now."""
        first = self.target.seconds[0]
        seconds = tuple(first + (value - first) * factor for value in self.target.seconds)
        return replace(self, target=replace(self.target, seconds=seconds))


@dataclass(frozen=True)
class Gain:
    """The best k at a concurrency, 0 where none pays, and its speed-up; is_extrapolated: its pass, or the one over a
    token drafted for each sequence, has more rows than were measured."""

    concurrency: int
    k: int
    speedup: float
    is_extrapolated: bool


@dataclass(frozen=True)
class Curve:
    """gains: at concurrency 1 to MOST_CONCURRENCY. crossover: None where drafting pays at the last of them still."""

    alpha: float
    gains: tuple[Gain, ...]
    crossover: int | None


def profile_costs(profile: Profile, c: float = 0.0) -> Costs:
    """The costs after next to no context; without a draft model in the profile a drafted token takes `c` of a pass."""
    target, measured_rows = _pass_cost(profile.points), max(point.rows for point in profile.points)
    if not profile.draft:
        return Costs(target, _scaled(target, c), measured_rows)
    draft = _pass_cost(profile.draft)
    if len(draft.rows) > 1:
        return Costs(target, draft, measured_rows, is_draft_scaled=False)
    return Costs(target, _scaled(target, draft.seconds[0] / target.seconds[0]), measured_rows)


def curve(alpha: float, costs: Costs) -> Curve:
    pass_cost = costs.pass_cost
    gains = []
    for concurrency in range(1, MOST_CONCURRENCY + 1):
        c = costs.c(concurrency)
        k = theory.best_k(alpha, c, MOST_K, pass_cost, concurrency)
        speedup = theory.speedup(alpha, k, c, pass_cost, concurrency)
        if speedup < LEAST_GAIN:
            k, speedup = 0, 1.0
        gains.append(Gain(concurrency, k, speedup, concurrency * (max(k, 1) + 1) > costs.measured_rows))
    return Curve(alpha, tuple(gains), _crossover(gains, costs.measured_rows))


def _crossover(gains: Sequence[Gain], measured_rows: int) -> int | None:
    """Costs have steps, so a gain may be lost and come back; what is extrapolated only prolongs one that gets there."""
    num_measured = min(max(measured_rows // 2, 1), MOST_CONCURRENCY)  # with a token drafted for each sequence
    last = max((gain.concurrency for gain in gains[:num_measured] if gain.k), default=0)
    if last == num_measured:
        while last < MOST_CONCURRENCY and gains[last].k:
            last += 1
    return None if last == MOST_CONCURRENCY else last + 1


def _pass_cost(points: Sequence[Point]) -> PassCost:
    """More rows or a longer context never cost less: where they seem to, other programs have slowed the smaller pass.

    Beyond the measured rows, one more costs the median slope between any two of the upper points (Theil-Sen).
    """
    rows = sorted({point.rows for point in points})
    seconds = [min(point.ms for point in points if point.rows >= count) / 1e3 for count in rows]
    upper = [(count, value) for count, value in zip(rows, seconds, strict=True) if count >= rows[-1] / 4]
    if len(upper) > 1:
        slope = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(upper, 2))
        end = MOST_CONCURRENCY * (MOST_K + 1)
        seconds.append(seconds[-1] + (end - rows[-1]) * slope)
        rows.append(end)
    return PassCost(tuple(rows), tuple(seconds), 0.0)


def _scaled(cost: PassCost, factor: float) -> PassCost:
    return replace(cost, seconds=tuple(seconds * factor for seconds in cost.seconds))
