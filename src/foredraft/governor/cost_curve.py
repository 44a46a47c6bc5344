"""What a pass costs on this machine: from a profile at first, corrected by every step that runs.

A pass over n rows takes f(n) plus the reading of keys and values: once for every sequence, and a little again for
every row. f is kept at knots. A step that took longer than expected moves a level that all knots share (the machine
got slower) and, four times as far, the knots beside its own number of rows (this number costs more than was thought).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, log

import numpy as np

from foredraft.governor.plan import PassCost
from foredraft.governor.profile import Point

# Weights of one step's surprise. A surprise counts up to a half: a step that another program interrupted says little.
LEVEL_WEIGHT, KNOT_WEIGHT, MOST_SURPRISE = 0.03, 0.12, 0.4
NEWS = 4  # observations
MORE_KNOTS = (48, 64, 96, 128, 192, 256, 512)  # beyond the profile, where only steps tell


class CostCurve:
    """The pass cost of one model."""

    def __init__(self, points: Iterable[Point]) -> None:
        """points: of a profile, one at 1 row among them; with two contexts they also tell what reading keys and values
        costs."""
        times: dict[int, dict[int, float]] = {}
        for point in points:
            times.setdefault(point.rows, {})[point.context] = point.ms / 1e3
        self._token_s = sequence_token_s, row_token_s = _context_cost(times)
        knots: dict[int, float] = {}
        for rows, by_context in sorted(times.items()):
            context, seconds = min(by_context.items())
            knots[rows] = max(seconds - context * (sequence_token_s + rows * row_token_s), seconds / 2)
        profiled = PassCost(tuple(knots), _rising(list(knots.values())))
        self._rows = (*knots, *(rows for rows in MORE_KNOTS if rows > profiled.rows[-1]))
        self._seconds = [profiled(rows) for rows in self._rows]
        self._surprise = [0.0] * len(self._rows)  # logarithms, by knot
        self._level = 0.0
        self._num_news = 0
        self._cost: PassCost | None = None

    @property
    def cost(self) -> PassCost:
        """What is known now."""
        if self._cost is None:
            seconds = [s * exp(self._level + extra) for s, extra in zip(self._seconds, self._surprise, strict=True)]
            self._cost = PassCost(self._rows, _rising(seconds), *(s * exp(self._level) for s in self._token_s))
        return self._cost

    def observe(self, rows: int, sequence_context: int, row_context: int, seconds: float) -> None:
        """Learn from a pass of which every row had its logits taken."""
        surprise = _bounded(seconds / self.cost(rows, sequence_context, row_context))
        above = min(bisect_left(self._rows, rows), len(self._rows) - 1)
        below = above - 1 if above and rows < self._rows[above] else above
        share = (rows - self._rows[below]) / (self._rows[above] - self._rows[below]) if above > below else 0.0
        self._level += LEVEL_WEIGHT * surprise
        self._surprise[above] += KNOT_WEIGHT * surprise * share
        self._surprise[below] += KNOT_WEIGHT * surprise * (1 - share)
        self._forget()

    def observe_ratio(self, ratio: float) -> None:
        """Learn that several passes together took `ratio` times as long as expected."""
        self._level += (LEVEL_WEIGHT + KNOT_WEIGHT) * _bounded(ratio)
        self._forget()

    def _forget(self) -> None:
        """What was computed is good for a few observations: none of them moves it far, and computing takes time."""
        self._num_news += 1
        if self._num_news >= NEWS:
            self._cost, self._num_news = None, 0


def _rising(seconds: Sequence[float]) -> tuple[float, ...]:
    """More rows never cost less: where they seem to, somebody has slowed down the smaller pass."""
    return tuple(accumulate(reversed(seconds), min))[::-1]


def _bounded(ratio: float) -> float:
    return max(-MOST_SURPRISE, min(MOST_SURPRISE, log(max(ratio, 1e-9))))


def _context_cost(times: dict[int, dict[int, float]]) -> tuple[float, float]:
    """Seconds for each token of context: of a sequence, and of each of its rows. Least squares over the rows, of which
    the first count most: drafts are short."""
    rows, slopes = [], []
    for count, by_context in times.items():
        low, high = min(by_context), max(by_context)
        if high > low:
            rows.append(count)
            slopes.append((by_context[high] - by_context[low]) / (high - low))
    if len(rows) < 2:
        return max(slopes[0], 0.0) if slopes else 0.0, 0.0
    per_row, per_sequence = np.polyfit(rows, slopes, 1, w=1 / np.array(rows))
    return max(float(per_sequence), 0.0), max(float(per_row), 0.0)


@dataclass
class Curves:
    """What passes of the target cost, and those of the models that proposers run, by proposer."""

    target: CostCurve
    drafts: dict[str, CostCurve] = field(default_factory=dict)

    @classmethod
    def unmeasured(cls) -> Curves:
        """A guess to begin with where nothing was measured: rows are nearly free."""
        return cls(CostCurve([Point(1, 0, 1.0, 0), Point(64, 0, 2.0, 0)]))

    def draft(self, proposer: str) -> CostCurve:
        """Of a proposer that nobody measured, a guess: a fifth of the target's pass."""
        if proposer not in self.drafts:
            cost = self.target.cost
            guess = zip(cost.rows, cost.seconds, strict=True)
            self.drafts[proposer] = CostCurve(Point(rows, 0, seconds * 1e3 / 5, 0) for rows, seconds in guess)
        return self.drafts[proposer]
