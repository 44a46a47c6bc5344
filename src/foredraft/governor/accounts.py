"""Who is ahead because of drafts: an account for each route, so that no traffic pays for the drafts of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from foredraft.governor.turns import Turn

MOST_TURNS = 20  # that a head start is worth at most, so that it is not lived on for ever


class Accounts:
    """By how much the sequences of each route are ahead of where they would be without drafts, in the mean."""

    def __init__(self) -> None:
        self._credits_s: dict[str, float] = {}

    def of(self, turns: Sequence[Turn]) -> dict[str, float]:
        """The accounts of these turns' routes."""
        return {turn.route: self._credits_s.get(turn.route, 0.0) for turn in turns}

    def settle(self, turns: Sequence[Turn], num_tokens: Mapping[int, int], added_s: float, turn_s: float) -> None:
        """A step with drafts: routes are credited with the tokens that they won, at the price of the time it added.

        num_tokens: kept, by context id; turn_s: time of a plain step, which a token is worth.
        """
        sizes, won = Counter[str](), Counter[str]()
        for turn in turns:
            sizes[turn.route] += 1
            won[turn.route] += num_tokens.get(turn.context.id, 0) - 1
        for route, size in sizes.items():
            credit_s = self._credits_s.get(route, 0.0) + won[route] / size * turn_s - added_s
            self._credits_s[route] = min(credit_s, MOST_TURNS * turn_s)
