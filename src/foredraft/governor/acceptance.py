"""How likely drafted tokens are to be accepted: learned per route, proposer, grade and depth, and forgotten again.

A trial is a drafted token of which all before it were accepted; alpha is the share of trials that are accepted. A grade
that is not given stands for all first guesses for their places, or for all siblings of those. Trials
are counted at several levels, from all traffic of a proposer down to one sequence. An estimate starts at the most
general level and is corrected by each more special one as far as that has trials: with n trials, of which a were
accepted, an estimate m becomes (a + STRENGTH m) / (n + STRENGTH). That is the mean of a Beta posterior whose prior is
the level above. A sequence has too few trials to tell depths apart: it is known by how many more were accepted than its
route made expect, and moves the estimates of all depths alike. All trials of a draft weigh the same, since the last of
them mostly is the refused one.

Counts are capped: beyond its cap a level forgets as much as it learns. Where a route's traffic changes at once, which
shows in trials that come out otherwise than expected (change.py), nearly all that was known of it is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from foredraft.governor.change import Change
from foredraft.governor.trials import SIBLING, Trial

# Chosen by log loss and calibration on recorded drafts of lookup and of a draft model (benchmarks/governor.md). Those
# are as well explained by longer memories of a route, with which hundreds of steps pass until a change has settled.
PRIOR, SIBLING_PRIOR = 0.6, 0.1
STRENGTH = 15.0  # trials that the more general level is worth
ROUTE_CAP, SEQUENCE_CAP = 40.0, 12.0
KEPT = 4.0  # trials that a route's old traffic is worth after a change
CURIOUS = 16  # trials of a route until which a proposer gets the benefit of the doubt
LEAST_SURVIVAL = 0.01  # deeper than this nobody drafts
NUM_BINS = 10


@dataclass
class Tally:
    """Trials at one level, the older ones worth less."""

    accepted: float = 0.0
    trials: float = 0.0

    def add(self, accepted: float, trials: int, cap: float) -> None:
        keep = min(1.0, max(cap - trials, 0.0) / self.trials) if self.trials else 1.0
        share = min(1.0, cap / trials)
        self.accepted = self.accepted * keep + accepted * share
        self.trials = self.trials * keep + trials * share

    def forget(self, most: float) -> None:
        """Leave the mean, with the weight of so many trials at most."""
        share = min(1.0, most / self.trials) if self.trials else 1.0
        self.accepted, self.trials = self.accepted * share, self.trials * share

    def correct(self, mean: float, strength: float = STRENGTH) -> float:
        """The estimate of the level above, which is worth `strength` trials, corrected by what was seen here."""
        return (self.accepted + strength * mean) / (self.trials + strength)


class Surplus(Tally):
    """Trials of a sequence; `accepted` are those beyond what its route made expect."""

    def correct(self, mean: float, strength: float = STRENGTH) -> float:
        return min(1.0, max(0.0, mean + self.accepted / (self.trials + strength)))


@dataclass
class Calibration:
    """Chances that were given against what came of them, in NUM_BINS bins of the chance."""

    trials: list[int] = field(default_factory=lambda: [0] * NUM_BINS)
    expected: list[float] = field(default_factory=lambda: [0.0] * NUM_BINS)
    accepted: list[int] = field(default_factory=lambda: [0] * NUM_BINS)

    def add(self, chance: float, is_accepted: bool) -> None:
        found = min(int(chance * NUM_BINS), NUM_BINS - 1)
        self.trials[found] += 1
        self.expected[found] += chance
        self.accepted[found] += is_accepted

    @property
    def error(self) -> float | None:
        """Mean distance between chance and frequency over the bins, weighted by trials; None before any trial."""
        total = sum(self.trials)
        gaps = (abs(e - a) for e, a in zip(self.expected, self.accepted, strict=True))
        return sum(gaps) / total if total else None


class Acceptance:
    """What is known of all routes and proposers. Grades as in core.Draft; None where a draft has none."""

    def __init__(self) -> None:
        self._levels: dict[Hashable, Tally] = {}
        self._routes: dict[tuple[str, str], Tally] = {}  # all of a proposer's trials on a route, to tell about
        self._changes: dict[tuple[str, str], Change] = {}
        self._sequences: dict[int, dict[tuple[str, int | None], Surplus]] = {}
        self.calibration: dict[tuple[str, str], Calibration] = {}

    def survival(
        self,
        context_id: int,
        route: str,
        proposer: str,
        grades: Sequence[int | None],
        parents: Sequence[int] | None = None,
    ) -> tuple[float, ...]:
        """For each token of a draft, the chance that it and all before it are accepted; falling, and it ends where next
        to none would be.

        grades: of the draft's tokens, or as many None as there may be tokens where there is no draft yet. parents: as
        in core.Draft; None for a chain. Where a tree has its nodes in an order that what was learned does not bear out,
        a node counts for no more than one before it, so that the best tree of any size is still the draft's beginning.
        """
        known: dict[tuple[int | None, int], float] = {}
        reached: list[float] = []
        depths: list[int] = []
        survival: list[float] = []
        for node, grade in enumerate(grades):
            parent = node - 1 if parents is None else parents[node]
            depth = depths[parent] + 1 if parent >= 0 else 0
            key = (grade, depth.bit_length())
            if key not in known:
                known[key] = self.chance(context_id, route, proposer, grade, depth)
            depths.append(depth)
            reached.append(known[key] * (reached[parent] if parent >= 0 else 1.0))
            survival.append(min(reached[-1], survival[-1] if survival else 1.0))
            if survival[-1] < LEAST_SURVIVAL:
                return tuple(survival[:-1])
        return tuple(survival)

    def alpha(self, context_id: int, route: str, proposer: str, grade: int | None, depth: int) -> float:
        """The chance of one token, given that all before it are accepted."""
        mean = self._of_route(route, proposer, grade, depth)
        own = self._sequences.get(context_id, {}).get((proposer, grade))
        return mean if own is None else own.correct(mean)

    def chance(self, context_id: int, route: str, proposer: str, grade: int | None, depth: int) -> float:
        """Alpha as decisions should see it, by a standard deviation off.

        Of many drafts those are taken that look best, which are those whose estimates err upwards: a token that is
        there, with its grade, counts for less than its mean. Of a proposer that would have to run first, and of which
        next to nothing is known, only drafting can tell: for the first CURIOUS trials it counts for more.
        """
        mean = self.alpha(context_id, route, proposer, grade, depth)
        tally = self._levels.get((route, proposer, grade, depth.bit_length()))
        deviation = math.sqrt(mean * (1 - mean) / ((tally.trials if tally else 0.0) + STRENGTH))
        if grade is not None:
            return max(0.0, mean - deviation)
        return min(1.0, mean + deviation) if self.trials(route, proposer) < CURIOUS else mean

    def trials(self, route: str, proposer: str) -> float:
        tally = self._routes.get((route, proposer))
        return tally.trials if tally else 0.0

    def mean(self, route: str, proposer: str) -> float | None:
        """Alpha over all depths and grades, as lately seen; None before any trial."""
        tally = self._routes.get((route, proposer))
        return tally.accepted / tally.trials if tally and tally.trials else None

    def observe(self, context_id: int, route: str, proposer: str, trials: Sequence[Trial]) -> None:
        """Learn what became of a draft: the trials that it made, none or more."""
        first = [trial.is_accepted for trial in trials if trial.is_first]
        if not first:
            return
        self._routes.setdefault((route, proposer), Tally()).add(sum(first), len(first), ROUTE_CAP)
        calibration = self.calibration.setdefault((route, proposer), Calibration())
        change = self._changes.setdefault((route, proposer), Change())
        for grade, depth, is_accepted, is_first in trials:
            expected = self.alpha(context_id, route, proposer, grade, depth)
            calibration.add(expected, is_accepted)
            if is_first:
                change.add(expected, is_accepted)
        if change.is_found():
            self._forget(context_id, route, proposer)
        seen: dict[Hashable, list[bool]] = {}
        beyond: dict[tuple[str, int | None], list[float]] = {}
        for grade, depth, is_accepted, is_first in trials:
            for each in {grade, None if is_first else SIBLING}:
                for key in _keys(route, proposer, each, depth):
                    seen.setdefault(key, []).append(is_accepted)
                expected = self._of_route(route, proposer, each, depth)
                beyond.setdefault((proposer, each), []).append(is_accepted - expected)
        for key, accepted in seen.items():
            self._levels.setdefault(key, Tally()).add(sum(accepted), len(accepted), ROUTE_CAP)
        own = self._sequences.setdefault(context_id, {})
        for of, surplus in beyond.items():
            own.setdefault(of, Surplus()).add(sum(surplus), len(surplus), SEQUENCE_CAP)

    def _of_route(self, route: str, proposer: str, grade: int | None, depth: int) -> float:
        """The chance of one token of any sequence of a route."""
        mean = SIBLING_PRIOR if grade is not None and grade < 0 else PRIOR
        if grade is not None and grade >= 0 and (all_grades := self._levels.get((proposer, None))):
            mean = all_grades.correct(mean)  # a grade that was never seen is like the others of its proposer
        for key in _keys(route, proposer, grade, depth):
            tally = self._levels.get(key)
            if tally is not None:
                mean = tally.correct(mean)
        return mean

    def _forget(self, context_id: int, route: str, proposer: str) -> None:
        own = self._sequences.get(context_id, {})
        for grade in [grade for name, grade in own if name == proposer]:
            del own[proposer, grade]
        for key, tally in self._levels.items():
            if isinstance(key, tuple) and key[:2] == (route, proposer):
                tally.forget(KEPT)

    def release(self, context_id: int) -> None:
        self._sequences.pop(context_id, None)


def _keys(route: str, proposer: str, grade: int | None, depth: int) -> Iterator[Hashable]:
    """From all drafts of a proposer's grade to a depth (0, 1, 2 to 3, 4 to 7, ...) of it, on all routes and on one."""
    yield (proposer, grade)
    yield (proposer, grade, depth.bit_length())
    yield (route, proposer, grade, depth.bit_length())
