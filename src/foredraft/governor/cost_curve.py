"""What a pass costs on this machine: from a profile at first, corrected by every step that runs.

A pass over n rows takes f(n) plus the reading of keys and values: once for every sequence, and a little again for
every row. f is kept at knots. A step that took longer than expected moves a level that all knots share (the machine
got slower) and, twice as far, the knots beside its own number of rows (this number costs more than was thought).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, log

import numpy as np

from foredraft.governor.plan import PassCost
from foredraft.governor.profile import Point

# Weights of one step's surprise. A surprise counts up to a half: a step that another program interrupted says little.
LEVEL_WEIGHT, KNOT_WEIGHT, MOST_SURPRISE = 0.04, 0.08, 0.4
MORE_KNOTS = (48, 64, 96, 128, 192, 256, 512)  # beyond the profile, where only steps tell


class CostCurve:
    """The pass cost of one model. `cost` is what is known now."""

    def __init__(self, points: Iterable[Point]) -> None:
        """points: of a profile, at least one; with two contexts they also tell what reading keys and values costs."""
        times: dict[int, dict[int, float]] = {}
        for point in points:
            times.setdefault(point.rows, {})[point.context] = point.ms / 1e3
        sequence_token_s, row_token_s = _context_cost(times)
        knots = []
        for rows, by_context in sorted(times.items()):
            context, seconds = min(by_context.items())
            knots.append((rows, max(seconds - context * (sequence_token_s + rows * row_token_s), seconds / 2)))
        measured = PassCost(tuple(rows for rows, _ in knots), tuple(s for _, s in knots), sequence_token_s, row_token_s)
        more = [knot for knot in MORE_KNOTS if knot > measured.rows[-1]]
        self._rows = np.array([*measured.rows, *more])
        self._seconds = measured(self._rows)
        self._surprise = np.zeros(len(self._rows))  # logarithms, by knot
        self._level = 0.0
        self._token_s = sequence_token_s, row_token_s
        self._update()

    def observe(self, rows: int, sequence_context: int, row_context: int, seconds: float) -> None:
        """Learn from a pass of which every row had its logits taken."""
        surprise = _bounded(seconds / float(self.cost(rows, sequence_context, row_context)))
        above = int(np.searchsorted(self._rows, rows))
        at = min(above, len(self._rows) - 1)
        below = max(at - 1, 0) if self._rows[at] != rows else at
        share = 1.0 if at == below else float((rows - self._rows[below]) / (self._rows[at] - self._rows[below]))
        self._level += LEVEL_WEIGHT * surprise
        self._surprise[at] += KNOT_WEIGHT * surprise * min(share, 1.0)
        self._surprise[below] += KNOT_WEIGHT * surprise * max(1.0 - share, 0.0)
        self._update()

    def observe_ratio(self, ratio: float) -> None:
        """Learn that several passes together took `ratio` times as long as expected."""
        self._level += (LEVEL_WEIGHT + KNOT_WEIGHT) * _bounded(ratio)
        self._update()

    def _update(self) -> None:
        scale = exp(self._level)
        # More rows never cost less; what says so is noise.
        seconds = np.maximum.accumulate(self._seconds * np.exp(self._surprise)) * scale
        self.cost = PassCost(
            tuple(self._rows.tolist()),
            tuple(seconds.tolist()),
            self._token_s[0] * scale,
            self._token_s[1] * scale,
        )


def _bounded(ratio: float) -> float:
    return max(-MOST_SURPRISE, min(MOST_SURPRISE, log(max(ratio, 1e-9))))


def _context_cost(times: dict[int, dict[int, float]]) -> tuple[float, float]:
    """Seconds for each token of context: of a sequence, and of each of its rows. Least squares over the rows."""
    rows, slopes = [], []
    for count, by_context in times.items():
        low, high = min(by_context), max(by_context)
        if high > low:
            rows.append(count)
            slopes.append((by_context[high] - by_context[low]) / (high - low))
    if len(rows) < 2:
        return max(slopes[0], 0.0) if slopes else 0.0, 0.0
    per_row, per_sequence = np.polyfit(rows, slopes, 1)
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
            one, many = (self.target.cost.seconds[at] * 1e3 / 5 for at in (0, -1))
            self.drafts[proposer] = CostCurve([Point(1, 0, one, 0), Point(self.target.cost.rows[-1], 0, many, 0)])
        return self.drafts[proposer]
