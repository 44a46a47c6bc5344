"""What may be drafted for a sequence and how likely it is to be accepted: a seat of every turn (governor/plan.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foredraft.core import Draft
from foredraft.governor.acceptance import LEAST_SURVIVAL, Acceptance
from foredraft.governor.costs import Costs
from foredraft.governor.plan import Candidate, Seat
from foredraft.governor.reach import Reach
from foredraft.governor.shape import alphas, likely_tree
from foredraft.governor.trials import SIBLING, grades
from foredraft.governor.turns import Turn

MOST_DEPTH = 8  # tokens that a proposer which runs a model may draft, one after the other
MOST_TOKENS = 16  # the same in all branches of a tree
HORIZON = 16  # steps over which reading up for a proposer has to pay


class Seating:
    """Makes seats from what is known of acceptance and costs."""

    def __init__(self, acceptance: Acceptance, reach: Reach, costs: Costs) -> None:
        self._acceptance, self._reach, self._costs = acceptance, reach, costs

    def seat(self, turn: Turn, offers: Sequence[Draft]) -> Seat:
        """offers: drafts that are there already because they are free."""
        runs = (run for name in turn.runners for run in self._runs(turn, name))
        return Seat(
            context_id=turn.context.id,
            route=turn.route,
            context_len=len(turn.context.tokens),
            horizon=max(1, min(turn.num_left, HORIZON)),
            candidates=(*(self._ready(turn, draft) for draft in offers), *runs),
        )

    def _ready(self, turn: Turn, draft: Draft) -> Candidate:
        survival = self._acceptance.survival(turn.context.id, turn.route, draft.proposer, grades(draft), draft.parents)
        return Candidate(draft.proposer, survival, is_ready=True)

    def _runs(self, turn: Turn, name: str) -> Iterator[Candidate]:
        """A proposer that would have to run a model, with a chain and, where it may, with a tree."""
        runner, width, depth = turn.runners[name], turn.widths.get(name, 1), min(turn.budget, MOST_DEPTH)
        # However hopeless, a probe may draft a token.
        chances = self._acceptance.survival(turn.context.id, turn.route, name, [None] * depth) or (LEAST_SURVIVAL,)
        shapes: dict[int, tuple[tuple[float, ...], tuple[int, ...]]] = {1: (chances, ())}
        if width > 1:
            alpha = self._acceptance.alpha
            siblings = [alpha(turn.context.id, turn.route, name, SIBLING, place) for place in range(len(chances))]
            shapes[width] = likely_tree(alphas(chances), siblings, width, min(turn.budget, MOST_TOKENS))
        catch_up = self._costs.catch_up(turn, name, depth)
        for width, (survival, parents) in shapes.items():
            reach: tuple[float, ...] = ()
            if runner.ends_drafts:
                survival, reach = self._reach.estimate(turn.route, name, width, survival)
            yield Candidate(name, survival, False, reach, catch_up, width, parents, runner.drafts_at_once)
