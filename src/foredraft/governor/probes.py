"""Letting a proposer that runs a model draft a little although it does not seem to pay: only drafting tells."""

from __future__ import annotations

from foredraft.governor.plan import Candidate, Choice, Plan, Seat, Snapshot

SHARE = 0.005  # of the time that probes may cost
DEPTH = 2
MOST_ALLOWANCE_S = 1.0


class Probes:
    """Paid from an allowance that steps bring. Proposers take turns, those too that have to be saved up for."""

    def __init__(self) -> None:
        self._allowance_s = 0.0
        self._last: dict[str, int] = {}  # by proposer: the step of its last probe

    def earn(self, seconds: float) -> None:
        """Steps took so long."""
        self._allowance_s = min(self._allowance_s + SHARE * seconds, MOST_ALLOWANCE_S)

    def plan(self, snapshot: Snapshot) -> Plan | None:
        """A probe of the sequence for which least has to be read up, if there is time for it."""
        probes = [
            _probe(snapshot, seat, candidate, min(DEPTH, len(candidate.survival)))
            for seat in snapshot.seats
            for candidate in seat.candidates
            if not candidate.is_ready and candidate.width == 1
        ]
        possible = [probe for probe in probes if probe.step_s - probe.plain_s <= MOST_ALLOWANCE_S]
        if not possible:
            return None
        plan = min(possible, key=lambda probe: (self._last.get(_proposer(probe), -1), probe.step_s))
        if plan.step_s - plan.plain_s > self._allowance_s:
            return None
        self._allowance_s -= plan.step_s - plan.plain_s
        self._last[_proposer(plan)] = snapshot.step
        return plan


def _probe(snapshot: Snapshot, seat: Seat, candidate: Candidate, num_tokens: int) -> Plan:
    cost = snapshot.draft_costs[candidate.proposer]
    draft_s = sum(candidate.rows[:num_tokens]) * cost(1) + candidate.catch_up * cost.row_s
    plain_s, step_s = (
        snapshot.pass_cost(snapshot.num_rows + more, snapshot.sequence_context, snapshot.row_context)
        for more in (0, num_tokens)
    )
    expected_tokens = len(snapshot.seats) + sum(candidate.survival[:num_tokens])
    return Plan({seat.context_id: Choice(candidate.proposer, num_tokens)}, expected_tokens, draft_s + step_s, plain_s)


def _proposer(probe: Plan) -> str:
    [choice] = probe.choices.values()
    return choice.proposer
