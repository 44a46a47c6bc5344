"""What a governor can tell about its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foredraft.governor.cost_curve import Curves
from foredraft.governor.policy import START_GAIN
from foredraft.theory import speedup

CONCURRENCIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_K = 8
SETTLED = 32  # steps without a draft after which a route counts as switched off


@dataclass(frozen=True)
class RouteReport:
    """What is known of a proposer on a route, and what was decided there.

    alpha: chance that a token is accepted after those before it were, as lately seen (None before any trial), and the
    number of trials behind it, at most a few dozen since older ones are forgotten. calibration_error: mean distance
    between the chances that were given and what came of them. num_switches: how often the route went from drafting to
    not drafting or back.
    """

    route: str
    pool: str
    proposer: str
    alpha: float | None
    num_trials: float
    calibration_error: float | None
    num_switches: int
    is_quarantined: bool


class Switches:
    """Counts how often routes go over from drafting to not drafting and back: a route drafts if it did lately."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self._last: dict[str, int] = {}  # step of the last draft
        self._is_on: dict[str, bool] = {}

    def step(self, route: str, step: int, has_drafted: bool) -> None:
        """A step in which the route took part."""
        if has_drafted:
            self._last[route] = step
        was_on = self._is_on.get(route, False)
        self._is_on[route] = is_on = has_drafted or (was_on and step - self._last[route] < SETTLED)
        self.count[route] = self.count.get(route, 0) + (was_on != is_on)


def crossover(alphas: Mapping[str, float], curves: Curves) -> int | None:
    """How many sequences have to run for no draft of these proposers to pay; None where one always does.

    alphas: by proposer.
    """
    target, drafts = curves.target.cost, curves.drafts
    for count in CONCURRENCIES:
        costs = {name: drafts[name].cost(count) / target(count) if name in drafts else 0.0 for name in alphas}
        gains = [
            speedup(alpha, k, costs[name], target, count)
            for name, alpha in alphas.items()
            for k in range(1, MOST_K + 1)
        ]
        if max(gains) < 1 + START_GAIN:
            return count
    return None
