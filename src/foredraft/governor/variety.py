"""Now and then the other shape: a tree where chains are drafted, a chain where trees are.

What is known of a shape that is not drafted grows old, and what is thought of one that was drafted too seldom may be
wrong. One draft in EVERY of the other shape, with as many tokens, costs next to nothing and keeps both known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from foredraft.governor.plan import Choice, Plan, Snapshot

EVERY = 16


class Variety:
    """Counts the drafts of each proposer on each route."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def vary(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """The plan, or one like it with another shape for one of the seats."""
        for seat in snapshot.seats:
            choice = plan.choices.get(seat.context_id)
            candidate = choice.among(seat) if choice else None
            if choice is None or candidate is None:
                continue
            same = (each for each in seat.candidates if each.proposer == choice.proposer and each.survival)
            other = next((each for each in same if each.width != choice.width), None)
            if other is None:
                continue
            key = (seat.route, choice.proposer)
            self._counts[key] += 1
            if self._counts[key] % EVERY:
                continue
            num_tokens = min(choice.num_tokens, len(other.survival))
            more = sum(other.survival[:num_tokens]) - sum(candidate.survival[: choice.num_tokens])
            choices = {**plan.choices, seat.context_id: Choice(other.proposer, num_tokens, other.width)}
            return replace(plan, choices=choices, expected_tokens=plan.expected_tokens + more)
        return plan
