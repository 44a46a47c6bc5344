"""How far the drafts of proposers that run a model get, which end where the proposer itself grows unsure.

What such a draft costs and brings is not told by alpha: it goes on only as long as its own tokens look good. Both are
counted as they come instead, by route and proposer: how many drafts *reached* a depth, and in how many the token there
was accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

from foredraft.governor.acceptance import Tally

CAP = 40.0  # drafts that count
STRENGTH = 4.0  # drafts that the estimate before any draft is worth


@dataclass
class _Depth:
    reached: Tally = field(default_factory=Tally)
    accepted: Tally = field(default_factory=Tally)


class Reach:
    """What became of drafts, by route, proposer and depth."""

    def __init__(self) -> None:
        self._depths: dict[tuple[str, str], list[_Depth]] = {}

    def observe(self, route: str, proposer: str, budget: int, num_tokens: int, num_accepted: int) -> None:
        """A draft that might have had `budget` tokens had `num_tokens`, of which the first `num_accepted` were kept."""
        depths = self._depths.setdefault((route, proposer), [])
        depths += [_Depth() for _ in range(budget - len(depths))]
        for depth, counted in enumerate(depths[:budget]):
            counted.reached.add(depth < num_tokens, 1, CAP)
            counted.accepted.add(depth < num_accepted, 1, CAP)

    def estimate(
        self, route: str, proposer: str, survival: tuple[float, ...]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each depth, the chance that its token is there and accepted, and the chance that it is drafted at all;
        both falling.

        survival: of a draft that ends nowhere, which is what both begin with.
        """
        depths = self._depths.get((route, proposer), [])
        accepted, reached = list(survival), [1.0] * len(survival)
        for depth, counted in enumerate(depths[: len(survival)]):
            accepted[depth] = counted.accepted.correct(survival[depth], STRENGTH)
            reached[depth] = counted.reached.correct(1.0, STRENGTH)
        # Fewer drafts could get to a deeper token, so that it is corrected less; it must not look the better for that.
        return tuple(accumulate(accepted, min)), tuple(accumulate(reached, min))
