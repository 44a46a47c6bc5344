"""How far the drafts of proposers that run a model get, which end where the proposer itself grows unsure.

What such a draft costs and brings is not told by alpha: it goes on only as long as its own tokens look good. Both are
counted as they come instead, by route and proposer: how many drafts *reached* a depth, and in how many the token there
was accepted. The same holds for trees, chains apart, whose shape shows only as they grow: there it is the place in the
order of their nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate

from foredraft.governor.acceptance import Tally

CAP = 40.0  # drafts that count
STRENGTH = 4.0  # drafts that the estimate before any draft is worth


@dataclass
class _Place:
    reached: Tally = field(default_factory=Tally)
    accepted: Tally = field(default_factory=Tally)


class Reach:
    """What became of drafts, by route, proposer, width and place in the draft: in a chain, the depth."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str, int], list[_Place]] = {}

    def observe(
        self, route: str, proposer: str, width: int, budget: int, num_tokens: int, path: Collection[int]
    ) -> None:
        """A draft that might have had `budget` tokens had `num_tokens`, of which those at `path` were accepted."""
        places = self._places.setdefault((route, proposer, width), [])
        places += [_Place() for _ in range(budget - len(places))]
        for place, counted in enumerate(places[:budget]):
            counted.reached.add(place < num_tokens, 1, CAP)
            counted.accepted.add(place in path, 1, CAP)

    def estimate(
        self, route: str, proposer: str, width: int, survival: tuple[float, ...]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each place in a draft, the chance that its token is there and accepted, and the chance that it is drafted
        at all; both falling.

        survival: of a draft that ends nowhere, which is what both begin with.
        """
        places = self._places.get((route, proposer, width), [])
        accepted, reached = list(survival), [1.0] * len(survival)
        for place, counted in enumerate(places[: len(survival)]):
            accepted[place] = counted.accepted.correct(survival[place], STRENGTH)
            reached[place] = counted.reached.correct(1.0, STRENGTH)
        # Fewer drafts could get to a later token, so that it is corrected less; it must not look the better for that.
        return tuple(accumulate(accepted, min)), tuple(accumulate(reached, min))
